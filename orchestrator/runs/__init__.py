"""What people and programs ask of runs: `from orchestrator import runs`. Pages, API and commands call these."""

from orchestrator.runs.verbs import Queued, StartRequest, advance, cancel, get, input_of, resume, settle, start
from orchestrator.runs.verbs import start_or_find as start_or_find

__all__ = ["Queued", "StartRequest", "advance", "cancel", "get", "input_of", "resume", "settle", "start"]
