"""Where a run stands between two supersteps: tokens on edges, visits, sends to start, visits that wait for people.

Planner and reducer make new frontiers from old ones; the ledger keeps them as JSON. A frontier never changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.engine.canonical import Json
from orchestrator.engine.frozen import frozen
from orchestrator.engine.identity import Task


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """What the node behind an error edge reads as `ctx.error`."""

    node: str
    type: str
    message: str
    attempt: int = 1

    def to_json(self) -> dict[str, Json]:
        return {"node": self.node, "type": self.type, "message": self.message, "attempt": self.attempt}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "ErrorInfo":
        return cls(kept["node"], kept["type"], kept["message"], kept["attempt"])


@frozen
class Part:
    """One task of a visit that is not over: `status` is gated, done, approved, rejected, partial or error. What it
    returned as goto and sends waits with it.
    """

    status: str
    goto: tuple[str, ...] | None = None
    sends: tuple[tuple[str, Json], ...] = ()
    error: ErrorInfo | None = None

    def to_json(self) -> dict[str, Json]:
        return {
            "status": self.status,
            "goto": None if self.goto is None else list(self.goto),
            "sends": [list(send) for send in self.sends],
            "error": self.error.to_json() if self.error else None,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Part":
        goto = None if kept["goto"] is None else tuple(kept["goto"])
        error = ErrorInfo.from_json(kept["error"]) if kept["error"] else None
        return cls(kept["status"], goto, tuple((target, payload) for target, payload in kept["sends"]), error)


SendList = tuple[str, tuple[Json, ...]]
"""A target and the payloads of one visit to it."""


@frozen
class Frontier:
    """`tokens`: edge id -> how many (never 0). `errors`: what tokens on error edges carry, oldest first. `waiting`:
    "node:visit" -> its tasks by index, where one is gated. `rejected`: a token died of a rejection. `visited`: nodes
    that have started, in order. `written`: channels with the reducer First that hold a written value.
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
        """The tasks that wait for people."""
        visits = ((*visit_of(key), parts) for key, parts in self.waiting.items())
        return {
            Task(node, visit, index)
            for node, visit, parts in visits
            for index, part in enumerate(parts)
            if part.status == "gated"
        }

    def to_json(self) -> dict[str, Json]:
        """Plain JSON; equal frontiers give equal canonical bytes."""
        return {
            "tokens": dict(self.tokens),
            "errors": {edge: [error.to_json() for error in errors] for edge, errors in self.errors.items()},
            "visits": dict(self.visits),
            "sends": [[target, list(payloads)] for target, payloads in self.sends],
            "waiting": {visit: [part.to_json() for part in parts] for visit, parts in self.waiting.items()},
            "rejected": self.rejected,
            "visited": list(self.visited),
            "written": list(self.written),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> "Frontier":
        return cls(
            tokens=dict(kept["tokens"]),
            errors={edge: [ErrorInfo.from_json(error) for error in errors] for edge, errors in kept["errors"].items()},
            visits=dict(kept["visits"]),
            sends=tuple((target, tuple(payloads)) for target, payloads in kept["sends"]),
            waiting={visit: tuple(Part.from_json(part) for part in parts) for visit, parts in kept["waiting"].items()},
            rejected=kept["rejected"],
            visited=tuple(kept["visited"]),
            written=tuple(kept["written"]),
        )


def visit_key(node: str, visit: int) -> str:
    return f"{node}:{visit}"


def visit_of(key: str) -> tuple[str, int]:
    node, _, visit = key.rpartition(":")
    return node, int(visit)
