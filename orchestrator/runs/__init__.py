"""What people and programs ask of runs: `from orchestrator import runs`. Pages, API and commands call these."""

from orchestrator.runs.bulk_fork import fork_many
from orchestrator.runs.keys import get
from orchestrator.runs.travel import fork, plan, replay, replay_report, rewind
from orchestrator.runs.travel_plan import Plan
from orchestrator.runs.verbs import Again, Queued, StartRequest, advance, cancel, input_of, resume, settle, start
from orchestrator.runs.verbs import start_or_find as start_or_find

__all__ = [
    "Again", "Plan", "Queued", "StartRequest", "advance", "cancel", "fork", "fork_many", "get", "input_of", "plan",
    "replay", "replay_report", "resume", "rewind", "settle", "start",
]  # fmt: skip
