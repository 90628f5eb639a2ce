"""`ctx`: the second argument of a node, beside the state. The executor and `play` make
one per attempt; nodes only read and call it.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import cached_property
from typing import Any, NoReturn
from uuid import UUID

from orchestrator.engine.errors import CountersignError
from orchestrator.engine.step.frontier import ErrorInfo
from orchestrator.engine.step.memory import Memory, Opens
from orchestrator.engine.step.notes import Notes
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.hints import nearest
from orchestrator.engine.values.identity import Task, idempotency_key


class Secrets(dict[str, str]):
    """Secret values by name, as `ctx.secrets`."""

    def __missing__(self, name: str) -> str:
        cure = (
            f"name it in Graph(secrets=[{name!r}]), "
            "and give its value in COUNTERSIGN['SECRETS']"
        )
        raise KeyError(f"ctx.secrets has no {name}; {cure}")


class Context:
    """The context of one attempt. `attempt` from 1; `deadline` in seconds since the
    epoch (None: no limit); `payload` of a `Send`, else None; `error` after an error
    edge, else None; `secrets` are masked wherever they are written.

    `input`, `log` and `idempotency_key` are made on first use, because most nodes never
    read them.
    """

    def __init__(  # noqa: PLR0913
        self,
        *,
        run_id: UUID,
        key: str,
        line: int,
        task: Task,
        read_input: Callable[[], Any],
        attempt: int = 1,
        payload: Json = None,
        args: Any = None,
        error: ErrorInfo | None = None,
        open_log: Callable[[], Any],
        deadline: float | None = None,
        secrets: Mapping[str, str] | None = None,
        cancelled: Callable[[], bool] | None = None,
        report: Callable[[int, int, str], None] | None = None,
        checkpoint: Callable[[], None] | None = None,
        memory: Opens | None = None,
        notes: Notes | None = None,
        ask: Callable[[Any, Any, Any], None] | None = None,
    ) -> None:
        self.run_id = run_id
        self.key = key
        self.node, self.visit, self.index = task
        self.attempt = attempt
        self.payload = payload
        self.args = args
        self.error = error
        self.deadline = deadline
        self.secrets = Secrets(secrets or {})
        self._line = line
        self._read_input = read_input
        self._open_log = open_log
        self._cancelled = cancelled
        self._report = report
        self._checkpoint = checkpoint
        self._memory = memory
        self._notes = notes or Notes()
        self._ask = ask

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        attributes = (*vars(self), *vars(type(self)))
        public = [other for other in attributes if not other.startswith("_")]
        raise AttributeError(f"ctx has no {name}; {nearest(name, public)}")

    @property
    def task(self) -> Task:
        return Task(self.node, self.visit, self.index)

    @cached_property
    def input(self) -> Any:
        """The run's input, as its model."""
        return self._read_input()

    @cached_property
    def log(self) -> Any:
        """The log of this process, bound to run and task."""
        return self._open_log()

    @cached_property
    def idempotency_key(self) -> str:
        """The key that every attempt of this task carries."""
        return idempotency_key(self.run_id, self._line, self.task)

    @property
    def cancelled(self) -> bool:
        """Return whether this run was asked to stop; long work should check now and then,
        and leave.
        """
        if self._cancelled is None:
            return False
        return self._cancelled()

    def report(
        self,
        done: int,
        total: int,
        note: str = "",
    ) -> None:
        """Show progress on the run's page."""
        if self._report:
            self._report(done, total, note)

    def checkpoint(self) -> None:
        """Ask for the current superstep to be kept in the timeline."""
        if self._checkpoint:
            self._checkpoint()

    def metadata(
        self,
        name: str,
        value: str | float | bool,
    ) -> None:
        """Note a small value on the checkpoint that lists this task's result; a later
        value replaces an earlier one of its name. Raises `InvalidValue`.
        """
        self._notes.put(name, value)

    def figure(
        self,
        name: str,
        number: int | Decimal,
    ) -> None:
        """Add a number to a figure of this task, such as tokens or cost. Raises
        `InvalidValue`.
        """
        self._notes.add(name, number)

    @property
    def memory(self) -> Memory:
        """The memory of the installation: `get`, `search`, `put`, `delete`."""
        if self._memory is None:
            raise _missing("ctx.memory")
        return self._memory()

    def ask(
        self,
        channel: str,
        prompt: str,
        schema: Any = None,
    ) -> None:
        """Ask people for the value of a channel. It returns nothing: this node ends,
        and a later one reads the channel once they have answered. `schema`, a JSON
        Schema or a type, is what an answer must fit in addition to the channel's own
        type. Raises `InvalidValue`.
        """
        if self._ask is None:
            raise _missing("ctx.ask here")
        self._ask(channel, prompt, schema)

    def sleep_until(self, time: Any) -> NoReturn:
        """Raise: this version has no timers."""
        raise _missing("ctx.sleep_until")


def _missing(what: str) -> CountersignError:
    return CountersignError(
        "not_available",
        f"this version has no {what}",
        what=what,
    )
