"""One call of the API, as steps that a client carries out: send, pause, send again.

The steps are the same for a client that blocks and for one that awaits.
"""

import random
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote
from uuid import uuid4

import httpx

from orchestrator.client.errors import (
    ApiError,
    ForeignAnswer,
    Throttled,
    Unreachable,
    error_type,
)

T = TypeVar("T")
FIRST_PAUSE = 0.5
"""Seconds before a call is sent again; each further pause may be twice as long."""
LONGEST_PAUSE = 60.0
"""Seconds that a call waits at most because the server says so."""
SENT_AGAIN = frozenset({429, 502, 503, 504})
"""The statuses after which a call is sent again."""
_MEMBERS = frozenset({"type", "title", "status", "code", "detail"})


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call of an operation of the API. `T` is the type of its answer."""

    method: str
    path: str
    """Below /api/v1/."""
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the query without what was not named."""
        return {name: its for name, its in self.query.items() if its is not None}


@dataclass(frozen=True, slots=True)
class Send:
    """A step: send this, and hand back the response."""

    call: Call[Any]
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pause:
    """A step: wait for this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Listen:
    """A step: follow a stream until an event comes after the event `after`, or this
    many seconds have passed. Hand back the number of the last event; None where nothing
    can be followed.
    """

    path: str
    after: int
    seconds: float


Step = Send | Pause | Listen
Flow = Generator[Step, httpx.Response | int | None, T]
"""The steps that lead to a `T`."""


def part(name: str | int) -> str:
    """Return an id or key as one part of a path. Raises `ValueError` for a name that
    would lead elsewhere.
    """
    if name in ("", ".", ".."):
        raise ValueError(f"{name!r} is no id or key")
    return quote(str(name), safe=":~")


def answered(call: Call[T], *, retries: int) -> Flow[T]:
    """Return the answer to a call, sent again up to `retries` times where that has its
    effect only once. Raises `ApiError`.
    """
    headers = {}
    if call.method == "POST":
        headers["Idempotency-Key"] = uuid4().hex
    for attempt in range(retries + 1):
        reply = yield from _attempt(call, headers)
        if not isinstance(reply, ApiError):
            return reply
        pause = pause_after(reply, attempt)
        if attempt == retries or not may_be_sent_again(call, reply, pause):
            raise reply
        yield Pause(pause)
    raise AssertionError("the last attempt returns or raises")


def _attempt(call: Call[T], headers: Mapping[str, str]) -> Flow[T | ApiError]:
    """Return the answer to a call, or the error instead."""
    try:
        response = yield Send(call, headers)
    except httpx.RequestError as error:
        return unreachable(call, error)
    assert isinstance(response, httpx.Response)
    failure = failure_of(call, response)
    if failure is not None:
        return failure
    return _content(call, response)


def failure_of(call: Call[Any], response: httpx.Response) -> ApiError | None:
    """Return the error that a response stands for; None for a success."""
    if response.is_success:
        return None
    problem = _problem(response)
    code = str(problem.get("code", "no_problem"))
    message = str(problem.get("detail", "the answer does not say why"))
    return error_type(response.status_code, code)(
        response.status_code,
        code,
        message,
        call=str(call),
        facts={name: problem[name] for name in problem.keys() - _MEMBERS},
        retry_after=_retry_after(response),
    )


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        problem = response.json()
    except ValueError:
        return {}
    if isinstance(problem, dict):
        return problem
    return {}


def _content(call: Call[T], response: httpx.Response) -> T | ApiError:
    content: Any = None
    if response.status_code == 204:
        return cast(T, content)
    try:
        content = response.json()
    except ValueError:
        kind = response.headers.get("Content-Type", "something else")
        message = f"the answer is no JSON but {kind}"
        status = response.status_code
        return ForeignAnswer(status, "not_json", message, call=str(call))
    return cast(T, content)


def unreachable(call: Call[Any], error: httpx.RequestError) -> Unreachable:
    """Return the error for a call to which no answer came."""
    reason = f"no answer, {type(error).__name__}"
    if str(error):
        reason = f"{reason}: {error}"
    failure = Unreachable(reason, call=str(call))
    failure.__cause__ = error
    return failure


def may_be_sent_again(call: Call[Any], failure: ApiError, pause: float) -> bool:
    """Return whether a call that failed may be repeated after a pause: it has its effect
    once, and the failure may pass.
    """
    if call.method not in ("GET", "POST") or pause > LONGEST_PAUSE:
        return False
    return (
        isinstance(failure, Unreachable | Throttled | ForeignAnswer)
        or failure.status in SENT_AGAIN
        or failure.code == "in_progress"
    )


def pause_after(failure: ApiError, attempt: int) -> float:
    """Return how many seconds to wait after so many attempts that failed before."""
    # Spread, so that clients which failed together do not come back together.
    pause: float = FIRST_PAUSE * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311
    return max(pause, failure.retry_after or 0.0)


def _retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of the header Retry-After, which may be a moment too."""
    text = response.headers.get("Retry-After")
    if text is None:
        return None
    if text.isdecimal():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
