"""The ground: graphs, channels, writes, gates and supersteps as pure Python, which every
floor may import.

These are the names for authors of graphs and for those who build on the engine.
"""

from orchestrator.engine import registry
from orchestrator.engine.errors import CountersignError, NotDone
from orchestrator.engine.graph import END, START, Graph
from orchestrator.engine.graphs.gate import Fact, Gate, Proposal, Show, outcome_of
from orchestrator.engine.graphs.limit import Limit
from orchestrator.engine.graphs.reducer import (
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
from orchestrator.engine.graphs.retry import Interval, Retry
from orchestrator.engine.graphs.write import Command, Send, Write
from orchestrator.engine.play import Played, play
from orchestrator.engine.step.context import Context
from orchestrator.engine.step.frontier import ErrorInfo, Frontier
from orchestrator.engine.values.files import FileRef
from orchestrator.engine.values.identity import Task, idempotency_key, write_id

__all__ = [
    "END",
    "START",
    "Append",
    "Artifact",
    "Command",
    "Context",
    "CountersignError",
    "Custom",
    "ErrorInfo",
    "Fact",
    "FileRef",
    "First",
    "Frontier",
    "Gate",
    "Graph",
    "Interval",
    "Last",
    "Limit",
    "Longest",
    "Max",
    "Merge",
    "Min",
    "NotDone",
    "Played",
    "Proposal",
    "Replace",
    "Retry",
    "Send",
    "Show",
    "Sum",
    "Task",
    "Union",
    "Write",
    "idempotency_key",
    "outcome_of",
    "play",
    "registry",
    "write_id",
]
