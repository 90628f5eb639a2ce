"""What the clients do, as steps: asking people, and waiting for them."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Required, TypedDict, TypeVar

from orchestrator.client.approval import Approval
from orchestrator.client.exchange import Call, Flow, Pause, answered, part

T = TypeVar("T")
FIRST_LOOK = 0.2
"""Seconds until `wait` looks for the second time; the pauses grow."""
LAST_LOOKS = 5.0
"""Seconds between two looks at most."""


class Question(TypedDict, total=False):
    """What people are asked. docs/approvals.md says what each of it means."""

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
        self, id_or_key: str, outcomes: Mapping[str, tuple[str, str]]
    ) -> Flow[Approval]:
        """Report what came of the items."""
        rows = []
        for item, (result, detail) in outcomes.items():
            rows.append({"item": item, "result": result, "detail": detail})
        path = f"{_address(id_or_key)}outcomes/"
        yield from self.send(Call[Any]("POST", path, body={"outcomes": rows}))
        return (yield from self.approval(id_or_key))

    def wait(self, id_or_key: str, timeout: float | None) -> Flow[Approval]:
        """Look at an approval until waiting is over. Raises `TimeoutError`."""
        began = time.monotonic()
        pause = FIRST_LOOK
        while True:
            approval = yield from self.approval(id_or_key)
            if approval.decided:
                return approval
            if timeout is not None:
                rest = began + timeout - time.monotonic()
                if rest <= 0:
                    raise TimeoutError(
                        f"approval {approval.key} is {approval.state} after "
                        f"{timeout:g} s; wait for it again"
                    )
                pause = min(pause, rest)
            yield Pause(pause)
            pause = min(pause * 1.5, LAST_LOOKS)

    def _approval(self, call: Call[Any]) -> Flow[Approval]:
        answer = yield from self.send(call)
        return Approval.read(answer, site=self.site)


def _address(id_or_key: str) -> str:
    return f"approvals/{part(id_or_key)}/"
