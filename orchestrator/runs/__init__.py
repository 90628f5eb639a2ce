"""The verbs on runs, for people and programs: `from orchestrator import runs`. Pages,
API and commands call these.
"""

from orchestrator.run_access.keys import get
from orchestrator.runs.verbs import (
    Again,
    Queued,
    StartRequest,
    advance,
    cancel,
    input_of,
    resume,
    settle,
    start,
)
from orchestrator.runs.verbs import start_or_find as start_or_find
from orchestrator.travel.bulk_fork import fork_many
from orchestrator.travel.plan import Plan
from orchestrator.travel.verbs import fork, plan, replay, replay_report, rewind

__all__ = [
    "Again",
    "Plan",
    "Queued",
    "StartRequest",
    "advance",
    "cancel",
    "fork",
    "fork_many",
    "get",
    "input_of",
    "plan",
    "replay",
    "replay_report",
    "resume",
    "rewind",
    "settle",
    "start",
]
