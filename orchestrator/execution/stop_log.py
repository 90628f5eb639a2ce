"""The entry in the worker's log for a run that stopped and needs a person, for
operators who watch logs and not pages.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from checkpoints.core.status import STOPPED
from checkpoints.queue.leases import Lease

log = structlog.get_logger(__name__)


def log_stop(lease: Lease, status: str, error: Mapping[str, Any]) -> None:
    """Log `run_failed`, `run_unknown`, `run_incompatible` or `run_tampered`, after that
    was committed.

    The entry names run, graph, code and node. The error's message may repeat values of
    the state, so only the run's own log has it.
    """
    # A run that rests, waits or ends needs no operator.
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
