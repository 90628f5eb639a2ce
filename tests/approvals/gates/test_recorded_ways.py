"""A replay of a run whose history was cleaned up goes the same way, or is refused by
name; what a replay that has not ended reads is not removed.
"""

from typing import Any

import pytest

from approvals.gates.recorded_ways import settlements
from checkpoints import retention
from checkpoints.core.status import Status
from checkpoints.memory.replay_shelf import OriginLine
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.line_facts import required_facts
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow, WrongStatus
from tests.support import cast, rows, run_actions
from tests.support.forging import tamper
from tests.support.histories import faults, policy, pruned, seqs
from tests.support.paid_claims import PAID, paid
from tests.support.sent_on import sent_on

pytestmark = pytest.mark.django_db(transaction=True)


def replayed(point: str, by: Any) -> tuple[Any, ...]:
    """Return what a replay comes to: its status, its state, what it reused and where it
    went another way.
    """
    return came_to(runs.replay(point, by=by))


def came_to(run: Run) -> tuple[Any, ...]:
    run = runs.advance(run.id)
    report = runs.replay_report(run.id)
    return run.status, run_actions.state(run), report["reused"], report["diverged"]


def test_a_replay_goes_the_same_way_once_its_origin_was_cleaned_up(
    people: cast.People,
) -> None:
    run = paid("cleaned_up", people)
    before = replayed(f"{run.key}:at-0", people.starter)
    assert before[0] == Status.COMPLETED
    assert before[2:] == (["ask:1:0", "pay:1:0"], [])
    pruned(policy("cleaned_up", keep_last=1))
    assert seqs(run) == [0, run.head_seq]
    assert replayed(f"{run.key}:at-0", people.starter) == before
    assert len(PAID) == 1
    assert faults() == []


def test_each_line_is_replayed_as_people_decided_it(people: cast.People) -> None:
    run = paid("decided_twice", people)
    runs.rewind(run.id, f"{run.key}:at-1", allow_effects=["pay"], by=people.starter)
    runs.advance(run.id)
    run_actions.sign_open(run, people.reviewer, "reject")
    assert runs.advance(run.id).status == Status.COMPLETED
    second = Checkpoint.objects.get(run=run.id, line=2, source="rewind")
    points = [f"{run.key}:at-1", f"{run.key}:at-{second.seq}"]
    before = [replayed(point, people.starter) for point in points]
    assert [one[1]["notes"][-1] for one in before] == ["paid 10", "refused"]
    pruned(policy("decided_twice", keep_last=1))
    assert [replayed(point, people.starter) for point in points] == before


@pytest.fixture(params=[True, False], ids=["asked", "passed"])
def sent(request: pytest.FixtureRequest, people: cast.People) -> Run:
    """A run of which only rows show where ask went: by a signature, or past a gate that
    needed nobody.
    """
    return sent_on(people, approved=request.param)


def test_what_a_replay_reads_stays_until_it_has_ended(
    sent: Run, people: cast.People
) -> None:
    replay = runs.replay(f"{sent.key}:at-0", by=people.starter)
    rule = policy("sent_on", keep_last=0)
    counts = retention.dry_run(rule)
    assert counts.reasons["replayed"]["count"] >= 1
    pruned(rule)
    status, state, _, diverged = came_to(replay)
    assert status == Status.COMPLETED
    assert state == run_actions.state(sent)
    assert diverged == []
    pruned(rule)
    assert seqs(sent) == [0, sent.head_seq]


def test_a_replay_that_could_not_know_where_a_task_went_is_refused_by_name(
    sent: Run, people: cast.People
) -> None:
    point = f"{sent.key}:at-0"
    assert replayed(point, people.starter)[3] == []
    pruned(policy("sent_on", keep_last=1))
    there = Run.objects.count()
    for act in (
        lambda: runs.replay(point, by=people.starter),
        lambda: runs.plan(point, how="replay"),
    ):
        with pytest.raises(WrongStatus, match="where ask:1:0 went") as refused:
            act()
        assert refused.value.facts["tasks"] == ["ask:1:0"]
    assert Run.objects.count() == there
    # Behind it nothing is missing, and a fork runs it again.
    assert replayed(f"{sent.key}:at-{sent.head_seq}", people.starter)[3] == []
    assert runs.advance(runs.fork(point, by=people.starter).id).status in (
        Status.PAUSED,
        Status.COMPLETED,
    )


@pytest.mark.parametrize(
    ("type_", "facts", "task"),
    [
        ("gate_applied", {"outcome": "approved"}, "no task"),
        ("checkpoint_saved", {"checkpoint": str(rows.missing())}, "ask:1:0"),
        (
            "checkpoint_saved",
            {"checkpoint": str(rows.missing()), "kept": True, "superstep": 1},
            "ask:1:0",
        ),
    ],
    ids=["task", "superstep", "source"],
)
@pytest.mark.parametrize("is_sealed", [True, False])
def test_settlements_of_which_a_line_does_not_tell_are_refused_by_name(
    is_sealed: bool, type_: str, facts: dict[str, Any], task: str
) -> None:
    run = rows.a_run()
    event = rows.an_event(run, 1, type=type_, payload=facts, task=task)
    rows.an_event(run, 2, type="gate_applied", payload={}, task="ask:1:0")
    if not is_sealed:
        tamper(event, at=run.created_at)
    with pytest.raises(TamperedRow, match=r"checkpoints_runevent .* 1|line 1"):
        settlements(OriginLine(run.id, 1, protection_of(run)))


@pytest.mark.parametrize(
    "facts",
    [
        {"decisions": [], "sends": [["a", "b"]]},
        {"decisions": [], "sends": [["a"]], "superstep": 1},
        {"decisions": [], "sends": 7, "superstep": 1},
        {"decisions": [], "goto": 7},
        {"decisions": [], "superstep": "x"},
    ],
    ids=str,
)
def test_ways_past_a_gate_that_a_line_does_not_tell_are_refused_by_name(
    facts: dict[str, Any],
) -> None:
    run = rows.a_run()
    event = rows.an_event(run, 1, type="approval_not_needed", payload=facts)
    with pytest.raises(TamperedRow, match="fact"):
        required_facts(event)
