"""The line in the worker's log that says that a run stopped and wants a person: for whoever watches logs, not pages."""

from collections.abc import Mapping
from typing import Any

import structlog

from checkpoints.core.status import STOPPED
from checkpoints.queue.leases import Lease

log = structlog.get_logger(__name__)


def log_stop(lease: Lease, status: str, error: Mapping[str, Any]) -> None:
    """Write `run_failed`, `run_unknown`, `run_incompatible` or `run_tampered`, after that was committed.

    The line names run, graph, code and node. The message may repeat values of the state, so it stands in the run's own
    log alone.
    """
    if status not in STOPPED:
        return
    log.error(
        f"run_{status}",
        run=str(lease.id),
        key=lease.key,
        graph=lease.graph,
        version=lease.version,
        code=error.get("code", ""),
        node=error.get("node", ""),
        error_type=error.get("type", ""),
    )
