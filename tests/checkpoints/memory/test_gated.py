"""What a gated node wishes to remember waits for people, in the same request as its
other writes.
"""

import re
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.ledger.pending_writes import base_of
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from orchestrator.engine import END, START, registry
from orchestrator.engine.errors import InvalidValue
from orchestrator.runs.reopenings import reopen
from tests.support import cast, run_actions
from tests.support.memory_graphs import (
    GATE,
    chain,
    forget,
    gone,
    landed,
    memory,
    remember,
    side_by_side,
)
from tests.support.run_actions import event_payloads, log, pending, sign, state
from tests.support.small_graphs import graph, registered

pytestmark = pytest.mark.django_db(transaction=True)
HUMAN = {"effect": "human", "gate": GATE}


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def propose(state: Any, ctx: Any) -> dict[str, Any]:
    ctx.memory.put("limit", 100, "rules")
    ctx.memory.delete("old", "rules")
    return {"letter": "seen"}


def _waiting(**settings: Any) -> Run:
    return gone(chain("gated", propose, options=[HUMAN], **settings))


def test_memory_writes_are_pending_writes_of_their_own_channel_in_the_same_request() -> (
    None
):
    remember("old", "rule", "rules")
    run = _waiting()
    assert run.status == Status.PAUSED
    assert memory() == {"rules/old": "rule"}
    assert ApprovalRequest.objects.get(run=run).writes == 3
    shown = [
        (row.channel, row.label, read_value(row, "value"), base_of(row).value)
        for row in pending(run)
    ]
    assert shown == [
        ("letter", "letter", "seen", ""),
        (
            "$memory:rules/limit",
            "Remember limit (rules)",
            {"content": 100, "strength": 1.0},
            None,
        ),
        (
            "$memory:rules/old",
            "Forget old (rules)",
            None,
            {"content": "rule", "strength": 1.0},
        ),
    ]


def test_they_land_only_if_they_are_approved_and_as_they_were_decided(
    rita: User,
) -> None:
    remember("old", "rule", "rules")
    run = _waiting()
    sign(run, rita, ["approve", ("edit", {"content": 50, "strength": 0.5}), "reject"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["letter"] == "seen"
    assert memory() == {"rules/limit": 50, "rules/old": "rule"}
    assert landed(run) == [("propose:1:0", 0, "limit", 1)]
    assert log(run).index("gate_applied") < log(run).index("memory_written")
    assert {d.channel for d in Decision.objects.all()} == {
        "letter",
        "$memory:rules/limit",
        "$memory:rules/old",
    }


def test_an_edit_may_turn_what_was_to_be_remembered_into_forgetting(rita: User) -> None:
    remember("limit", 10, "rules")
    run = _waiting()
    sign(run, rita, ["approve", ("edit", None)])
    assert runs.advance(run.id).status == Status.COMPLETED
    assert memory() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        "text",
        {"strength": 1},
        {"content": 1, "strength": -1},
        {"content": 1, "more": 2},
    ],
)
def test_an_edit_of_a_wrong_form_is_refused_by_name(rita: User, wrong: Any) -> None:
    run = _waiting()
    with pytest.raises(InvalidValue) as refused:
        sign(run, rita, ["approve", ("edit", wrong)])
    assert "$memory:rules/limit" in refused.value.message
    assert Decision.objects.count() == 0


def test_a_gate_that_needs_nobody_lets_memory_land_with_the_superstep() -> None:
    gate = replace(
        GATE,
        needs_approval=lambda state, proposal: (
            proposal["$memory:rules/limit"].content > 100
        ),
    )
    run = gone(chain("passed", propose, options=[{"effect": "human", "gate": gate}]))
    assert run.status == Status.COMPLETED
    assert memory() == {"rules/limit": 100}


def test_a_trace_that_changed_since_comes_back_to_the_people_who_decided(
    rita: User,
) -> None:
    remember("limit", 10, "rules")
    run = _waiting()
    sign(run, rita, ["approve", "approve"])
    remember("limit", 20, "rules")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert memory() == {"rules/limit": 20}
    again = pending(run)[1]
    assert again.revision == 2
    assert again.reason == "rebase"
    assert base_of(again).value == {"content": 20, "strength": 1.0}
    assert [line["channel"] for line in event_payloads(run, "write_rebased")] == [
        "$memory:rules/limit"
    ]
    sign(run, rita, [None, "approve"])
    assert runs.advance(run.id).status == Status.COMPLETED
    assert memory() == {"rules/limit": 100}


def test_a_trace_that_was_changed_back_still_comes_back_to_them(rita: User) -> None:
    remember("limit", 10, "rules")
    run = _waiting()
    sign(run, rita, ["approve", "approve"])
    remember("limit", 20, "rules")
    remember("limit", 10, "rules")
    assert runs.advance(run.id).status == Status.PAUSED
    assert pending(run)[1].revision == 2


