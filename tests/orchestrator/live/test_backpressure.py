"""daphne, started with an application that sends much: what nobody reads is not made.
Without Django.
"""

import http.client
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.processes import ROOT, until, web

PART = 100_000
PARTS = 600
FEW = 200
"""Parts that fit into the buffers between two sockets, with room."""
APPLICATION = f"""
from pathlib import Path
from orchestrator.live.backpressure import PacedResponses

async def parts(scope, receive, send):
    await send({{"type": "http.response.start", "status": 200, "headers": []}})
    progress = Path(__file__).with_name(scope["path"].strip("/"))
    try:
        for number in range({PARTS}):
            await send({{"type": "http.response.body", "body": b"x" * {PART}, "more_body": True}})
            progress.write_text(str(number + 1))
            if scope["path"] == "/failed" and number == 3:
                raise ValueError("in the middle")
    finally:
        progress.with_suffix(".ended").touch()
    await send({{"type": "http.response.body", "body": b"end"}})

application = PacedResponses(parts)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder where the application tells how many parts it has sent, and its
    address.
    """
    folder = tmp_path_factory.mktemp("paced")
    (folder / "paced.py").write_text(APPLICATION)
    with web(
        folder / "log",
        application="paced:application",
        PYTHONPATH=f"{folder}{os.pathsep}{ROOT}",
    ) as address:
        yield folder, address


def asked(address: str, path: str) -> socket.socket:
    host = urlsplit(address)
    link = socket.create_connection((host.hostname or "", host.port or 0), 15)
    link.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    return link


def sent(file: Path) -> int:
    return int(file.read_text() or 0) if file.exists() else 0


def stands(file: Path) -> int:
    """Return how many parts were sent once no more come for a while."""
    before = -1
    while (now := sent(file)) != before or not now:
        before = now
        time.sleep(0.5)
    return before


def test_what_nobody_reads_is_not_made_and_whoever_reads_later_gets_all(
    site: tuple[Path, str],
) -> None:
    folder, address = site
    with asked(address, "/late") as link:
        assert stands(folder / "late") < FEW
        got = bytearray()
        while part := link.recv(2**20):
            got += part
    body = got.partition(b"\r\n\r\n")[2]
    assert len(body) == PARTS * PART + 3
    assert bytes(body[-4:]) == b"xend"


def test_an_answer_ends_when_its_reader_is_gone(site: tuple[Path, str]) -> None:
    folder, address = site
    with asked(address, "/gone"):
        assert stands(folder / "gone") < FEW
        assert not (folder / "gone.ended").exists()
    until((folder / "gone.ended").exists)


def test_an_answer_that_fails_half_way_ends_its_connection_and_the_server_goes_on(
    site: tuple[Path, str],
) -> None:
    folder, address = site
    link = http.client.HTTPConnection(urlsplit(address).netloc, timeout=15)
    with closing(link):
        link.request("GET", "/failed")
        answer = link.getresponse()
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
    assert sent(folder / "failed") == 4
    assert "in the middle" in (folder / "log").read_text()
    with asked(address, "/after") as later:
        assert later.recv(15).startswith(b"HTTP/1.")
