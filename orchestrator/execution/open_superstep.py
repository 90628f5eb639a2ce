"""An open superstep, one with a failed, unknown or postponed task, as it is kept.
Values only; the runner stores them.

It stays open until each of its tasks has a result; then all are reduced in declared
order, as if it had never been interrupted.
"""

import inspect
from dataclasses import field, replace
from typing import Any

from checkpoints.journal.results import Entry
from checkpoints.models.task_result import Outcome
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError, IncompatibleGraph, text_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import DIVERGED
from orchestrator.engine.graphs.trace import is_memory
from orchestrator.engine.step.plan import ErrorInfo
from orchestrator.engine.step.reduce import HeldWrite, Output, Result, WriteValue
from orchestrator.execution.secrets import writable


@frozen
class FinishedTask:
    """A task that is finished: its output, or the error that its error edge carries,
    and the answer of its gate.

    `why` is the reason for which people are asked; of a task that passed it is a
    warning, that nothing prepares its call now.

    `guard` names the node whose gate holds it, if that is not its own. `reads` are the
    channels that its check read; None if they were not recorded. `diverged`: why a
    replay ends here, as {why, path}. `call` is what a node was called with whose gate
    needed nobody, as the write that people would have decided on. `renews`: people are
    asked again about what it acts on; the id of the request that let it, empty if the
    gate had needed nobody.
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
    call: WriteValue | None = None
    renews: str | None = None

    @property
    def is_plain(self) -> bool:
        """Return whether it ended with nothing but writes that flow: no gate, no error
        and no warning, nothing of memory and no note.
        """
        if self.gated or self.passed or self.error is not None:
            return False
        if self.diverged is not None or self.renews is not None:
            return False
        output = self.output
        if output is None:
            return True
        return not (
            output.reads or output.recorded or output.metadata or output.figures
        )

    def result(self) -> Result:
        """Return the result as the engine reduces it."""
        if self.diverged is not None:
            return Result(outcome=DIVERGED)
        # A gate that needed nobody counts as approved for the edges after it.
        outcome = "approved" if self.passed else None
        return Result(self.output, self.error, self.gated, outcome)

    @property
    def remembers(self) -> bool:
        """Return whether it lands something in memory."""
        if self.output is None:
            return False
        return any(is_memory(write.channel) for write in self.output.writes)

    def held(self, task: Task) -> list[HeldWrite]:
        """Return the writes that its gate holds."""
        return self.result().held(task)

    def to_json(self) -> dict[str, Any]:
        stored: dict[str, Any] = {
            "output": self.output.to_json() if self.output else None,
            "error": self.error.to_json() if self.error else None,
            "gated": self.gated,
            "passed": self.passed,
            "why": self.why,
            "guard": self.guard,
            "attempt": self.attempt,
            "ms": self.ms,
        }
        if self.diverged is not None:
            stored["diverged"] = self.diverged
        if self.reads is not None:
            stored["reads"] = list(self.reads)
        if self.call is not None:
            stored["call"] = self.call.to_json()
        if self.renews is not None:
            stored["renews"] = self.renews
        return stored

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "FinishedTask":
        output = None
        if stored["output"] is not None:
            output = Output.from_json(stored["output"])
        error = None
        if stored["error"] is not None:
            error = ErrorInfo.from_json(stored["error"])
        # Older versions did not record what the check read.
        reads = None
        if stored.get("reads") is not None:
            reads = tuple(stored["reads"])
        call = None
        if stored.get("call") is not None:
            call = WriteValue.from_json(stored["call"])
        return cls(
            output,
            error,
            gated=stored["gated"],
            passed=stored["passed"],
            why=stored["why"],
            guard=stored["guard"],
            attempt=stored["attempt"],
            ms=stored["ms"],
            diverged=stored.get("diverged"),
            reads=reads,
            call=call,
            renews=stored.get("renews"),
        )


@frozen
class OpenSuperstep:
    """The open superstep of a failure checkpoint. `tasks_asked` are tasks about which
    people are asked already; `tries` are the attempts since a person last acted, for
    tasks that wait for their next one; `due` is when that is, in seconds since the
    epoch. `without` are nodes that were not started with it, because they waited for a
    yes. `passed` are calls whose gate needed nobody, and which have no result yet.
    """

    results: dict[Task, FinishedTask]
    tasks_asked: frozenset[Task]
    tries: dict[Task, int]
    superstep: int
    due: dict[Task, float] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    passed: dict[Task, FinishedTask] = field(default_factory=dict)

    def without_renewals(self) -> "OpenSuperstep":
        """Return it without the tasks about which people are asked again, for a line
        that departs from here: they start over, and what they act on is judged again.
        """
        results: dict[Task, FinishedTask] = {}
        for task, result in self.results.items():
            if result.renews is None:
                results[task] = result
        renewed = self.results.keys() - results.keys()
        return replace(self, results=results, tasks_asked=self.tasks_asked - renewed)

    def to_json(self) -> dict[str, Any]:
        results = {str(task): result.to_json() for task, result in self.results.items()}
        stored: dict[str, Any] = {
            "superstep": self.superstep,
            "results": results,
            "asked": sorted(map(str, self.tasks_asked)),
            "tries": {str(task): count for task, count in self.tries.items()},
            "due": {str(task): moment for task, moment in self.due.items()},
        }
        # A key that older versions did not write is written only if it holds something.
        if self.without:
            stored["without"] = sorted(self.without)
        if self.passed:
            stored["passed"] = {
                str(task): proposal.to_json() for task, proposal in self.passed.items()
            }
        return stored

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "OpenSuperstep":
        """Return the open superstep of a payload; `NOTHING_OPEN` if it has none."""
        if not stored:
            return NOTHING_OPEN
        results: dict[Task, FinishedTask] = {}
        for text, result in stored.get("results", {}).items():
            results[Task.parse(text)] = FinishedTask.from_json(result)
        passed: dict[Task, FinishedTask] = {}
        for text, proposal in stored.get("passed", {}).items():
            passed[Task.parse(text)] = FinishedTask.from_json(proposal)
        tries = stored.get("tries", {})
        due = stored.get("due", {})
        return cls(
            results=results,
            tasks_asked=frozenset(map(Task.parse, stored.get("asked", ()))),
            tries={Task.parse(text): count for text, count in tries.items()},
            superstep=stored.get("superstep", 0),
            due={Task.parse(text): moment for text, moment in due.items()},
            without=frozenset(stored.get("without", ())),
            passed=passed,
        )


NOTHING_OPEN = OpenSuperstep({}, frozenset(), {}, superstep=0)


def unsettled_tasks(graph: Compiled, entries: dict[Task, Entry]) -> list[Task]:
    """Return the tasks whose attempt may have acted: they are unknown already, or have
    an open intent and are neither idempotent nor atomic.
    """
    unsettled: list[Task] = []
    for task, entry in entries.items():
        is_lost = entry.outcome == Outcome.OPEN and not safe_again(graph, task)
        if is_lost or entry.outcome == Outcome.UNKNOWN:
            unsettled.append(task)
    return unsettled


def safe_again(graph: Compiled, task: Task) -> bool:
    """Return whether an attempt that ended without a result may simply be made again."""
    return graph.nodes[task.node].safe_again


def error_json(error: BaseException, **facts: Any) -> dict[str, Any]:
    """Return an error as a run's row keeps it: code, type and message; never the locals
    of a frame.
    """
    code = "node_failed"
    # Texts of errors may hold characters that no database stores.
    stored: dict[str, Any] = {}
    if isinstance(error, CountersignError):
        code = error.code
        for name, value in error.facts.items():
            stored[name] = writable(str(value))
    # The error's own facts come first, so that none of them replaces code or message.
    return {
        **stored,
        "code": code,
        "type": type(error).__name__,
        "message": writable(text_of(error)),
        **facts,
    }


def cure_of(error: type[BaseException]) -> str:
    """Return the cure in the docstring of an error, as one line."""
    return " ".join((inspect.getdoc(error) or "").split())


def incompatible_error(error: IncompatibleGraph) -> dict[str, Any]:
    """Return the refusal of a run that cannot continue with this process's version of
    its graph; `changes` lists every difference.
    """
    return {
        "version": writable(str(error.facts["version"])),
        "fingerprint": writable(str(error.facts["fingerprint"])),
        "because": writable(str(error.facts["because"])),
        "code": error.code,
        "type": type(error).__name__,
        "message": writable(error.message),
        "changes": error.facts["changes"],
    }
