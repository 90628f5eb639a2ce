"""The frontier: where a run stands between two supersteps, with tokens on edges,
visits, sends that are due, and visits that wait for people.

Planner and reducer make new frontiers from old ones; the ledger stores them as JSON. A
frontier never changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.engine.frozen import frozen
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.identity import Task


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """The failure that the node after an error edge reads as `ctx.error`."""

    node: str
    type: str
    message: str
    attempt: int = 1

    def to_json(self) -> dict[str, Json]:
        return {
            "node": self.node,
            "type": self.type,
            "message": self.message,
            "attempt": self.attempt,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "ErrorInfo":
        return cls(
            stored["node"],
            stored["type"],
            stored["message"],
            stored["attempt"],
        )


READY = "call"
"""The status of a task whose call people approved, and which has not run yet."""


@frozen
class Part:
    """One task of a visit that is not over: `status` is gated, call, done, approved,
    rejected, partial or error. Its returned goto and sends wait with it.

    `call`: people approved the call, and the task starts next. Until it has run,
    `payload` and `cause` are the payload and the error with which it was prepared.
    `renews`: people are asked again about what the task acts on; it is like a call.
    """

    status: str
    goto: tuple[str, ...] | None = None
    sends: tuple[tuple[str, Json], ...] = ()
    error: ErrorInfo | None = None
    payload: Json = None
    cause: ErrorInfo | None = None
    renews: bool = False

    def to_json(self) -> dict[str, Json]:
        plain: dict[str, Json] = {
            "status": self.status,
            "goto": None if self.goto is None else list(self.goto),
            "sends": [list(send) for send in self.sends],
            "error": self.error.to_json() if self.error else None,
        }
        # A key that older versions did not write is written only if it holds something.
        if self.payload is not None:
            plain["payload"] = self.payload
        if self.cause is not None:
            plain["cause"] = self.cause.to_json()
        if self.renews:
            plain["renews"] = True
        return plain

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Part":
        goto = None
        if stored["goto"] is not None:
            goto = tuple(stored["goto"])
        error = None
        if stored["error"]:
            error = ErrorInfo.from_json(stored["error"])
        sends = tuple((target, payload) for target, payload in stored["sends"])
        cause = None
        if stored.get("cause"):
            cause = ErrorInfo.from_json(stored["cause"])
        return cls(
            stored["status"],
            goto,
            sends,
            error,
            stored.get("payload"),
            cause,
            renews=stored.get("renews", False),
        )


SendList = tuple[str, tuple[Json, ...]]
"""A target and the payloads of one visit to it."""


@frozen
class Frontier:
    """The place of a run between two supersteps.

    `tokens`: edge id -> their number (never 0). `errors`: what tokens on error edges
    carry, oldest first. `waiting`: "node:visit" -> its tasks by index, at least one of
    them gated, or an approved call that has yet to run. `rejected`: a token died of a
    rejection. `visited`: nodes that have started, in order. `written`: channels with
    the reducer First that hold a written value.
    """

    tokens: dict[str, int] = field(default_factory=dict)
    errors: dict[str, list[ErrorInfo]] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    sends: tuple[SendList, ...] = ()
    waiting: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    rejected: bool = False
    visited: tuple[str, ...] = ()
    written: tuple[str, ...] = ()

    def gated(self) -> set[Task]:
        """Return the tasks that wait for people."""
        tasks: set[Task] = set()
        for key, parts in self.waiting.items():
            node, visit = visit_of(key)
            for index, part in enumerate(parts):
                if part.status == "gated":
                    tasks.add(Task(node, visit, index))
        return tasks

    def renewed(self) -> set[Task]:
        """Return the tasks about which people are asked again: they have lost what they
        act on.
        """
        tasks: set[Task] = set()
        for key, parts in self.waiting.items():
            node, visit = visit_of(key)
            for index, part in enumerate(parts):
                if part.renews:
                    tasks.add(Task(node, visit, index))
        return tasks

    def with_renewed_ready(self) -> "Frontier":
        """Return the frontier of a line that departs from here: the authority of these
        tasks is judged again there.
        """
        waiting: dict[str, tuple[Part, ...]] = {}
        for key, parts in self.waiting.items():
            waiting[key] = tuple([_ready_if_renewed(part) for part in parts])
        return replace(self, waiting=waiting)

    def ready_calls(self) -> dict[Task, Part]:
        """Return the tasks whose calls people approved, and which have yet to run."""
        ready: dict[Task, Part] = {}
        for key, parts in self.waiting.items():
            node, visit = visit_of(key)
            for index, part in enumerate(parts):
                if part.status == READY:
                    ready[Task(node, visit, index)] = part
        return ready

    def to_json(self) -> dict[str, Json]:
        """Return plain JSON; equal frontiers give equal canonical bytes."""
        errors: dict[str, Json] = {}
        for edge, infos in self.errors.items():
            errors[edge] = [info.to_json() for info in infos]
        waiting: dict[str, Json] = {}
        for key, parts in self.waiting.items():
            waiting[key] = [part.to_json() for part in parts]
        sends: list[Json] = []
        for target, payloads in self.sends:
            sends.append([target, list(payloads)])
        return {
            "tokens": dict(self.tokens),
            "errors": errors,
            "visits": dict(self.visits),
            "sends": sends,
            "waiting": waiting,
            "rejected": self.rejected,
            "visited": list(self.visited),
            "written": list(self.written),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "Frontier":
        errors: dict[str, list[ErrorInfo]] = {}
        for edge, infos in stored["errors"].items():
            errors[edge] = [ErrorInfo.from_json(info) for info in infos]
        waiting: dict[str, tuple[Part, ...]] = {}
        for key, parts in stored["waiting"].items():
            waiting[key] = tuple([Part.from_json(part) for part in parts])
        sends = [(target, tuple(payloads)) for target, payloads in stored["sends"]]
        return cls(
            tokens=dict(stored["tokens"]),
            errors=errors,
            visits=dict(stored["visits"]),
            sends=tuple(sends),
            waiting=waiting,
            rejected=stored["rejected"],
            visited=tuple(stored["visited"]),
            written=tuple(stored["written"]),
        )


def _ready_if_renewed(part: Part) -> Part:
    return replace(part, status=READY, renews=False) if part.renews else part


def visit_key(node: str, visit: int) -> str:
    """Return the key of a visit in `waiting`: "node:visit"."""
    return f"{node}:{visit}"


def visit_of(key: str) -> tuple[str, int]:
    """Return node and visit of a key that `visit_key` made."""
    node, _, visit = key.rpartition(":")
    return node, int(visit)
