"""What must be the same after a crash at any point: the hash of a run's journey,
without ids, times and attempts.
"""

from typing import Any

from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.ledger import pending_writes
from checkpoints.models import (
    Checkpoint,
    MemoryLanding,
    MemoryTrace,
    PendingWrite,
    Run,
    RunEvent,
    RunMetadata,
    TaskFigure,
)
from checkpoints.models.notes import OF_RUN
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import registry
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.plan import skipped
from orchestrator.engine.values import canonical

ROUNDS = ("superstep", "settlement")
"""Sources whose rows are part of a journey; how many failures it met on its way is not.
"""


def journey(run: Run) -> dict[str, Any]:
    """Input, scratch, artifacts, pending writes, tokens, visits, skipped nodes,
    outcomes and landed memory of a run.
    """
    run.refresh_from_db()
    document = timeline.snapshot_of(Checkpoint.objects.get(id=run.head))
    frontier = document["frontier"]
    return {
        "status": run.status,
        "input": read_value(run, "input"),
        "scratch": document["scratch"],
        "artifacts": document["artifacts"],
        "pending": _pending(run),
        "tokens": {
            name: frontier[name]
            for name in ("tokens", "sends", "waiting", "rejected", "written")
        },
        "errors": _without_attempts(frontier["errors"]),
        "visits": [frontier["visits"], frontier["visited"]],
        "skipped": skipped(
            registry.by_fingerprint(run.fingerprint), Frontier.from_json(frontier)
        ),
        "outcomes": _outcomes(run),
        "memory": _landed(run),
        "noted": _noted(run),
    }


def journey_hash(run: Run) -> str:
    """SHA-256 over the canonical bytes of `journey`."""
    return canonical.digest(canonical.dumps(journey(run)))


def _pending(run: Run) -> list[Any]:
    """Return the newest revision of each held write, whether its gate is settled or not."""
    newest = pending_writes.newest(PendingWrite.objects.filter(run=run))
    newest = newest.order_by("line", "node", "visit", "index", "position")
    return [
        [w.task, w.position, w.channel, read_value(w, "value"), w.revision]
        for w in newest
    ]


def _noted(run: Run) -> list[Any]:
    """Return metadata of the run and of its checkpoints, and each task's figures; at which
    checkpoint depends on failures.
    """
    metadata = [
        [row.seq == OF_RUN, row.name, read_value(row, "value")]
        for row in RunMetadata.objects.filter(run=run)
    ]
    figures = [
        [row.task, row.name, row.millionths]
        for row in TaskFigure.objects.filter(run=run)
    ]
    return [sorted(metadata, key=str), sorted(figures)]


def _landed(run: Run) -> list[Any]:
    """Return what the run changed in memory, in order, and what is remembered now."""
    rows = MemoryLanding.objects.filter(run=run).order_by("id")
    changes = [
        [row.task, row.n, row.namespace, row.key, row.version, row.deleted]
        for row in rows
    ]
    traces = [
        MemoryTrace.objects.get(namespace=row.namespace, key=row.key) for row in rows
    ]
    return [
        [*change, read_value(trace, "content")]
        for change, trace in zip(changes, traces, strict=True)
    ]


def _without_attempts(errors: dict[str, Any]) -> dict[str, Any]:
    return {
        edge: [{**one, "attempt": 0} for one in carried]
        for edge, carried in errors.items()
    }


def _outcomes(run: Run) -> dict[str, Any]:
    """Return what came of each gate, and of each node in each round, in their order."""
    gates = ApprovalRequest.objects.filter(run=run).order_by(
        "line", "node", "visit", "index", "ordinal"
    )
    saved = RunEvent.objects.filter(run=run, type="checkpoint_saved").order_by("seq")
    rounds = [line for line in map(_payload, saved) if line["source"] in ROUNDS]
    return {
        "gates": [[gate.task, gate.status, gate.outcome] for gate in gates],
        "rounds": [
            [line["superstep"], line["source"], line["nodes"]] for line in rounds
        ],
    }


def _payload(line: RunEvent) -> dict[str, Any]:
    payload: dict[str, Any] = read_value(line, "payload")
    return payload
