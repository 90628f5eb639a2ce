"""The lines of a run's log as they come: server-sent events, read line by line."""

import re
from typing import Any, TypedDict

from checkpoints.core.strict_json import parse_strict
from orchestrator.client.errors import ApiError
from orchestrator.client.exchange import (
    LONGEST_PAUSE,
    Call,
    may_be_sent_again,
    part,
    pause_after,
)

SILENCE = 45.0
"""Seconds without a sign of life after which a stream counts as dead. The server gives
one every 15.
"""
_NUMBER = re.compile(r"[0-9]{1,18}")


class Event(TypedDict):
    """A line of the log. `payload` is what happened; `fault` says why a line does not
    prove to be what was written, and is null where it does.
    """

    seq: int
    type: str
    at: str
    node: str
    task: str
    actor: str
    payload: dict[str, Any]
    fault: dict[str, Any] | None


def stream_of(run: str) -> str:
    """Return the path of the stream of a run."""
    return f"runs/{part(run)}/stream/"


class EventReader:
    """Makes events of the lines of a stream, and knows how to come back after a cut:
    `last` is the number of the last event that came.
    """

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self._number = last
        self._data: list[str] = []
        self._retry = 2.0
        self._cuts = 0

    def headers(self) -> dict[str, str]:
        """Return the headers that ask for what comes after the last one. An event that
        was cut off is forgotten; it comes again.
        """
        self._data = []
        return {"Accept": "text/event-stream", "Last-Event-ID": str(self.last)}

    def read(self, line: str) -> Event | None:
        """Return the event that this line of the stream completes, if it does. Raises
        `ApiError` for one that is no JSON.
        """
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "id" and _NUMBER.fullmatch(value):
            self._number = int(value)
        elif name == "retry" and _NUMBER.fullmatch(value):
            self._retry = min(int(value) / 1000, LONGEST_PAUSE)
        if line or not self._data:
            return None
        data = "\n".join(self._data)
        self._data = []
        try:
            event: Event = parse_strict(data)
        except ValueError as error:
            raise ApiError(200, "not_json", "an event is no JSON") from error
        self._cuts = 0
        self.last = self._number
        return event

    def pause_after_cut(
        self, call: Call[Any], failure: ApiError | None, *, retries: int
    ) -> float:
        """Return how many seconds to wait before coming back. Raises the failure that
        cannot pass, and any after this many of them without an event.
        """
        if failure is None:
            return self._retry
        pause = max(self._retry, pause_after(failure, self._cuts))
        if self._cuts >= retries or not may_be_sent_again(call, failure, pause):
            raise failure
        self._cuts += 1
        return pause
