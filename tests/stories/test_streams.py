"""Server-sent events of a real web process: cut and resumed, refused, ended; many at
once hold nothing up.
"""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from checkpoints.models import Run
from orchestrator import tokens
from tests.support.cast import People
from tests.support.processes import web
from tests.support.rows import a_run, an_event

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 50
LARGE = 3_000_000
"""Bytes of a line that do not fit into the buffers between two sockets."""
SOON = 2.0
"""Seconds in which a page is there; a thread that a stream held would never come."""


@pytest.fixture
def people(transactional_db: None) -> People:
    return People()


@pytest.fixture
def run(people: People) -> Run:
    return a_run(started_by=people.starter, label="followed")


@pytest.fixture
def site(people: People, tmp_path: Path) -> Iterator[str]:
    with web(
        tmp_path / "web.log", COUNTERSIGN_SOCKETS_PER_PERSON=str(MANY + 5)
    ) as address:
        yield address


def happen(run: Run, *numbers: int, note: str = "") -> None:
    for seq in numbers:
        an_event(
            run, seq, type="checkpoint_saved", payload={"superstep": seq, "note": note}
        )
    Run.objects.filter(id=run.id).update(event_seq=max(numbers))


class Stream:
    """An open stream, read line by line."""

    def __init__(self, site: str, run: Run, token: str, **headers: str) -> None:
        self.link = http.client.HTTPConnection(urlsplit(site).netloc, timeout=15)
        sent_headers = {
            "Authorization": f"Token {token}",
            "Accept": "text/event-stream",
            **headers,
        }
        self.link.request("GET", f"/api/v1/runs/{run.id}/stream/", headers=sent_headers)
        self.answer = self.link.getresponse()

    def numbers(self, count: int) -> list[int]:
        """The ids of the next lines; fewer where the stream ends."""
        collected: list[int] = []
        while len(collected) < count and (row := self.answer.readline()):
            if row.startswith(b"id: "):
                collected.append(int(row[4:]))
        return collected

    def close(self) -> None:
        self.answer.close()
        self.link.close()


def loads_soon(site: str, token: str) -> None:
    """The list of runs and the sign of life come as if nobody followed anything."""
    for path in ("/api/v1/runs/", "/healthz"):
        link = http.client.HTTPConnection(urlsplit(site).netloc, timeout=15)
        began = time.monotonic()
        link.request("GET", path, headers={"Authorization": f"Token {token}"})
        answer = link.getresponse()
        answer.read()
        link.close()
        assert answer.status == 200, path
        assert time.monotonic() - began < SOON, path


def test_a_stream_that_is_cut_is_resumed_where_it_was_for_who_may_see_the_run(
    site: str, run: Run, people: People
) -> None:
    ada, nobody = (
        tokens.make_token(user, scopes=["read"])
        for user in (people.auditor, people.nobody)
    )
    happen(run, *range(1, 7))
    seen: list[int] = []
    for more in (2, 3, 4):
        known = {"Last-Event-ID": str(seen[-1])} if seen else {}
        with closing(Stream(site, run, ada, **known)) as live:
            assert live.answer.getheader("Content-Type") == "text/event-stream"
            seen += live.numbers(1)
            last = Run.objects.get(id=run.id).event_seq
            happen(run, *range(last + 1, last + 3))
            seen += live.numbers(more - 1)
    assert seen == [*range(1, 10)]
    for token, status in ((nobody, 404), ("", 401)):
        with closing(Stream(site, run, token)) as refused:
            assert refused.answer.status == status
            assert json.loads(refused.answer.read())["status"] == status
    with closing(Stream(site, run, ada)) as live:
        live.numbers(1)
        row = tokens.find_token(ada)
        assert row is not None
        tokens.revoke_token(row)
        happen(run, 13)
        assert 13 not in live.numbers(20), "the stream ends with its token"


def test_fifty_streams_and_one_that_nobody_reads_hold_up_no_page_and_each_gets_every_line(
    site: str, run: Run, people: People
) -> None:
    ada = tokens.make_token(people.auditor, scopes=["read"])
    happen(run, *range(1, 4))
    large = a_run(key="large", started_by=people.starter)
    happen(large, 1, 2, 3, note="x" * LARGE)
    with ExitStack() as stack:
        stack.callback(_unread(site, large, ada).close)
        streams = [
            stack.enter_context(closing(Stream(site, run, ada))) for _ in range(MANY)
        ]
        loads_soon(site, ada)
        assert {tuple(stream.numbers(3)) for stream in streams} == {(1, 2, 3)}
        happen(run, 4, 5)
        loads_soon(site, ada)
        assert {tuple(stream.numbers(2)) for stream in streams} == {(4, 5)}
    loads_soon(site, ada)


def _unread(site: str, run: Run, token: str) -> Any:
    """A client that asks for a stream and takes nothing of it."""
    host = urlsplit(site)
    link = socket.create_connection((host.hostname or "", host.port or 0), 15)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    head = (
        f"GET /api/v1/runs/{run.id}/stream/ HTTP/1.1\r\nHost:"
        f" {host.netloc}\r\nAuthorization: Token {token}\r\n\r\n"
    )
    link.sendall(head.encode())
    return link
