"""The lines of a log as they come: read, cut, and followed again."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

from orchestrator.client import (
    ApiError,
    AsyncClient,
    Client,
    NotAuthenticated,
    Unreachable,
    calls,
)
from orchestrator.client.events import EventReader
from orchestrator.client.exchange import LONGEST_PAUSE

SITE = "https://runs.example.org"
READ = calls.runs_retrieve("CLM-1")


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []
    monkeypatch.setattr("orchestrator.client.connections.time.sleep", taken.append)
    return taken


def line(seq: int) -> str:
    return f'id: {seq}\ndata: {{"seq": {seq}, "type": "checkpoint_saved"}}\n\n'


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The pieces of a stream, which may break off."""

    def __init__(self, *pieces: str | Exception) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece.encode()

    async def __aiter__(self) -> Any:
        for piece in self:
            yield piece


class Log:
    """A server that answers each opening by the next stream."""

    def __init__(self, *answers: Any) -> None:
        self.after: list[str] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/api/v1/runs/CLM-1/stream/"
        assert request.headers["Accept"] == "text/event-stream"
        self.after.append(request.headers["Last-Event-ID"])
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return answer
        return httpx.Response(200, stream=answer)

    def events(self, after: int = 0) -> Iterator[Any]:
        transport = httpx.MockTransport(self)
        client = Client(SITE, token="cst_1", transport=transport)
        return client.runs.events("CLM-1", after)


def numbers(events: Iterator[Any], count: int) -> list[int]:
    return [event["seq"] for event in islice(events, count)]


def test_lines_are_read_in_pieces_and_past_signs_of_life() -> None:
    log = Log(
        Stream("retry: 2000\n\n", ": still here\n\n" + line(8)[:20], line(8)[20:])
    )
    [event] = islice(log.events(after=7), 1)
    assert event == {"seq": 8, "type": "checkpoint_saved"}
    assert log.after == ["7"]


def test_a_stream_that_is_cut_is_followed_from_the_last_line(
    pauses: list[float],
) -> None:
    log = Log(
        Stream("retry: 100\n\n", line(1), line(2), httpx.ReadError("cut")),
        httpx.ConnectError("refused"),
        Stream(line(3), line(4)[:20], httpx.ReadTimeout("silent")),
        Stream(line(4)),
    )
    assert numbers(log.events(), 4) == [1, 2, 3, 4]
    assert log.after == ["0", "2", "2", "3"]
    assert len(pauses) == 3


def test_a_stream_that_ends_is_opened_again_after_the_pause_that_it_named(
    pauses: list[float],
) -> None:
    log = Log(Stream("retry: 100\n\n" + line(1)), Stream(line(2)))
    assert numbers(log.events(), 2) == [1, 2]
    assert pauses == [0.1]


def test_whoever_lost_the_right_gets_the_reason() -> None:
    refused = httpx.Response(401, json={"code": "authentication_failed"})
    events = Log(Stream(line(1)), refused).events()
    assert next(events)["seq"] == 1
    with pytest.raises(NotAuthenticated, match="GET runs/CLM-1/stream/"):
        next(events)


def test_it_gives_up_after_so_many_cuts_without_a_line() -> None:
    log = Log(*[httpx.ConnectError("refused")] * 4)
    with pytest.raises(Unreachable):
        next(log.events())
    assert len(log.after) == 4


def test_a_line_of_several_parts_is_one_text() -> None:
    reader = EventReader()
    for text in ("id:5", 'data: {"seq":', "data:5}"):
        assert reader.read(text) is None
    assert reader.read("") == {"seq": 5}
    assert reader.last == 5
    assert reader.read("") is None


async def test_the_client_that_awaits_follows_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(Stream("retry: 1\n\n" + line(1), httpx.ReadError("cut")), Stream(line(2)))
    seen = []
    monkeypatch.setattr("orchestrator.client.exchange.FIRST_PAUSE", 0.0)
    transport = httpx.MockTransport(log)
    async with AsyncClient(SITE, token="cst_1", transport=transport) as client:
        async for event in client.runs.events("CLM-1"):
            seen.append(event["seq"])
            if len(seen) == 2:
                break
    assert seen == [1, 2]
    assert log.after == ["0", "1"]


def test_an_event_that_is_no_json_is_an_error_with_a_cure() -> None:
    reader = EventReader()
    assert reader.read("data: {half") is None
    with pytest.raises(ApiError, match="no JSON"):
        reader.read("")


def test_no_server_puts_a_client_to_sleep_for_ever() -> None:
    reader = EventReader()
    for pause in ("99999999", "9" * 5000):
        reader.read(f"retry: {pause}")
        reader.read(f"id: {'9' * 5000}")
        assert reader.pause_after_cut(READ, None, retries=3) <= LONGEST_PAUSE
    assert reader.last == 0
