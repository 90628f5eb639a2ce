"""Going back in time: forks and rewinds with patches, answers, effects that happened
already, and what is refused.
"""

from pathlib import Path

import pytest

from approvals.models import ApprovalRequest, Decision
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.queue import leases
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Task
from orchestrator.engine.errors import (
    InvalidValue,
    KeyConflict,
    NotAReviewer,
    UnknownThing,
    WrongStatus,
)
from tests.support import cast, run_actions
from tests.support.paid_claims import PAID, claim, paid, rows_of
from tests.support.small_graphs import advanced, graph, registered

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def nothing_is_paid() -> None:
    PAID.clear()


# Forks


def test_a_fork_goes_on_from_its_point_with_the_patch_and_the_origin_stays_as_it_was(
    people: cast.People,
) -> None:
    run = paid("forked", people)
    before = rows_of(run)
    fork = runs.fork(
        f"{run.key}:step-1", patch={"scratch": {"letter": "dear"}}, by=people.starter
    )
    assert fork.status == Status.QUEUED
    assert fork.origin_checkpoint == timeline.get_checkpoint(f"{run.key}:step-1").id
    assert fork.started_by == people.starter
    assert fork.key == f"{run.key}~{str(fork.id)[:8]}"
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.PAUSED
    assert new_run.at_node == "ask"
    assert run_actions.state(new_run)["letter"] == "dear"
    assert run_actions.sources(new_run)[0] == "fork"
    assert rows_of(run) == before
    assert [list(verify_run(each_run.id)) for each_run in (run, new_run)] == [[], []]


def test_a_fork_of_a_fork_knows_what_happened_in_the_first_origin(
    people: cast.People,
) -> None:
    run = paid("grandchild", people)
    child = runs.fork(f"{run.key}:step-1", by=people.starter)
    fork = runs.advance(runs.fork(f"{child.key}:initial", by=people.starter).id)
    run_actions.sign(fork, people.reviewer, ["approve"])
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.PAUSED
    assert new_run.at_node == "pay"
    assert len(PAID) == 1


def test_an_effect_that_happened_stops_the_fork_before_it_until_somebody_says_yes(
    people: cast.People,
) -> None:
    run = paid("again", people)
    fork = runs.advance(
        runs.fork(
            f"{run.key}:at-2", answers={"ask": {"total": 10}}, by=people.reviewer
        ).id
    )
    assert fork.status == Status.PAUSED
    assert fork.at_node == "pay"
    assert len(PAID) == 1
    assert run_actions.event_payloads(fork, "run_paused")[-1]["stopped_before"] == [
        "pay"
    ]
    with pytest.raises(WrongStatus, match="stopped before pay"):
        runs.resume(fork.id, by=people.starter)
    with pytest.raises(InvalidValue, match="needs no yes for first"):
        runs.resume(fork.id, allow_effects=["first"], by=people.starter)
    runs.resume(fork.id, allow_effects=["pay"], by=people.starter)
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.COMPLETED
    assert len(PAID) == 2
    assert len({line.split(":")[0] for line in PAID}) == 2
    assert list(verify_run(new_run.id)) == []


def test_an_effect_that_was_allowed_beforehand_happens_again(
    people: cast.People,
) -> None:
    run = paid("allowed", people)
    fork = runs.fork(
        f"{run.key}:at-2",
        answers={"ask": {"total": 10}},
        allow_effects=["pay"],
        by=people.reviewer,
    )
    assert runs.advance(fork.id).status == Status.COMPLETED
    assert len(PAID) == 2


def test_another_answer_goes_another_way_and_the_recorded_one_stays(
    people: cast.People,
) -> None:
    run = paid("otherwise", people)
    before = list(Decision.objects.filter(run=run.id).values())
    fork = runs.fork(
        f"{run.key}:at-2",
        answers={"ask": {"total": 5}},
        allow_effects=["pay"],
        by=people.reviewer,
    )
    new_run = runs.advance(fork.id)
    assert run_actions.state(new_run)["notes"] == ["first", "paid 5"]
    assert run_actions.state(new_run)["total"] == 5
    assert list(Decision.objects.filter(run=run.id).values()) == before
    decision = Decision.objects.get(run=new_run.id)
    assert decision.verdict == "edit"
    assert decision.by == people.reviewer


def test_an_answer_counts_as_one_signature_and_the_rest_is_asked(
    people: cast.People,
) -> None:
    run = paid("one_of_two", people, quorum=2)
    fork = runs.fork(
        f"{run.key}:at-2",
        answers={"ask": {"total": 10}},
        allow_effects=["pay"],
        by=people.reviewer,
    )
    assert runs.advance(fork.id).status == Status.PAUSED
    run_actions.sign(fork, people.second_reviewer, ["approve"])
    assert runs.advance(fork.id).status == Status.COMPLETED


