"""`python -m tests.soak.memory`: whether processes grow with what they have done.

An installation is started by `manage.py up` on a database of its own, and warmed. Then
come runs, views of pages, and sockets that are open at the same time. The memory (PSS)
of its web process and of its worker with all that belongs to it is read before and
after; growth by more than a fifth makes the exit code 1. Linux only.
"""

import argparse
import base64
import http.client
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from bench.counting.memory import megabytes_of
from tests.soak.takeover import prepared

if TYPE_CHECKING:
    from tests.support.clusters import Command

MOST_GROWTH = 1.2
SETTLING = 3.0
"""Seconds after the last run, in which connections end and standing jobs are done."""
PATIENCE = 120.0
"""Seconds in which a batch of runs must have ended."""
HOST = "127.0.0.1"
RUNS_AT_ONCE = 50
ASKS_EACH = 10
"""Each tenth run waits for a person, who signs over the API."""
PEOPLE = 10
"""So that each has fewer sockets than a person may have."""
GATED = "gated"
OTHERS = ("effects", "flaky", "loop_every")
PAGES = (
    "/runs/",
    "/runs/{run}/",
    "/runs/{run}/?at=1",
    "/runs/?status=completed&q=order",
    "/reviews/",
    "/reviews/?folder=decided",
    "/reviews/{run}/",
    "/notices/",
    "/api/v1/runs/",
    "/api/v1/runs/{run}/",
)
SOCKETS = ("/ws/reviews/", "/ws/runs/", "/ws/runs/{run}/?after=0")


@dataclass(frozen=True, slots=True)
class Amount:
    """How much an installation does; `sockets` are open at the same time."""

    runs: int
    views: int
    sockets: int


WARM = Amount(runs=100, views=20, sockets=10)


@dataclass(frozen=True, slots=True)
class Growth:
    """Megabytes of one process, or of several that belong together."""

    name: str
    before: float
    after: float

    @property
    def ratio(self) -> float:
        return self.after / self.before

    @property
    def is_too_much(self) -> bool:
        return self.ratio > MOST_GROWTH

    def __str__(self) -> str:
        verdict = "TOO MUCH" if self.is_too_much else "ok"
        return (
            f"{self.name}: {self.before:.1f} MB, {self.after:.1f} MB afterwards, "
            f"{self.ratio:.2f} × (at most {MOST_GROWTH:g}): {verdict}"
        )


