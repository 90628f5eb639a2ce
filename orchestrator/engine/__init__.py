"""The ground: what a graph, a channel, a write, a gate and a superstep are. Pure Python; everybody may import it.

These are the names for authors of graphs and for those who build on the engine.
"""

from orchestrator.engine import registry
from orchestrator.engine.context import Context
from orchestrator.engine.errors import CountersignError, NotDone
from orchestrator.engine.files import FileRef
from orchestrator.engine.frontier import ErrorInfo, Frontier
from orchestrator.engine.gate import Fact, Gate, Proposal, Show, outcome_of
from orchestrator.engine.graph import END, START, Graph
from orchestrator.engine.identity import Task, idempotency_key, write_id
from orchestrator.engine.play import Played, play
from orchestrator.engine.reducer import (
    Append,
    Artifact,
    Custom,
    First,
    Last,
    Longest,
    Max,
    Merge,
    Min,
    Replace,
    Sum,
    Union,
)
from orchestrator.engine.retry import Interval, Retry
from orchestrator.engine.write import Command, Send, Write

__all__ = [
    "END", "START", "Append", "Artifact", "Command", "Context", "CountersignError", "Custom", "ErrorInfo", "Fact",
    "FileRef", "First", "Frontier", "Gate", "Graph", "Interval", "Last", "Longest", "Max", "Merge", "Min", "NotDone",
    "Played", "Proposal", "Replace", "Retry", "Send", "Show", "Sum", "Task", "Union", "Write", "idempotency_key",
    "outcome_of", "play", "registry", "write_id",
]  # fmt: skip
