"""What a soak has to show at its end: of each run what was lost and what was doubled,
from the rows and the outside.

Pure over what is given; `findings_of` gathers it. A run that has not ended is stuck,
and is judged no further.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from approvals.models import Decision
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.demo.claims.models import ClaimCase
from tests.soak import graphs

Calls = Mapping[tuple[str, str], int]
"""Of one run: (what, key) -> how often it was called."""


@dataclass(frozen=True)
class Findings:
    """All that one ended run left. `ticks` is what its atomic work left in the
    database.
    """

    notes: Sequence[str]
    answers: Sequence[str]
    calls: Calls
    ticks: int
    decided: Mapping[Any, Sequence[Any]]
    """Each decided write -> the values that its last revision's decisions gave, None
    for a rejection.
    """
    lines: Sequence[int]
    applied: int


@dataclass
class Verdict:
    """What was found wrong, a sentence each."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    repeats: int = 0
    """Calls of idempotent effects beyond the first, under the same key: allowed, and
    counted.
    """

    def count(self, what: str, have: int, want: int) -> None:
        """Compare a number."""
        if have < want:
            self.lost.append(f"{what}: {have} of {want}")
        if have > want:
            self.doubled.append(f"{what}: {have} instead of {want}")


def judge(run: str, findings: Findings, verdict: Verdict) -> None:
    """Add to the verdict what is wrong with one ended run."""
    _compare(run, findings.notes, graphs.expected(), verdict)
    _compare(run, findings.answers, _of_the_gate(findings), verdict)
    verdict.count(f"{run}: atomic work", findings.ticks, graphs.ROUNDS)
    for what in ("pay", "tell"):
        keys = {key: n for (kind, key), n in findings.calls.items() if kind == what}
        verdict.count(f"{run}: keys of {what}", len(keys), graphs.ROUNDS)
        again = sum(n - 1 for n in keys.values())
        if what == "tell" and again:
            verdict.doubled.append(
                f"{run}: {what} was called {again} times more than it may"
            )
        verdict.repeats += again if what == "pay" else 0
    verdict.count(f"{run}: settlements of its gate", findings.applied, 1)
    verdict.count(
        f"{run}: lines of its log", len(findings.lines), max(findings.lines, default=0)
    )


def _of_the_gate(findings: Findings) -> list[str]:
    """The answers that the decisions stand for."""
    content = [values[-1] for values in findings.decided.values()]
    notes = [note for one in content if isinstance(one, list) for note in one]
    return [*notes, "answered"] if any(one is not None for one in content) else []


def _compare(
    run: str, have: Sequence[str], want: Sequence[str], verdict: Verdict
) -> None:
    """Each note once; and where all are there, in their order."""
    for note in sorted({*have, *want}):
        verdict.count(f"{run}: note {note!r}", have.count(note), want.count(note))
    if sorted(have) == sorted(want) and list(have) != list(want):
        verdict.lost.append(f"{run}: the order of {list(have)}")


def judge_all(calls: Mapping[tuple[str, str, str], int]) -> Verdict:
    """The verdict on every run of the soak, from its rows and from what the outside
    counted.
    """
    verdict = Verdict()
    by_run = _by_run(calls)
    for run in Run.objects.filter(graph="soak").order_by("created_at"):
        if run.status != Status.COMPLETED:
            verdict.stuck.append(
                f"{run.key}: {run.status} at {run.at_node}: {run_error.stored_error(run)}"
            )
            continue
        judge(run.key, findings_of(run, by_run.pop(str(run.id), {})), verdict)
    known = set(map(str, Run.objects.values_list("id", flat=True)))
    verdict.doubled += [
        f"calls for run {run}, which nobody has" for run in by_run if run not in known
    ]
    return verdict


def _by_run(
    calls: Mapping[tuple[str, str, str], int],
) -> dict[str, dict[tuple[str, str], int]]:
    collected: dict[str, dict[tuple[str, str], int]] = {}
    for (what, run, key), n in calls.items():
        collected.setdefault(run, {})[what, key] = n
    return collected


def findings_of(run: Run, calls: Calls) -> Findings:
    """Return all findings about one ended run."""
    decided: dict[Any, list[Any]] = {}
    for decision in Decision.objects.filter(run=run.id).order_by(
        "revision", "event_seq"
    ):
        decided.setdefault(decision.write, []).append(
            read_value(decision, "final_value")
        )
    lines = RunEvent.objects.filter(run=run).order_by("seq")
    scratch = timeline.snapshot_of(Checkpoint.objects.get(id=run.head))["scratch"]
    return Findings(
        notes=scratch["notes"],
        answers=scratch["answers"],
        calls=calls,
        ticks=sum(
            ClaimCase.objects.filter(claim_id=str(run.id)[:36]).values_list(
                "changes", flat=True
            )
        ),
        decided=decided,
        lines=list(lines.values_list("seq", flat=True)),
        applied=lines.filter(type="gate_applied").count(),
    )
