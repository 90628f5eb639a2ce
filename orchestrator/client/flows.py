"""The acts of the clients, as steps: asking people, waiting for them and for runs."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Required, TypedDict, TypeVar, cast
from urllib.parse import parse_qsl, urlsplit

from orchestrator.client import calls, types
from orchestrator.client.approval import Approval
from orchestrator.client.decision_set import DecisionSet
from orchestrator.client.errors import ApiError
from orchestrator.client.events import stream_of
from orchestrator.client.exchange import Call, Flow, Listen, Pause, answered, part

T = TypeVar("T")
R = TypeVar("R")
FIRST_PAUSE = 0.2
"""Seconds between the first two looks where nothing can be followed."""
LONGEST_PAUSE = 5.0
LONGEST_LISTENING = 14.0
"""Seconds without an event after which `wait` looks all the same, because a proxy may hold
the events back. Less than the 15 between two signs of life.
"""
GOING_ON = frozenset({"queued", "running", "waiting"})
"""The statuses of a run that changes by itself."""


class Question(TypedDict, total=False):
    """The question to people. docs/approvals.md says what each of it means."""

    title: Required[str]
    items: Required[Iterable[Mapping[str, Any]]]
    reviewers: Required[Iterable[str]]
    key: str | None
    facts: Iterable[Mapping[str, Any]]
    quorum: int
    reject_quorum: int
    four_eyes: bool
    deadline: datetime | timedelta | int | None
    """A moment with a time zone, or how long, from the opening of the request."""
    on_deadline: Literal["reject", "fail"]
    on_behalf_of: str | None
    reports: bool
    """Set if you will `report` the outcome."""


def body_of(question: Question) -> dict[str, Any]:
    """Return the body of POST approvals/."""
    body: dict[str, Any] = dict(question)
    for name in ("items", "facts", "reviewers"):
        if name in body:
            body[name] = list(body[name])
    deadline = body.get("deadline")
    if isinstance(deadline, timedelta):
        body["deadline"] = int(deadline.total_seconds())
    if isinstance(deadline, datetime):
        body["deadline"] = deadline.isoformat()
    return body


@dataclass(frozen=True, slots=True)
class Flows:
    """The steps of each act, for a client of one site."""

    site: str
    retries: int

    def send(self, call: Call[T]) -> Flow[T]:
        """Send one call and return its answer."""
        return answered(call, retries=self.retries)

    def ask(self, question: Question) -> Flow[Approval]:
        """Ask people to decide on items."""
        return self._approval(Call("POST", "approvals/", body=body_of(question)))

    def approval(self, id_or_key: str) -> Flow[Approval]:
        """Read an approval."""
        return self._approval(Call("GET", _address(id_or_key)))

    def cancel(self, id_or_key: str, reason: str) -> Flow[Approval]:
        """Take a question back."""
        path = f"{_address(id_or_key)}cancel/"
        return self._approval(Call("POST", path, body={"reason": reason}))

    def report(
        self,
        approval: Approval,
        outcomes: Mapping[str, tuple[str, str]],
    ) -> Flow[Approval]:
        """Report what came of the items, as this approval has them."""
        rows = []
        for item, (result, detail) in outcomes.items():
            signed = approval.item(item).hash
            row = {"item": item, "hash": signed, "result": result, "detail": detail}
            rows.append(row)
        path = f"{_address(approval.id)}outcomes/"
        return self._approval(Call("POST", path, body={"outcomes": rows}))

    def sign(self, decisions: DecisionSet) -> Flow[types.ReceiptOut]:
        """Sign what was decided on a request."""
        body = cast(types.DecisionsBody, decisions.body)
        request = str(decisions.request["id"])
        return self.send(calls.requests_decisions_create(request, body))

    def wait(self, id_or_key: str, timeout: float | None) -> Flow[Approval]:
        """Follow an approval until waiting is over. Raises `TimeoutError`."""
        patience = _Patience(timeout)
        while True:
            approval = yield from self.approval(id_or_key)
            if approval.decided:
                return approval
            yield from patience.spend(
                f"approvals/{approval.id}/stream/",
                f"approval {approval.key} is {approval.state}",
            )

    def wait_for_run(
        self, id_or_key: str, timeout: float | None, *, until_paused: bool
    ) -> Flow[types.RunOut]:
        """Follow a run until it has ended or stopped, or, if `until_paused`, until it waits for
        people. Raises `TimeoutError`.
        """
        patience = _Patience(timeout)
        while True:
            run = yield from self.send(calls.runs_retrieve(id_or_key))
            status = run["status"]
            if status not in GOING_ON and (until_paused or status != "paused"):
                return run
            # The earlier events are in the answer.
            patience.last = max(patience.last, run["event_seq"])
            yield from patience.spend(
                stream_of(run["id"]), f"run {run['key']} is {status}"
            )

    def _approval(self, call: Call[Any]) -> Flow[Approval]:
        answer = yield from self.send(call)
        try:
            return Approval.read(answer, site=self.site)
        except (KeyError, TypeError) as error:
            raise ApiError(
                200, "no_approval", "the answer is no approval", call=str(call)
            ) from error


class _Patience:
    """The time that `wait` has, and how it is spent between two looks: a stream is
    followed; where it cannot be, the pauses grow.
    """

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._began = time.monotonic()
        self._pause = FIRST_PAUSE
        self.last = 0

    def spend(self, stream: str, standing: str) -> Flow[None]:
        """Wait for something to happen. Raises `TimeoutError`."""
        seconds = LONGEST_LISTENING
        if self._timeout is not None:
            seconds = min(seconds, self._began + self._timeout - time.monotonic())
            if seconds <= 0:
                raise TimeoutError(
                    f"{standing} after {self._timeout:g} s; wait for it again"
                )
        last = yield Listen(stream, self.last, seconds)
        if isinstance(last, int):
            self.last = last
            self._pause = FIRST_PAUSE
            return
        yield Pause(min(self._pause, seconds))
        self._pause = min(self._pause * 1.5, LONGEST_PAUSE)


def next_page(
    call: Call[types.Page[R]], page: types.Page[R]
) -> Call[types.Page[R]] | None:
    """Return the call for the page after this one; None after the last. Its address is
    that of this page: a token goes nowhere else.
    """
    if page["next"] is None:
        return None
    query = dict(parse_qsl(urlsplit(page["next"]).query))
    return replace(call, query=query)


def _address(id_or_key: str) -> str:
    return f"approvals/{part(id_or_key)}/"