@pytest.mark.parametrize("four_eyes", [False, True])
def test_a_patch_of_a_signed_value_needs_the_same_signatures(
    people: cast.People, *, four_eyes: bool
) -> None:
    run = paid("signed", people, quorum=2, four_eyes=four_eyes)
    operator = run_actions.reviewer(people.starter)
    settled = timeline.list_checkpoints(run.id)[1]
    assert settled.source == "settlement"
    plan = runs.plan(settled.id, patch={"scratch": {"total": 9999}})
    assert plan.guarded == {"total": "ask"}
    assert plan.runs == ()
    assert [t.node for t in plan.may_run] == ["pay"]
    assert plan.asks[0] == Task("$patch", 1, 0)
    fork = runs.fork(
        settled.id,
        patch={"scratch": {"total": 9999}},
        allow_effects=["pay"],
        by=operator,
        reason="because",
    )
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.PAUSED
    assert run_actions.state(new_run)["total"] == 10
    assert len(PAID) == 1
    request = ApprovalRequest.objects.get(run=new_run)
    assert request.quorum == 2
    assert request.policy["all_or_nothing"] is True
    assert request.policy["four_eyes"] == four_eyes
    if four_eyes:
        with pytest.raises(NotAReviewer, match="somebody else must sign"):
            run_actions.sign(new_run, operator, ["approve"])
    run_actions.sign(new_run, people.reviewer, ["approve"])
    assert runs.advance(new_run.id).status == Status.PAUSED
    assert len(PAID) == 1
    run_actions.sign(new_run, people.second_reviewer, ["approve"])
    new_run = runs.advance(new_run.id)
    assert new_run.status == Status.COMPLETED
    assert run_actions.state(new_run)["total"] == 9999
    assert PAID[1].endswith(":9999") is True
    assert list(verify_run(new_run.id)) == []


def test_a_rejected_patch_ends_the_run_and_withdraws_what_else_it_asks(
    people: cast.People,
) -> None:
    run = advanced(claim("refused"))
    rita = run_actions.reviewer(people.reviewer)
    fork = runs.advance(
        runs.fork(
            f"{run.key}:step-2", patch={"scratch": {"total": 3}}, by=people.starter
        ).id
    )
    tasks = {row.task: row for row in run_actions.pending(fork)}
    assert set(tasks) == {"$patch:1:0", "ask:1:0"}
    run_actions.sign(fork, rita, ["reject", None])
    new_run = runs.advance(fork.id)
    assert new_run.status == Status.REJECTED
    statuses = {
        request.task: request.status
        for request in ApprovalRequest.objects.filter(run=new_run)
    }
    assert statuses == {"$patch:1:0": "applied", "ask:1:0": "withdrawn"}
    assert list(verify_run(new_run.id)) == []
    again = runs.rewind(new_run.id, f"{new_run.key}:initial", by=people.starter)
    assert runs.advance(again.id).status == Status.PAUSED
    assert again.line == 2


def test_a_fork_that_is_not_started_waits_for_a_resume(people: cast.People) -> None:
    run = advanced(claim("later"))
    fork = runs.fork(f"{run.key}:step-1", start=False, by=people.starter)
    assert fork.status == Status.PAUSED
    assert runs.advance(fork.id).superstep == 1
    assert runs.advance(runs.resume(fork.id, by=people.starter).id).at_node == "ask"


# Rewinds


def test_a_rewind_begins_a_new_line_and_what_came_after_stays_readable(
    people: cast.People,
) -> None:
    run = paid("rewound", people)
    before = list(Checkpoint.objects.filter(run=run).order_by("seq").values())
    run = runs.rewind(
        run.id, f"{run.key}:step-1", by=people.starter, reason="the wrong account"
    )
    assert run.status == Status.QUEUED
    assert run.line == 2
    assert run.ended_at is None
    run = runs.advance(run.id)
    assert run.status == Status.PAUSED
    assert run.at_node == "ask"
    after = list(Checkpoint.objects.filter(run=run).order_by("seq").values())
    assert after[: len(before)] == before
    assert [
        (row["seq"], row["line"], row["source"]) for row in after[len(before) :]
    ] == [
        (5, 2, "rewind"),
        (6, 2, "superstep"),
    ]
    assert timeline.get_checkpoint(f"{run.key}:step-2").line == 2
    assert (
        timeline.snapshot_of(Checkpoint.objects.get(run=run, seq=5))["versions"][
            "notes"
        ]
        == 1
    ), "set before"
    assert timeline.get_checkpoint(f"{run.key}:line-1:step-2").line == 1
    run_actions.sign_open(run, people.reviewer, "approve")
    assert runs.advance(run.id).status == Status.PAUSED, "it has paid on the first line"
    assert len(PAID) == 1, "it has paid on the first line"
    run = runs.advance(runs.resume(run.id, allow_effects=["pay"], by=people.starter).id)
    assert run.status == Status.COMPLETED
    assert len({line.split(":")[0] for line in PAID}) == 2
    assert list(verify_run(run.id)) == []


