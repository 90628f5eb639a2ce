"""`check_versions` never lies: random edits of random graphs under runs that wait for
people or for a time, failed, or are in the middle. What it said is what then becomes of
each; none is lost, none changes but by a migration, none passes what its version would
have gated, and no effect is repeated.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from hypothesis import event, given, note, seed
from hypothesis import strategies as st

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints import timeline
from checkpoints.core.status import ENDS, Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Checkpoint, Run, RunEvent, TaskResult
from checkpoints.models.task_result import Outcome
from checkpoints.queue import leases
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import discovery, runs
from orchestrator.engine import Graph, registry
from orchestrator.engine.versions.judgement import (
    GOES_ON,
    MIGRATED,
    NEEDS_MIGRATION,
    STUCK,
    WARNED,
)
from orchestrator.execution import executor, loop
from orchestrator.runs.forecast import STAYS, forecast_runs
from tests.engine.random_graphs import graphs
from tests.engine.reference import Spec
from tests.properties.drawing import CALLED, SEED, counts, drawn, people
from tests.properties.edits import PAUSE, Source, edited, marked, with_payment
from tests.properties.lost_gates import Gated

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
MANY = int(os.environ.get("COUNTERSIGN_DEPLOYMENTS", "100"))
"""Examples; `make sweep` draws 1,000."""
ENOUGH = 40
"""Examples in which runs of each status are met."""
SHARE = 1 if connection.vendor == "sqlite" else 3 if MANY > 100 else 10
MOST_ROUNDS = 12
MOST_WAITS = 30
RUNS = 2
"""Runs of an example, at different places."""
NUMBERS = count(1)
MISREAD = "misread"
"""What becomes of a run of which a value waits whose meaning a migration changes."""
OWN_FAILURES = {"RuntimeError", "CountersignError", "ConflictingWrites"}
"""With what nodes of random graphs, and the engine's limits, may end a run."""


@pytest.fixture
def ann(db: None) -> User:
    """The reviewer whom the random graphs name."""
    return User.objects.create(username="ann")


def test_what_becomes_of_each_run_is_what_check_versions_said(
    ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "LONGEST_PAUSE", PAUSE / 10)
    statuses: Counter[str] = Counter()

    @seed(SEED)
    @drawn(SHARE, many=MANY)
    @given(graphs(), st.integers(0, 2**32))
    def is_as_said(made: tuple[list[Spec], list[str]], dice: int) -> None:
        specs, starts = made
        # What `Gated` knows of a run holds without deadlines.
        for spec in specs:
            spec.deadline = ""
        specs = with_payment(specs, Random(f"{dice}/payment")) if dice % 2 else specs
        statuses.update(_deployed_under_runs(Source(specs, starts), dice, ann))

    is_as_said()
    if MANY // SHARE >= ENOUGH:
        assert {Status.QUEUED, Status.PAUSED, Status.WAITING, Status.FAILED} <= {
            *statuses
        }, statuses


def _deployed_under_runs(before: Source, dice: int, ann: User) -> list[str]:
    """Check one example. Gives in which statuses its runs were when the new version
    came.
    """
    name = f"deployed{next(NUMBERS)}"
    old = before.graph(name, dice)
    _deploy(old)
    lived = [
        _brought_to(kind, old, ann, dice)
        for kind in Random(f"{dice}/runs").sample(KINDS, RUNS)
    ]
    source, names = edited(before, name, dice)
    new = source.graph(name, dice)
    statuses = [run.status for run in lived]
    note(f"{names}: {statuses}")
    _deploy(new)
    said, waiting = _said(name)
    kept = [_Lived(run, before) for run in lived if run.status not in ENDS]
    became = Counter(lived_run.goes_on(source) for lived_run in kept)
    assert became == said or _failed_migrations(became, said, waiting)
    for verdict in {*said, *became}:
        event(f"{verdict}, {source.migration and 'migration' or ''}")
    for lived_run in kept:
        lived_run.ends(people(dice), ann, old, new)
    if set(names) == {"texts"}:
        assert set(said) <= {STAYS}
    return statuses


def _deploy(*versions: Graph) -> None:
    registry.clear()
    for graph in versions:
        registry.replace(graph)
    discovery.note_versions()


def _said(name: str) -> tuple[Counter[str], int]:
    """Return how many runs each verdict is of, and of how many values wait that a
    migration may misread.
    """
    collected = Counter[str]()
    waiting = 0
    for group in forecast_runs():
        if group.graph == name:
            collected[group.judgement.verdict] += group.number
            waiting += group.waiting
    return collected, waiting


def _failed_migrations(became: Counter[str], said: Counter[str], waiting: int) -> bool:
    """A migration opens the state, which a forecast does not: whether it fails, or
    changes what a value means that waits to be written, is known when it runs. Of how
    many runs any waits, the forecast says.
    """
    known = Counter(became)
    opened = {"failed migration": became["failed migration"], MISREAD: became[MISREAD]}
    known.subtract(opened)
    known[MIGRATED] += sum(opened.values())
    return sum(opened.values()) > 0 and +known == said and became[MISREAD] <= waiting


def _queued(run: Run, ann: User, dice: int) -> None:
    """Nobody has worked on it."""


def _rests(run: Run, ann: User, dice: int) -> None:
    runs.advance(run.id)


def _half(run: Run, ann: User, dice: int) -> None:
    """A few turns, then its worker was told to end."""
    left = Random(f"{dice}/turns").randint(1, 3)

    def draining() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    claim = leases.claim_one(run.id)
    assert claim is not None
    loop.run_slice(claim.id, claim.epoch, draining=draining)


