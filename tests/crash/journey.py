"""What must be the same after a crash at any point: the hash of a run's journey, without ids, times and attempts."""

from typing import Any

from approvals.models import ApprovalRequest
from checkpoints import ledger, writes
from checkpoints.models import Checkpoint, PendingWrite, Run
from checkpoints.packed import unpack
from orchestrator.engine import canonical, registry
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.plan import skipped


def journey(run: Run) -> dict[str, Any]:
    """Input, state, pending writes, tokens, visits, skipped nodes and outcomes of a run as it stands."""
    run.refresh_from_db()
    payload = ledger.payload_of(Checkpoint.objects.get(id=run.head))
    frontier = Frontier.from_json(payload.frontier)
    pending = writes.newest(PendingWrite.objects.filter(run=run)).order_by("node", "visit", "index", "position")
    outcomes = ApprovalRequest.objects.filter(run=run).order_by("node", "visit", "index")
    return {
        "status": run.status,
        "input": {k: v for k, v in unpack(run.input).items() if k != "folder"},
        "state": payload.state,
        "pending": [[w.task, w.position, w.channel, unpack(w.value), w.revision] for w in pending],
        "tokens": frontier.tokens,
        "visits": frontier.visits,
        "waiting": payload.frontier["waiting"],
        "skipped": skipped(registry.by_fingerprint(run.fingerprint), frontier),
        "outcomes": [[r.task, r.outcome] for r in outcomes],
    }


def journey_hash(run: Run) -> str:
    """SHA-256 over the canonical bytes of `journey`."""
    return canonical.digest(canonical.dumps(journey(run)))