def test_a_rewind_withdraws_what_people_are_asked_and_asks_it_anew(
    people: cast.People,
) -> None:
    run = advanced(claim("withdrawn"))
    rita = run_actions.reviewer(people.reviewer)
    first = ApprovalRequest.objects.get()
    run = runs.advance(runs.rewind(run.id, f"{run.key}:step-2", by=people.starter).id)
    assert [
        (request.line, request.status)
        for request in ApprovalRequest.objects.filter(run=run).order_by("line")
    ] == [
        (1, "withdrawn"),
        (2, "open"),
    ]
    assert first.id == ApprovalRequest.objects.get(line=1).id
    run_actions.sign_open(run, rita, "approve")
    assert runs.advance(run.id).status == Status.COMPLETED
    assert len(PAID) == 1


def test_a_rewind_with_a_patch_of_a_signed_value_needs_its_signatures(
    people: cast.People,
) -> None:
    run = paid("raised", people)
    settled = timeline.list_checkpoints(run.id)[1]
    run = runs.rewind(
        run.id,
        settled.id,
        patch={"scratch": {"total": 9999}},
        allow_effects=["pay"],
        by=people.starter,
    )
    assert runs.advance(run.id).status == Status.PAUSED
    assert len(PAID) == 1
    run_actions.sign_open(run, people.reviewer, "approve")
    assert runs.advance(run.id).status == Status.COMPLETED
    assert PAID[1].endswith(":9999") is True


def test_a_resume_with_a_patch_goes_on_from_the_newest_checkpoint(
    people: cast.People,
) -> None:
    run = advanced(claim("patched"))
    run = runs.resume(run.id, patch={"scratch": {"letter": "x"}}, by=people.starter)
    assert run.line == 2
    assert run.status == Status.QUEUED
    run = runs.advance(run.id)
    assert run.at_node == "ask"
    assert run_actions.state(run)["letter"] == "x"
    run = runs.resume(run.id, patch={"scratch": {"total": 9999}}, by=people.starter)
    assert {row.task for row in run_actions.pending(run) if row.line == 3} == {
        "$patch:1:0",
        "ask:1:0",
    }