def _signed(run: Run, ann: User, dice: int) -> None:
    """People decided, and no worker has looked."""
    people(dice)(runs.advance(run.id), ann)


def _further(run: Run, ann: User, dice: int) -> None:
    """Sign what the resting run asks, and work on it."""
    _signed(run, ann, dice)
    runs.advance(run.id)


KINDS: list[Callable[[Run, User, int], None]] = [
    _queued,
    _rests,
    _half,
    _signed,
    _further,
]


def _brought_to(
    kind: Callable[[Run, User, int], None], graph: Graph, ann: User, dice: int
) -> Run:
    run = runs.start(graph.name, {})
    kind(run, ann, dice)
    run.refresh_from_db()
    return run


class _Lived:
    """What a run was before the deployment."""

    def __init__(self, run: Run, source: Source) -> None:
        self.run, self.state, self.gated = (
            run,
            timeline.head_state(run.id),
            Gated(source, run),
        )
        self.pinned, self.rows = (
            run.fingerprint,
            Checkpoint.objects.filter(run=run, kept=True).count(),
        )
        done = TaskResult.objects.filter(run=run, outcome=Outcome.DONE)
        self.done = {row.task for row in done}
        self.effects = self._effects()
        kept_results = (
            timeline.head_document(run.id)["open"].get("results", {}).values()
        )
        requests = ApprovalRequest.objects.filter(
            run=run, status__in=[RequestStatus.OPEN, RequestStatus.SETTLED]
        )
        self.has_lines_waiting = requests.exists() or any(
            result["output"] for result in kept_results
        )

    def _effects(self) -> dict[str, int]:
        called = {task: n for (task, _), n in CALLED[self.run.id].items()}
        return {
            task: n
            for task, n in {**called, **counts(self.run)}.items()
            if task in self.done
        }

    def goes_on(self, new: Source) -> str:
        """Let a worker with the new code take it; gives what became of it, in the words
        of the forecast.
        """
        run = self.run
        if run.status in (Status.FAILED, Status.INCOMPATIBLE):
            runs.resume(run.id)
        elif run.status in (Status.PAUSED, Status.WAITING):
            Run.objects.filter(id=run.id).update(status=Status.QUEUED, due_at=None)
        claim = leases.claim_one(run.id)
        assert claim is not None
        turns = iter([False, True])
        loop.run_slice(claim.id, claim.epoch, draining=lambda: next(turns, True))
        run.refresh_from_db()
        if run.status == Status.INCOMPATIBLE:
            return self._refused()
        if run.fingerprint == self.pinned:
            return STAYS
        assert not (new.marks and self.has_lines_waiting), (
            "a line that waits would be written without the mark"
        )
        return self._adopted()

    def _refused(self) -> str:
        error = stored_error(self.run)
        assert error is not None
        assert timeline.head_state(self.run.id) == self.state, (
            "a run that is stopped stays as it was"
        )
        if error["because"]:
            return (
                MISREAD
                if "a value of version 1 waits to be written" in error["because"]
                else "failed migration"
            )
        breaking = [
            change for change in error["changes"] if change["weight"] == "breaking"
        ]
        assert breaking
        return NEEDS_MIGRATION if all(one["migratable"] for one in breaking) else STUCK

    def _adopted(self) -> str:
        facts = read_value(
            RunEvent.objects.get(run=self.run, type="version_changed"), "payload"
        )
        row = Checkpoint.objects.get(run=self.run, source="version")
        state = timeline.state_at(row.id)
        kept = {
            name: value
            for name, value in self.state["scratch"].items()
            if name in state["scratch"]
        }
        new = {
            name: value
            for name, value in state["scratch"].items()
            if name not in self.state["scratch"]
        }
        if facts["migrations"]:
            held = "log" in facts["held"]
            log = self.state["scratch"]["log"]
            changed = "log" in facts["changed"] and not held
            assert state["scratch"]["log"] == (marked(log) if changed else log)
            return MIGRATED
        assert {name: state["scratch"][name] for name in kept} == self.state[
            "scratch"
        ], "nothing changed"
        assert new in ({}, {"more": "new"})
        return WARNED if facts["warnings"] else GOES_ON

    def ends(self, decide: Any, ann: User, old: Graph, new: Graph) -> None:
        """Bring the run to its end, on the new version or, where that cannot take it,
        on its own.
        """
        run = runs.get(self.run.id)
        if run.status == Status.INCOMPATIBLE:
            _deploy(*([old, new] if old.version != new.version else [old]))
            runs.resume(run.id)
        for _ in range(MOST_ROUNDS):
            run = _advanced(run)
            if not decide(run, ann):
                break
        error = stored_error(run)
        assert run.status in {*ENDS, Status.PAUSED, Status.FAILED}, error
        assert error is None or error["code"] in (
            "node_failed",
            "runaway",
            "conflicting_writes",
        ), error
        assert (
            error is None
            or error["code"] != "node_failed"
            or error["type"] in OWN_FAILURES
        ), error
        assert self._effects() == self.effects, "no effect that was done is done again"
        assert verify_run(run.id) == []
        assert self.gated.passed() == []
        _deploy(new)


def _advanced(run: Run) -> Run:
    """The run, worked on until it rests: where it waits for a time, that comes."""
    for _ in range(MOST_WAITS):
        run = runs.advance(run.id)
        if run.status != Status.WAITING:
            break
        time.sleep(PAUSE)
    return run
