"""W11 through the public API: starts, and signatures of four writes."""

import time
from statistics import median
from typing import Any

from django.contrib.auth import get_user_model

from approvals import reviews
from checkpoints.models import PendingWrite
from orchestrator import runs

WRITES = 4


def w11(times: int) -> dict[str, Any]:
    """Milliseconds from the call to the return of a start, and of a signature of four
    writes.
    """
    user, _ = get_user_model().objects.get_or_create(username="reviewer")
    starts = []
    signatures = []
    for _ in range(times):
        begun = time.perf_counter()
        run = runs.start("bench_w11", {"proposals": WRITES})
        starts.append(1000 * (time.perf_counter() - begun))

        run = runs.advance(run.id)
        assert run.status == "paused", run.status
        decisions = _approvals(run.id)
        assert len(decisions) == WRITES, len(decisions)

        begun = time.perf_counter()
        reviews.sign(run.id, decisions, by=user)
        signatures.append(1000 * (time.perf_counter() - begun))
    return {"start_ms": median(starts), "sign_ms": median(signatures)}


def _approvals(run: Any) -> list[dict[str, str]]:
    decisions = []
    for row in PendingWrite.objects.filter(run=run):
        decisions.append(
            {"write": str(row.write), "hash": row.hash, "verdict": "approve"}
        )
    return decisions