def test_a_superstep_of_the_same_run_that_changes_the_trace_rebases_in_its_own_commit(
    rita: User,
) -> None:
    remember("limit", 10, "rules")

    def beside(state: Any, ctx: Any) -> None:
        pass

    def move(state: Any, ctx: Any) -> None:
        ctx.memory.put("limit", 30, "rules")

    flow = graph("moves-its-own")
    flow.node(**HUMAN)(propose)
    flow.node()(beside)
    flow.node()(move)
    for source, target in (
        (START, "propose"),
        (START, "beside"),
        ("beside", "move"),
        ("move", END),
        ("propose", END),
    ):
        flow.edge(source, target)
    run = gone(registered(flow))
    assert run.status == Status.PAUSED
    assert memory() == {"rules/limit": 30}
    (again,) = [row for row in pending(run) if row.channel == "$memory:rules/limit"]
    assert again.revision == 2
    assert base_of(again).value == {"content": 30, "strength": 1.0}


def test_a_proposal_that_was_overtaken_before_anybody_was_asked_is_made_again() -> None:
    remember("limit", 10, "rules")
    tries: list[int] = []

    def raise_it(state: Any, ctx: Any) -> None:
        tries.append(ctx.memory.get("limit", "rules").content)
        if len(tries) == 1:
            remember("limit", 20, "rules")
        ctx.memory.put("limit", tries[-1] + 1, "rules")

    run = gone(chain("overtaken", raise_it, options=[HUMAN]))
    assert run.status == Status.PAUSED
    assert tries == [10, 20]
    (row,) = pending(run)
    assert read_value(row, "value") == {"content": 21, "strength": 1.0}


def test_the_same_holds_where_a_sibling_failed() -> None:
    remember("limit", 10, "rules")
    tries = list[int]()
    broken = [True]

    def raise_it(state: Any, ctx: Any) -> None:
        tries.append(ctx.memory.get("limit", "rules").content)
        if len(tries) == 1:
            remember("limit", 20, "rules")
        ctx.memory.put("limit", tries[-1] + 1, "rules")

    def fragile(state: Any, ctx: Any) -> None:
        if broken:
            raise RuntimeError("broken until mended")

    run = gone(side_by_side("overtaken-open", raise_it, fragile, options=[HUMAN]))
    assert run.status == Status.FAILED
    assert pending(run) == []
    broken.clear()
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert tries == [10, 20]
    assert read_value(pending(run)[0], "value") == {"content": 21, "strength": 1.0}


def test_the_second_of_two_settled_gates_on_one_key_comes_back(rita: User) -> None:
    def first(state: Any, ctx: Any) -> None:
        ctx.memory.put("limit", 1, "rules")

    def second(state: Any, ctx: Any) -> None:
        ctx.memory.put("limit", 2, "rules")

    run = gone(side_by_side("two-gates-on-one", first, second, options=[HUMAN, HUMAN]))
    run_actions.sign_open(run, rita, "approve")
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert memory() == {"rules/limit": 1}
    assert [row.revision for row in pending(run)] == [1, 2]
    run_actions.sign_open(run, rita, "approve")
    assert runs.advance(run.id).status == Status.COMPLETED
    assert memory() == {"rules/limit": 2}


def test_a_journal_is_decided_as_a_whole(rita: User) -> None:
    remember("old", "rule", "rules")
    run = _waiting(memory="journaled")
    assert ApprovalRequest.objects.get(run=run).policy["all_or_nothing"]
    sign(run, rita, ["approve", "approve", "reject"])
    assert runs.advance(run.id).status == Status.REJECTED
    assert memory() == {"rules/old": "rule"}


def test_a_journal_that_is_re_opened_is_decided_as_a_whole_again(
    people: cast.People,
) -> None:
    remember("old", "rule", "rules")
    run = _waiting(memory="journaled")
    stricter = {**HUMAN, "gate": replace(GATE, quorum=2)}
    registry.replace(chain("gated", propose, options=[stricter], memory="journaled"))
    request = ApprovalRequest.objects.get(run=run)
    reopen(request.id, by=people.steward, reason="two must decide")
    opened = ApprovalRequest.objects.get(run=run, status="open")
    assert opened.policy["quorum"] == 2
    assert opened.policy["all_or_nothing"]


def test_a_rejected_wish_is_forgotten(rita: User) -> None:
    run = _waiting()
    sign(run, rita, ["reject", "reject"])
    assert runs.advance(run.id).status == Status.REJECTED
    assert memory() == {}
    assert landed(run) == []
    assert forget("limit", "rules").status == Status.COMPLETED


def test_the_page_of_a_review_shows_what_is_to_be_remembered_beside_what_is(
    client: Client, rita: User
) -> None:
    remember("limit", 10, "rules")
    run = _waiting()
    client.force_login(rita)
    page = client.get(reverse("review", args=[run.key]))
    shown = page.content.decode()
    assert page.status_code == 200
    assert "Remember limit (rules)" in shown
    assert re.search(rf'name="e-{pending(run)[1].write}\.strength"', shown)
