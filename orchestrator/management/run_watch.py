"""Following a run from a terminal until it rests or ends. `start_run --wait` and `resume_run --wait` use it."""

import time
from collections.abc import Callable
from uuid import UUID

from checkpoints.models import Run
from orchestrator.health import worker_alive
from orchestrator.management.command_line import WORKING, progress

_PAUSE = 0.2
_PATIENCE = 5.0
"""Seconds that a queued run may wait before somebody is told that no worker is alive."""


def watch_run(run_id: UUID, tell: Callable[[str], None], warn: Callable[[str], None]) -> Run:
    """Tell each change of status, node and progress, until the run neither waits for a worker nor has one."""
    facts, begun, warned = "", time.monotonic(), False
    while True:
        run = Run.objects.defer("input", "seal").get(id=run_id)
        line = _line(run)
        if line != facts:
            tell(line)
            facts = line
        if run.status not in WORKING:
            return run
        if not warned and time.monotonic() - begun > _PATIENCE and not worker_alive():
            warn("no worker is alive; start one with: manage.py worker")
            warned = True
        time.sleep(_PAUSE)


def _line(run: Run) -> str:
    where = f" at {run.at_node}" if run.at_node else ""
    return f"{run.status}, superstep {run.superstep}{where}{f': {progress(run)}' if run.progress else ''}"
