"""What is kept of an open superstep: one with a failed, unknown or postponed task. Values only; the runner stores them.

It stays open until each of its tasks has a result; then all are reduced in declared order, as if nothing had been.
"""

from dataclasses import field
from typing import Any

from checkpoints.journal.results import Entry
from checkpoints.models.task_result import Outcome
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.effect import DIVERGED
from orchestrator.engine.errors import CountersignError, IncompatibleGraph, text_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.plan import ErrorInfo
from orchestrator.engine.reduce import HeldWrite, Output, Result
from orchestrator.engine.trace import is_memory
from orchestrator.execution.secrets import writable


@frozen
class FinishedTask:
    """A task that is finished: what it returned, or the error that its error edge carries; and what its gate said.

    `guard` names the node whose gate holds it, where that is not its own. `reads` are the channels that its check read;
    None where nobody wrote them down. `diverged`: why a replay ends here, as {why, path}.
    """

    output: Output | None = None
    error: ErrorInfo | None = None
    gated: bool = False
    passed: bool = False
    why: str | None = None
    guard: str | None = None
    attempt: int = 1
    ms: int = 0
    diverged: dict[str, Any] | None = None
    reads: tuple[str, ...] | None = None

    def result(self) -> Result:
        """As the engine reduces it."""
        if self.diverged is not None:
            return Result(outcome=DIVERGED)
        return Result(self.output, self.error, self.gated, "approved" if self.passed else None)

    @property
    def remembers(self) -> bool:
        """Whether it lands something in memory."""
        return self.output is not None and any(is_memory(write.channel) for write in self.output.writes)

    def held(self, task: Task) -> list[HeldWrite]:
        """The writes that its gate holds."""
        return self.result().held(task)

    def to_json(self) -> dict[str, Any]:
        return {
            "output": self.output.to_json() if self.output else None,
            "error": self.error.to_json() if self.error else None,
            "gated": self.gated,
            "passed": self.passed,
            "why": self.why,
            "guard": self.guard,
            "attempt": self.attempt,
            "ms": self.ms,
            **({} if self.diverged is None else {"diverged": self.diverged}),
            **({} if self.reads is None else {"reads": list(self.reads)}),
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "FinishedTask":
        output = Output.from_json(kept["output"]) if kept["output"] is not None else None
        error = ErrorInfo.from_json(kept["error"]) if kept["error"] is not None else None
        own = {name: kept[name] for name in ("gated", "passed", "why", "guard", "attempt", "ms")}
        reads = None if kept.get("reads") is None else tuple(kept["reads"])
        return cls(output, error, **own, diverged=kept.get("diverged"), reads=reads)


@frozen
class OpenSuperstep:
    """The open superstep of a failure checkpoint. `asked` are tasks whose requests are open already; `tries` count
    the attempts since a person last acted, for tasks that wait for their next one; `due` says when that is, in seconds
    since the epoch. `without` are nodes that were left out of it, for they waited for a yes.
    """

    results: dict[Task, FinishedTask]
    asked: frozenset[Task]
    tries: dict[Task, int]
    superstep: int
    due: dict[Task, float] = field(default_factory=dict)
    without: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        return {
            **({"without": sorted(self.without)} if self.without else {}),
            "superstep": self.superstep,
            "results": {str(task): kept.to_json() for task, kept in self.results.items()},
            "asked": sorted(str(task) for task in self.asked),
            "tries": {str(task): n for task, n in self.tries.items()},
            "due": {str(task): moment for task, moment in self.due.items()},
        }

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> "OpenSuperstep":
        """The open superstep of a payload; `NOTHING_OPEN` where no superstep is open."""
        if not kept:
            return NOTHING_OPEN
        return cls(
            results={Task.parse(task): FinishedTask.from_json(one) for task, one in kept.get("results", {}).items()},
            asked=frozenset(Task.parse(task) for task in kept.get("asked", [])),
            tries={Task.parse(task): n for task, n in kept.get("tries", {}).items()},
            superstep=kept.get("superstep", 0),
            due={Task.parse(task): moment for task, moment in kept.get("due", {}).items()},
            without=frozenset(kept.get("without", ())),
        )


NOTHING_OPEN = OpenSuperstep({}, frozenset(), {}, superstep=0)


def unsettled_tasks(graph: Compiled, entries: dict[Task, Entry]) -> list[Task]:
    """Tasks with an open intent whose attempt may have acted: neither idempotent nor atomic."""
    return [
        task
        for task, entry in entries.items()
        if entry.outcome == Outcome.UNKNOWN or (entry.outcome == Outcome.OPEN and not safe_again(graph, task))
    ]


def safe_again(graph: Compiled, task: Task) -> bool:
    """Whether an attempt that ended without a result may simply be made again."""
    return graph.nodes[task.node].safe_again


def error_json(error: BaseException, **facts: Any) -> dict[str, Any]:
    """An error as a run's row keeps it: code, type and message; never the locals of a frame."""
    code = error.code if isinstance(error, CountersignError) else "node_failed"
    found = error.facts if isinstance(error, CountersignError) else {}
    texts = {name: writable(str(value)) for name, value in found.items()}
    return {**texts, "code": code, "type": type(error).__name__, "message": writable(text_of(error)), **facts}


def incompatible_error(error: IncompatibleGraph) -> dict[str, Any]:
    """The refusal of a run that cannot go on with the version that is here; `changes` lists every difference."""
    facts = {name: writable(str(error.facts[name])) for name in ("version", "fingerprint", "because")}
    return {
        **facts,
        "code": error.code,
        "type": type(error).__name__,
        "message": writable(error.message),
        "changes": error.facts["changes"],
    }
