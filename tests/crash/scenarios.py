"""The scenarios of the sweep: a graph, what people do whenever its run rests, and what
must be true outside at its end.

`live` tells one of them from start to end, while a trouble falls on whoever is acting;
who comes next looks at the rows and does what is left, as a person or a worker would.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import QuerySet

from approvals import deadlines
from approvals.models import ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.journal import results as journal
from checkpoints.models import Checkpoint, MemoryTrace, Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.queue import leases, notify
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.demo.claims.models import ClaimCase
from orchestrator.engine import Task
from orchestrator.execution import loop
from orchestrator.runs import unknown_outcomes
from tests.crash import graphs
from tests.support import run_actions
from tests.support.processes import calls

LONGEST = 80
"""Acts after which a run that has not ended will not."""
LONG_AGO = "2000-01-01T00:00Z"
LEAVES = {"letter": "letter", "knock": "knocked", "post": "posted"}
"""Effects that only a person can judge, and the line that each leaves outside."""

_number = itertools.count()


class Trouble(Protocol):
    """What befalls those who act."""

    def may_fail(self) -> bool:
        """Return whether it explains that the run has failed, which is then resumed."""

    def life(self) -> AbstractContextManager[None]:
        """Open a block in which one process or person acts. It ends quietly if trouble
        ended it.
        """


def nobody(run: Run, by: User) -> bool:
    """No person has anything to do."""
    return False


@dataclass(frozen=True)
class Scenario:
    """`people` does the next thing that people have to do while the run rests, and says
    whether there was one.
    """

    graph: str
    people: Callable[[Run, User], bool] = nobody
    end: str = Status.COMPLETED
    counted: Mapping[str, int] = field(default_factory=dict)
    """Lines outside by what they begin with: so many different ones there are at the
    end.
    """
    once: frozenset[str] = frozenset()
    """Of those the ones that may be there only once each: effects that are not
    idempotent.
    """
    settings: Mapping[str, Any] = field(default_factory=dict)
    input: Mapping[str, Any] | None = None
    """Given to the run; by default the folder of its effects."""


def _signs(*verdicts: Any, requests: int | None = None) -> Callable[[Run, User], bool]:
    """Return a person who gives these verdicts, one for each write, or approves all if
    none are named.
    """

    def people(run: Run, by: User) -> bool:
        if run.status != Status.PAUSED:
            return False
        if verdicts:
            run_actions.sign(run, by, list(verdicts))
        else:
            run_actions.sign_open(run, by, "approve", requests=requests)
        return True

    return people


def _cancels(run: Run, by: User) -> bool:
    """Cancel the run once it waits."""
    if run.status != Status.PAUSED:
        return False
    runs.cancel(run.id, by=by, reason="no longer needed")
    return True


def _wakes_then_signs(run: Run, by: User) -> bool:
    """Wake the run although nothing was decided, then sign: it must find nothing to do,
    and rest again.
    """
    if run.status == Status.PAUSED and graphs.misbehaves("nudge"):
        with transaction.atomic():
            notify.wake(run.id)
        return True
    return _signs()(run, by)


def _lets_time_run_out(run: Run, by: User) -> bool:
    """Nobody signs before the deadline; whoever is asked a second time approves."""
    if run.status == Status.FAILED:
        runs.resume(run.id, by=by)
        return True
    if run.status != Status.PAUSED:
        return False
    requests = ApprovalRequest.objects.filter(run=run)
    if requests.filter(ordinal=1).exists():
        run_actions.sign_open(run, by, "approve")
        return True
    time.sleep(0.002)
    return deadlines.meet_due_deadlines(run.id)


def _mend_and_resume(run: Run, by: User) -> bool:
    if run.status != Status.FAILED:
        return False
    graphs.BROKEN.clear()
    runs.resume(run.id, by=by)
    return True


def _settle(run: Run, by: User) -> bool:
    """Look outside, and say what is true there."""
    if run.status != Status.UNKNOWN:
        return False
    row = unknown_outcomes.unknown_tasks(run)[0]
    happened = bool(calls(Path(runs.input_of(run)["folder"]), LEAVES[row.node]))
    # The thread of the attempt is gone with the process that died, which here is still
    # this one.
    journal.note_thread_ended(
        run.id, run.line, Task(row.node, row.visit, row.index), row.attempt
    )
    output = {"notes": [_note_of(run, row)]} if happened else None
    runs.settle(
        run.id, row.task, happened=happened, output=output, by=by, reason="looked"
    )
    return True


def _note_of(run: Run, row: TaskResult) -> str:
    """The note that the effect would have left in the run."""
    note = LEAVES[row.node]
    # What it was called with is what the state was when it was prepared.
    return f"{note}  0" if run.graph == "c_called" else note


def _signs_or_settles(run: Run, by: User) -> bool:
    """Approve one call after another, and say whether a call that died happened."""
    return _settle(run, by) or _signs(requests=1)(run, by)


def _leaves_and_is_followed(run: Run, by: User) -> bool:
    """Sign as a person who leaves in the same moment; the next one who is asked
    approves.
    """
    if run.status != Status.PAUSED:
        return _settle(run, by)
    if ApprovalRequest.objects.filter(run=run, kind="authority").exists():
        run_actions.sign_open(run, by, "approve")
        return True
    leaver, _ = User.objects.get_or_create(username="leaver")
    with transaction.atomic():
        run_actions.reviewer(leaver)
        run_actions.sign_open(run, leaver, "approve")
        User.groups.through.objects.filter(user_id=leaver.pk).delete()
    return True


def _signs_or_says_yes(run: Run, by: User) -> bool:
    """Approve what is asked, and allow a run that stopped before a repeated effect to
    go on.
    """
    if run.status != Status.PAUSED:
        return False
    if ApprovalRequest.objects.filter(run=run, status="open").exists():
        run_actions.sign_open(run, by, "approve")
    else:
        runs.resume(run.id, allow_effects=["pay"], by=by)
    return True


def _rewinds(run: Run, by: User) -> bool:
    """Rewind the completed run to its beginning once, with a patch of what was signed."""
    if run.status == Status.COMPLETED and run.line == 1:
        runs.rewind(
            run.id,
            f"{run.key}:initial",
            patch={"scratch": {"letter": "patched"}},
            by=by,
        )
        return True
    return _signs_or_says_yes(run, by)


def _forks(run: Run, by: User) -> bool:
    """Fork the completed run once from where it asked, with another answer, and act on
    the fork.
    """
    if run.status != Status.COMPLETED:
        return _signs_or_says_yes(run, by)
    fork = _forks_of(run).first()
    if fork is None:
        runs.fork(
            f"{run.key}:at-1",
            key=f"{run.key}-fork",
            answers={"ask": {"letter": "otherwise"}},
            by=by,
        )
        return True
    return _goes_on(fork) or _signs_or_says_yes(fork, by)


def _replays(run: Run, by: User) -> bool:
    """Replay the completed run once from its beginning, and act on the replay."""
    if run.status != Status.COMPLETED:
        return _signs()(run, by)
    replay = _forks_of(run).first()
    if replay is None:
        runs.replay(f"{run.key}:initial", by=by)
        return True
    return _goes_on(replay)


def _forks_of(run: Run) -> QuerySet[Run]:
    """Return its forks and replays."""
    return Run.objects.filter(
        origin_checkpoint__in=Checkpoint.objects.filter(run=run.id).values("id")
    )


def _goes_on(fork: Run) -> bool:
    """A worker takes it where there is something to do."""
    if fork.status not in (Status.QUEUED, Status.RUNNING, Status.WAITING):
        return False
    _time_passes(fork.key)
    runs.advance(fork.id)
    return True


SCENARIOS = {
    "linear": Scenario("c_linear"),
    "branch": Scenario("c_branch"),
    "loop": Scenario("c_loop"),
    "parallel with each reducer": Scenario("c_parallel"),
    "fan-out": Scenario("c_fan_out"),
    "gate": Scenario("c_gate", _signs("approve", ("edit", ["edited"]), "reject")),
    "gate rejected": Scenario(
        "c_gate", _signs("reject", "reject", "reject"), end=Status.REJECTED
    ),
    "gate beside a moving branch": Scenario("c_beside", _signs()),
    "two gates one by one": Scenario("c_two_gates", _signs(requests=1)),
    "two gates at once": Scenario("c_two_gates", _signs()),
    "woken for nothing": Scenario("c_gate", _wakes_then_signs),
    "deadline that rejects": Scenario(
        "c_deadline_reject", _lets_time_run_out, end=Status.REJECTED
    ),
    "deadline that approves": Scenario("c_deadline_approve", _lets_time_run_out),
    "deadline that fails": Scenario("c_deadline_fail", _lets_time_run_out),
    "cancelled": Scenario("c_beside", _cancels, end=Status.CANCELLED),
    "retry": Scenario(
        "c_retry", _settle, counted={"knocked": 1}, once=frozenset({"knocked"})
    ),
    "retry after a wait": Scenario("c_far"),
    "failure": Scenario("c_failure", _mend_and_resume, counted={"paid": 1}),
    "error edge": Scenario("c_error_edge"),
    "drain": Scenario(
        "c_drain", counted={"paid": 1, "beside": 1}, settings={"GRACE_SECONDS": 0.05}
    ),
    "memory": Scenario("c_remembering"),
    "memory in each mode and at a gate": Scenario(
        "c_memory", _signs("approve", ("edit", {"content": 7}), "approve")
    ),
    "metadata and figures": Scenario("c_noting"),
    "effects": Scenario(
        "c_effects",
        _settle,
        counted={"paid": 1, "letter": 1},
        once=frozenset({"letter"}),
    ),
    "unknown": Scenario(
        "c_unknown", _settle, counted={"posted": 1}, once=frozenset({"posted"})
    ),
    "atomic": Scenario("c_atomic"),
    "recovery points": Scenario("c_recovery"),
    "slices": Scenario("c_loop", settings={"SLICE_SECONDS": 1e-6}),
    "heartbeat": Scenario("c_reporting"),
    "called once people approved": Scenario(
        "c_called",
        _signs_or_settles,
        counted={"paid": 1, "letter": 1, "knocked": 1},
        once=frozenset({"letter", "knocked"}),
    ),
    "asked again before an effect": Scenario(
        "c_authority",
        _leaves_and_is_followed,
        counted={"paid": 1, "letter": 1},
        once=frozenset({"letter"}),
    ),
    "rewound": Scenario("c_travel", _rewinds, counted={"paid": 2}),
    "forked": Scenario("c_travel", _forks, counted={"paid": 2}),
    "replayed": Scenario("c_travel", _replays, counted={"paid": 1}),
}


def live(scenario: Scenario, *, by: User, folder: Path, trouble: Trouble) -> Run:
    """The run from its start to its end, with trouble on its way. Fails where it does
    not end.
    """
    (folder / "outside.log").unlink(missing_ok=True)
    MemoryTrace.objects.filter(namespace="sweep").delete()
    graphs.fresh()
    key = f"{scenario.graph}-{next(_number)}"
    run = None
    for _ in range(LONGEST):
        acted = True
        with trouble.life():
            acted = _act(scenario, run, key=key, folder=folder, by=by)
        run = Run.objects.filter(key=key).first()
        if run and run.status == Status.FAILED and trouble.may_fail():
            run = runs.resume(run.id, by=by)
            acted = True
        if run and not acted:
            return run
        _time_passes(key)
    raise AssertionError(f"the run does not end: {run and (run.status, run.at_node)}")


def _act(
    scenario: Scenario, run: Run | None, *, key: str, folder: Path, by: User
) -> bool:
    """Do what is next: start the run, claim it and work a slice, or act as people.
    Returns False if nothing is left.
    """
    if run is None:
        run_input = (
            {"folder": str(folder)} if scenario.input is None else scenario.input
        )
        runs.start(
            scenario.graph,
            run_input,
            key=key,
            by=by,
            metadata={"customer": "ACME", "tries": 3},
        )
        return True
    if run.status not in (Status.QUEUED, Status.RUNNING, Status.WAITING):
        return scenario.people(run, by)
    graphs.DRAIN.clear()
    claim = leases.claim_one(run.id)
    if claim:
        loop.run_slice(claim.id, claim.epoch, draining=graphs.DRAIN.is_set)
    return True


def _time_passes(key: str) -> None:
    """Leases that somebody left behind expire, and waits are over."""
    run = Run.objects.filter(key=key)
    run.filter(status=Status.RUNNING).update(lease_until=LONG_AGO)
    run.filter(status=Status.WAITING).update(due_at=LONG_AGO)
    connection.close_if_unusable_or_obsolete()


def nothing_is_lost_or_doubled(scenario: Scenario, run: Run, folder: Path) -> None:
    """Assert what rows and outside must show at the end, whatever happened on the way."""
    run.refresh_from_db()
    assert run.status == scenario.end
    for what, number in scenario.counted.items():
        events = calls(folder, what)
        assert len(set(events)) == number, (what, events)
        assert what not in scenario.once or len(events) == number, (what, events)
    assert verify_run(run.id) == []
    for fork in _forks_of(run):
        assert fork.status == scenario.end
        assert verify_run(fork.id) == []
    assert not TaskResult.objects.filter(
        run=run, outcome__in=[Outcome.OPEN, Outcome.UNKNOWN]
    ).exists()
    assert not ApprovalRequest.objects.filter(
        run=run, status__in=["open", "settled"]
    ).exists()
    if scenario.graph == "c_atomic":
        assert ClaimCase.objects.get(claim_id=str(run.id)[:36]).changes == 1
    decided = Decision.objects.filter(run=run.id).values_list("write", "revision")
    assert len(decided) == len(set(decided)), "a decision was written twice"
    events = list(
        RunEvent.objects.filter(run=run).order_by("seq").values_list("seq", flat=True)
    )
    assert events == list(range(1, run.event_seq + 1)), "the log has a gap"
