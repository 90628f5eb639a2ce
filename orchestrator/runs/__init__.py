"""What people and programs ask of runs: `from orchestrator import runs`. Pages, API and commands call these."""

from orchestrator.runs.verbs import (
    Queued,
    advance,
    cancel,
    get,
    input_of,
    resume,
    settle,
    start,
    start_or_find,
)

__all__ = ["Queued", "advance", "cancel", "get", "input_of", "resume", "settle", "start", "start_or_find"]
