"""The entries in the log of a process for runs that ended, or stopped and need a person,
for operators who watch logs and not pages. Stops are counted, too.
"""

from collections.abc import Mapping
from typing import Any

import structlog
from django.utils import timezone

from checkpoints.core import work_sums
from checkpoints.core.status import STOPPED
from checkpoints.models import Run
from checkpoints.queue.leases import Lease

log = structlog.get_logger(__name__)


def log_stop(run: Lease | Run, status: str, error: Mapping[str, Any]) -> None:
    """Log `run_failed`, `run_unknown`, `run_incompatible` or `run_tampered`, after that
    was committed, and count it.

    The entry names run, graph, code and node. The error's message may repeat values of
    the state, so only the run's own log has it.
    """
    # A run that rests, waits or ends needs no operator.
    if status not in STOPPED:
        return
    work_sums.count(f"runs_{status}")
    log.error(
        f"run_{status}",
        run=str(run.id),
        key=run.key,
        graph=run.graph,
        version=run.version,
        code=error.get("code", ""),
        node=error.get("node", ""),
        error_type=error.get("type", ""),
    )


def log_end(run: Lease | Run, status: str) -> None:
    """Log `run_ended`, after that was committed: which run, with which status, after how
    many supersteps, and how many seconds after it was first begun.
    """
    seconds = 0.0
    # A run may be cancelled before a worker begins it.
    if run.started_at is not None:
        seconds = (timezone.now() - run.started_at).total_seconds()
    log.info(
        "run_ended",
        run=str(run.id),
        graph=run.graph,
        version=run.version,
        status=str(status),
        supersteps=run.superstep,
        seconds=round(max(0.0, seconds), 3),
    )