def test_a_failed_run_is_resumed_with_a_patch_and_keeps_what_finished(
    people: cast.People,
) -> None:
    flow = graph("mended")
    flow.node("a", effect="external", idempotent=True)(
        lambda state, ctx: PAID.append("a")
    )  # type: ignore[arg-type]
    flow.node("b")(lambda state, ctx: {"notes": [str(10 // state.total)]})
    for name in "ab":
        flow.edge(START, name)
        flow.edge(name, END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    assert PAID == ["a"]
    plan = runs.plan(f"{run.key}:at-1", how="rewind", patch={"scratch": {"total": 5}})
    assert plan.reused == (Task("a", 1, 0),)
    assert plan.runs == (Task("b", 1, 0),)
    assert plan.effects_again == ()
    run = runs.advance(
        runs.resume(run.id, patch={"scratch": {"total": 5}}, by=people.starter).id
    )
    assert run.status == Status.COMPLETED
    assert PAID == ["a"]
    assert run_actions.state(run)["notes"] == ["2"]
    assert list(verify_run(run.id)) == []


def test_a_restart_is_a_rewind_to_the_beginning(people: cast.People) -> None:
    run = paid("restarted", people)
    again = runs.start(run.graph, {}, key=run.key, restart=True, by=people.starter)
    assert again.id == run.id
    assert again.line == 2
    assert again.status == Status.QUEUED
    assert again.superstep == 0
    assert RunLine.objects.get(run=run).stops == ["pay"]
    assert runs.advance(run.id).at_node == "ask"


# What is refused


def test_a_run_in_hand_is_not_rewound(people: cast.People) -> None:
    run = advanced(claim("in_hand"))
    runs.rewind(run.id, f"{run.key}:step-1", by=people.starter)
    assert leases.claim_one(run.id)
    with pytest.raises(WrongStatus, match="has run .* in hand"):
        runs.rewind(run.id, f"{run.key}:step-1", by=people.starter)


def test_an_open_unknown_effect_is_settled_before_a_rewind(people: cast.People) -> None:
    flow = graph("lost")
    flow.node("pay", effect="external")(lambda state, ctx: 1 / 0)  # type: ignore[arg-type, return-value]
    flow.edge(START, "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    assert run.status == Status.UNKNOWN
    with pytest.raises(WrongStatus, match="settled first"):
        runs.rewind(run.id, f"{run.key}:initial", by=people.starter)
    plan = runs.plan(f"{run.key}:initial")
    assert plan.may_have_happened == (Task("pay", 1, 0),)
    assert plan.needs_yes == ["pay"]
    forked = runs.advance(runs.fork(f"{run.key}:initial", by=people.starter).id)
    assert forked.status == Status.PAUSED
    assert forked.at_node == "pay"


def test_what_is_not_there_is_unknown(people: cast.People) -> None:
    run = advanced(claim("here"))
    other = advanced(claim("there"))
    for checkpoint in (
        f"{run.key}:step-9",
        "01a20447-1f6b-7b29-bc56-1f6ee15fdc98",
        "nonsense",
    ):
        with pytest.raises(UnknownThing):
            runs.fork(checkpoint, by=people.starter)
        with pytest.raises(UnknownThing):
            runs.rewind(run.id, checkpoint, by=people.starter)
    with pytest.raises(UnknownThing):
        runs.rewind(run.id, f"{other.key}:step-1", by=people.starter)


def test_an_answer_of_somebody_who_may_not_decide_is_refused_with_an_audit_line(
    people: cast.People,
) -> None:
    from checkpoints.models import AuditLine

    run = advanced(claim("answered"))
    with pytest.raises(NotAReviewer):
        runs.fork(
            f"{run.key}:step-2", answers={"ask": {"total": 10}}, by=people.starter
        )
    assert Run.objects.count() == 1
    assert AuditLine.objects.filter(kind="refused_not_a_reviewer").count() == 1
    with pytest.raises(InvalidValue, match="nothing that ask proposed"):
        runs.fork(
            f"{run.key}:step-1", answers={"ask": {"total": 10}}, by=people.starter
        )
    with pytest.raises(InvalidValue, match="decisions of a person"):
        runs.fork(f"{run.key}:step-2", answers={"ask": {"total": 10}})


def test_a_run_is_resumed_by_its_newest_checkpoint(people: cast.People) -> None:
    run = advanced(claim("newest"))
    runs.rewind(run.id, f"{run.key}:initial", reason="again", by=people.starter)
    fork = runs.fork(f"{run.key}:initial", start=False, by=people.starter)
    for named in (fork.head, f"{fork.key}:initial"):
        assert runs.resume(named, by=people.starter).id == fork.id
        Run.objects.filter(id=fork.id).update(status=Status.FAILED)
    assert runs.resume(fork.head, by=people.starter).status == Status.QUEUED
    assert runs.advance(fork.id).at_node == "ask"


def test_an_older_checkpoint_is_not_resumed(people: cast.People) -> None:
    run = advanced(claim("older"))
    with pytest.raises(WrongStatus, match="rewind the run to it"):
        runs.resume(f"{run.key}:step-1", by=people.starter)
    with pytest.raises(WrongStatus, match="waits for people"):
        runs.resume(f"{run.key}:step-2", by=people.starter)


def test_a_key_that_is_taken_is_a_conflict(people: cast.People) -> None:
    run = advanced(claim("taken"))
    assert runs.fork(f"{run.key}:step-1", key="mine", by=people.starter).key == "mine"
    with pytest.raises(KeyConflict):
        runs.fork(f"{run.key}:step-1", key="mine", by=people.starter)
    with pytest.raises(InvalidValue):
        runs.fork(f"{run.key}:step-1", key="a/b", by=people.starter)


def test_a_plan_is_shown_as_text_and_json(people: cast.People, tmp_path: Path) -> None:
    run = paid("told", people)
    plan = runs.plan(f"{run.key}:step-1")
    assert plan.to_json()["effects_again"] == [
        {"task": "pay:1:0", "node": "pay", "why": "external"}
    ]
    assert plan.to_json()["needs_yes"] == ["pay"]
    text = plan.to_text()
    assert "Happened already, and would happen again:" in text
    assert "Stops before pay without a yes for each" in text
    assert [task.node for task in plan.runs] == ["ask"]
    registered(claim("told"))
