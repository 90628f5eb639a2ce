"""Many people at one gate at once, and a branch that will not stand still beside it."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connections

from approvals import reviews
from approvals.gates.request_state import load_states
from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Write
from orchestrator.engine.errors import AlreadyDecided, CountersignError
from tests.races.meeting import TRIALS, Thread, whole, work
from tests.support import cast, run_actions
from tests.support.processes import until
from tests.support.run_actions import event_payloads, sign, state
from tests.support.small_graphs import advanced, graph, started

pytestmark = pytest.mark.django_db(transaction=True)
CLIENTS = 100
AT_ONCE = 25
"""The most connections that the clients hold at a time."""


def asking(quorum: int) -> Graph:
    """A graph that proposes one letter, which so many people must approve."""
    flow = graph("asks_many")
    gate = Gate(reviewers=["group:claims"], quorum=quorum)

    @flow.node("ask", effect="human", gate=gate)
    def ask(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "Dear Marta")]

    flow.node("done")(lambda state, ctx: {"notes": ["done"]})
    flow.edge(START, "ask")
    flow.edge("ask", "done")
    flow.edge("done", END)
    return flow


def reviewers(count: int) -> list[User]:
    """Return this many people, each of whom may sign."""
    users = User.objects.bulk_create(
        [User(username=f"reviewer-{number}") for number in range(count)]
    )
    group = Group.objects.get_or_create(name="claims")[0]
    group.user_set.add(*users)
    return users


def test_exactly_three_of_a_hundred_concurrent_decisions_count_under_quorum_3(
    db: None,
) -> None:
    run = advanced(asking(quorum=3))
    people = reviewers(CLIENTS)
    random.Random(11).shuffle(people)
    (row,) = run_actions.pending(run)
    item = {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
    begin = threading.Barrier(AT_ONCE)

    def decide(place: int) -> Any:
        # The first of them begin at the same moment.
        if place < AT_ONCE:
            begin.wait(60)
        try:
            return reviews.sign(run.id, [item], by=people[place])
        except CountersignError as refusal:
            return refusal
        finally:
            connections.close_all()

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(decide, range(CLIENTS)))
    refused = [answer for answer in answers if isinstance(answer, CountersignError)]
    assert len(refused) == CLIENTS - 3
    counted = Decision.objects.filter(run=run.id)
    winners = {decision.by_name for decision in counted}
    assert len(winners) == counted.count() == 3
    # Each of the others is told who settled it.
    assert {type(refusal) for refusal in refused} == {AlreadyDecided}
    assert {name for refusal in refused for name in refusal.facts["by"]} == winners
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(event_payloads(run, "gate_applied")) == 1
    assert state(run)["notes"] == ["done"]
    whole(run)


def beside(rounds: int) -> Graph:
    """The gate holds a note for a channel to which a branch beside it appends again and
    again.
    """
    flow = graph("restless")

    @flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))
    def ask(state: Any, ctx: Any) -> list[Write]:
        return [Write("notes", ["from the gate"])]

    @flow.node("append", max_visits=rounds + 1)
    def append(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [f"beside {state.total}"], "total": state.total + 1}

    flow.edge(START, "ask")
    flow.edge(START, "append")
    flow.edge("ask", END)
    flow.branch(
        "append",
        lambda state: "again" if state.total < rounds else "enough",
        {"again": "append", "enough": END},
    )
    return flow


def test_a_branch_that_appends_to_a_signed_channel_cannot_keep_a_reviewer_from_signing(
    people: cast.People,
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    rounds = 30
    made = beside(rounds)
    for _ in range(max(1, TRIALS // 4)):
        run = advanced_beside(made, rita)
        run = runs.advance(run.id)
        assert run.status == Status.COMPLETED
        notes = state(run)["notes"]
        assert notes.count("from the gate") == 1
        assert len(notes) == rounds + 1
        whole(run)


def advanced_beside(flow: Graph, by: User) -> Run:
    """A run of the graph that was signed at the first try, while its branch went on."""
    run = started(flow)
    worker = Thread(lambda: work(run))
    until(lambda: Run.objects.filter(id=run.id, superstep__gte=5).exists(), what="work")
    (shown,) = run_actions.pending(run)
    receipt = sign(run, by, ["approve"])
    assert [line["result"] for line in receipt.lines] == ["counted"]
    worker.outcome()
    (row,) = run_actions.pending(run)
    # What the branch appended meanwhile is no reason to ask again.
    assert (row.revision, row.hash) == (1, shown.hash)
    (request,) = load_states([run_actions.request(run)], protection_of(run))
    assert request.outcome == "approved"
    return run