class Installation:
    """A running installation, with the people who use it."""

    def __init__(self, command: "Command", port: int) -> None:
        self._command = command
        self._port = port
        people = _reviewers(PEOPLE)
        self._cookies = [_cookie_of(person) for person in people]
        self._token = _token_of(people[0])
        self._asked: list[UUID] = []
        """Runs that asked these people, who can see no other runs."""

    def does(self, amount: Amount) -> None:
        """Do this amount of work, and wait until it is finished."""
        # The last runs go while sockets look on.
        watched = min(amount.runs, RUNS_AT_ONCE)
        for first in range(0, amount.runs - watched, RUNS_AT_ONCE):
            self._run(min(RUNS_AT_ONCE, amount.runs - watched - first))
        self._view(amount.views)
        with ExitStack() as stack:
            for number in range(amount.sockets):
                stack.enter_context(self._opened(number))
            self._run(watched)
        time.sleep(SETTLING)

    def megabytes(self) -> dict[str, float]:
        """Return the megabytes of the web process and of the worker's processes."""
        from tests.support.clusters import children

        # They are started in this order, each in a session of its own.
        web, worker = children(self._command.main.pid)
        return {"web": megabytes_of(web), "worker": megabytes_of(worker)}

    def processes(self) -> list[int]:
        """Return the ids of all processes."""
        return self._command.alive()

    def _run(self, count: int) -> None:
        """Start so many runs, sign what is asked, and wait until all have ended."""
        from orchestrator import runs
        from tests.support.clusters import ended
        from tests.support.processes import until

        started = []
        calls = []
        for number, graph in enumerate(islice(cycle(OTHERS), count)):
            asks = number % ASKS_EACH == 0
            run = runs.start(
                GATED if asks else graph, {"folder": str(self._command.log.parent)}
            )
            started.append(run)
            if asks:
                calls.append(run.id)
        for run_id in calls:
            until(partial(self._signed, run_id), seconds=PATIENCE, what="a review")
        self._asked += calls
        ended(*started, seconds=PATIENCE)

    def _signed(self, run_id: UUID) -> bool:
        """Sign what the run asks; return whether it has asked by now."""
        from approvals.models import ApprovalRequest
        from checkpoints.models import PendingWrite

        request = ApprovalRequest.objects.filter(run=run_id).first()
        if request is None:
            return False
        decisions = []
        for write in PendingWrite.objects.filter(run=run_id):
            decision = {
                "write": str(write.write),
                "hash": write.hash,
                "verdict": "approve",
            }
            decisions.append(decision)
        path = f"/api/v1/requests/{request.id}/decisions/"
        self._answered(path, {"Authorization": f"Token {self._token}"}, decisions)
        return True

    def _view(self, count: int) -> None:
        """View so many pages, as one person after another."""
        for number in range(count):
            path = PAGES[number % len(PAGES)].format(run=self._nth_run(number))
            self._answered(path, {"Cookie": self._cookie(number)})

    def _answered(
        self, path: str, headers: dict[str, str], decisions: Any = None
    ) -> None:
        """Send a request, with these decisions if there are any, and read its answer."""
        link = http.client.HTTPConnection(HOST, self._port, timeout=60)
        try:
            if decisions is None:
                link.request("GET", path, headers=headers)
            else:
                body = json.dumps({"decisions": decisions})
                headers = {**headers, "Content-Type": "application/json"}
                link.request("POST", path, body, headers)
            answer = link.getresponse()
            text = answer.read()
        finally:
            link.close()
        assert answer.status < 300, (path, answer.status, text[:500])

    def _opened(self, number: int) -> socket.socket:
        """Return an open socket, the n-th."""
        path = SOCKETS[number % len(SOCKETS)].format(run=self._nth_run(number))
        headers = {
            "Host": f"{HOST}:{self._port}",
            "Origin": f"http://{HOST}:{self._port}",
            "Cookie": self._cookie(number),
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
        }
        lines = [f"GET {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        link = socket.create_connection((HOST, self._port), 60)
        link.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        answer = link.recv(4096)
        assert b" 101 " in answer, answer
        return link

    def _nth_run(self, number: int) -> UUID:
        return self._asked[-1 - number % len(self._asked)]

    def _cookie(self, number: int) -> str:
        return self._cookies[number % len(self._cookies)]


def _reviewers(count: int) -> list[Any]:
    """Return so many people whom the gate of the runs names."""
    from django.contrib.auth.models import Group, User

    group, _ = Group.objects.get_or_create(name="claims")
    people = []
    for number in range(count):
        person = User.objects.create_user(f"reviewer-{number}")
        person.groups.add(group)
        people.append(person)
    return people


def _cookie_of(person: Any) -> str:
    from django.test import Client

    client = Client()
    client.force_login(person)
    return "; ".join(
        f"{name}={morsel.value}" for name, morsel in client.cookies.items()
    )


def _token_of(person: Any) -> str:
    from orchestrator import tokens

    return tokens.make_token(person, scopes=tokens.SCOPES)


@contextmanager
def _installation(folder: Path) -> Iterator[Installation]:
    """Start an installation that shows itself; nothing of it is left afterwards."""
    from checkpoints.models import Worker
    from tests.support.clusters import Command

    with socket.socket() as free:
        free.bind((HOST, 0))
        port = free.getsockname()[1]
    command = Command(
        "up",
        f"--port={port}",
        log=folder / "up.log",
        DJANGO_SETTINGS_MODULE="tests.soak.unrecycled",
        COUNTERSIGN_LEASE_SECONDS="30",
        COUNTERSIGN_LOG_LEVEL="WARNING",
    )
    try:
        command.says("Countersign is running at")
        command.until(lambda: Worker.objects.filter(stopped_at=None).exists())
        yield Installation(command, port)
    finally:
        command.kill_all()


def measure(folder: Path, amount: Amount) -> list[Growth]:
    """Return how much a warm installation grows while it does this amount of work."""
    with _installation(folder) as installation:
        installation.does(WARM)
        processes = installation.processes()
        before = installation.megabytes()
        installation.does(amount)
        after = installation.megabytes()
        # The figures would say nothing about a process that was restarted.
        assert installation.processes() == processes
    return [Growth(name, before[name], after[name]) for name in before]


def main(words: Sequence[str]) -> int:
    """Measure, print, and fail where something grew too much."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak.memory", description=__doc__
    )
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--views", type=int, default=1_000, help="of pages")
    parser.add_argument("--sockets", type=int, default=300, help="open at once")
    parser.add_argument(
        "--database", choices=("sqlite", "postgresql"), default="postgresql"
    )
    chosen = parser.parse_args(words)
    amount = Amount(chosen.runs, chosen.views, chosen.sockets)
    os.environ.setdefault("COUNTERSIGN_LOG_LEVEL", "WARNING")
    with (
        tempfile.TemporaryDirectory(prefix="countersign-") as name,
        prepared(Path(name), chosen.database),
    ):
        growths = measure(Path(name), amount)
    print(
        f"memory on {chosen.database}, before and after {amount.runs} runs, "
        f"{amount.views} views and {amount.sockets} sockets"
    )
    for growth in growths:
        print(f"  {growth}", flush=True)
    return 1 if any(growth.is_too_much for growth in growths) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
