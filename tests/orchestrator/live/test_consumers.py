"""What sockets send: every later line once, in order, to whoever may see the run; and which rows of a list moved."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.contrib.auth.models import AnonymousUser
from django.db import connections

from checkpoints.models import Run
from orchestrator.live import consumers, hub
from orchestrator.live.routing import websocket_urlpatterns
from tests.support.cast import People
from tests.support.rows import a_run, an_event

pytestmark = pytest.mark.django_db(transaction=True)

application = URLRouter(websocket_urlpatterns)


@pytest.fixture(autouse=True)
def no_connection_is_left_open(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads that look would keep their connections for a minute, and the test database could not be dropped."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)


@pytest.fixture
def people(transactional_db: None) -> People:
    """The cast, made at once: a socket's test cannot wait for the database."""
    cast = People()
    assert all((cast.starter, cast.auditor, cast.nobody))
    return cast


@pytest.fixture
def run(people: People) -> Run:
    return a_run(started_by=people.starter, label="followed")


async def happen(run: Run, *numbers: int) -> None:
    """Lines of these numbers are in the log, and the run's row says so."""

    def write() -> None:
        for seq in numbers:
            an_event(run, seq, type="checkpoint_saved", payload={"superstep": seq})
        Run.objects.filter(id=run.id).update(event_seq=max(numbers))

    await sync_to_async(write)()


@asynccontextmanager
async def socket(path: str, user: Any) -> AsyncIterator[WebsocketCommunicator]:
    communicator = WebsocketCommunicator(application, path)
    communicator.scope["user"] = user
    connected, _ = await communicator.connect(timeout=5)
    assert connected
    try:
        yield communicator
    finally:
        await communicator.disconnect(timeout=5)


async def numbers_from(communicator: WebsocketCommunicator, count: int) -> list[int]:
    return [(await communicator.receive_json_from(timeout=5))["seq"] for _ in range(count)]


async def closed_with(path: str, user: Any) -> int:
    communicator = WebsocketCommunicator(application, path)
    communicator.scope["user"] = user
    await communicator.connect(timeout=5)
    message = await communicator.receive_output(timeout=5)
    assert message["type"] == "websocket.close"
    return int(message["code"])


async def test_every_line_after_the_last_seen_is_sent_once_in_order(run: Run, people: People) -> None:
    await happen(run, 1, 2, 3)
    async with socket(f"/ws/runs/{run.id}/?after=1", people.starter) as live:
        assert await numbers_from(live, 2) == [2, 3]
        assert await live.receive_nothing(timeout=0.4)


async def test_lines_that_come_later_are_sent_when_they_come(run: Run, people: People) -> None:
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        await happen(run, 1)
        assert await numbers_from(live, 1) == [1]
        await happen(run, 2, 3)
        assert await numbers_from(live, 2) == [2, 3]


async def test_what_was_missed_while_away_is_sent_on_return(run: Run, people: People) -> None:
    await happen(run, 1)
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        assert await numbers_from(live, 1) == [1]
    await happen(run, 2, 3, 4)
    async with socket(f"/ws/runs/{run.id}/?after=1", people.starter) as live:
        assert await numbers_from(live, 3) == [2, 3, 4]


async def test_more_lines_than_one_batch_all_arrive(run: Run, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.live.tail.BATCH", 10)
    await happen(run, *range(1, 36))
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        assert await numbers_from(live, 35) == list(range(1, 36))


async def test_two_viewers_get_the_same_lines(run: Run, people: People) -> None:
    path = f"/ws/runs/{run.id}/?after=0"
    async with socket(path, people.starter) as one, socket(path, people.auditor) as two:
        await happen(run, 1, 2)
        assert await numbers_from(one, 2) == await numbers_from(two, 2) == [1, 2]


async def test_a_message_carries_the_line(run: Run, people: People) -> None:
    await happen(run, 1)
    async with socket(f"/ws/runs/{run.key}/?after=0", people.starter) as live:
        message = await live.receive_json_from(timeout=5)
    assert (message["seq"], message["type"], message["payload"]) == (1, "checkpoint_saved", {"superstep": 1})


async def test_a_run_one_may_not_see_closes_as_one_that_is_not_there(run: Run, people: People) -> None:
    assert await closed_with(f"/ws/runs/{run.id}/", people.nobody) == consumers.NOT_FOUND
    assert await closed_with(f"/ws/runs/{run.id}/", AnonymousUser()) == consumers.NOT_FOUND
    assert await closed_with("/ws/runs/nothing/", people.starter) == consumers.NOT_FOUND


async def test_a_number_that_is_none_is_refused(run: Run, people: People) -> None:
    assert await closed_with(f"/ws/runs/{run.id}/?after=-1", people.starter) == consumers.BAD_MESSAGE


async def test_a_right_that_was_taken_away_ends_the_socket(
    run: Run, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "CHECK_AGAIN", 0.0)
    async with socket(f"/ws/runs/{run.id}/?after=0", people.auditor) as live:
        await sync_to_async(people.auditor.groups.clear)()
        await happen(run, 1)
        message = await live.receive_output(timeout=5)
    assert (message["type"], message["code"]) == ("websocket.close", consumers.NOT_FOUND)


async def test_a_gap_in_the_numbers_closes_instead_of_being_papered_over(run: Run, people: People) -> None:
    await happen(run, 1, 3)
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        assert await numbers_from(live, 1) == [1]
        message = await live.receive_output(timeout=5)
    assert message["code"] == consumers.GAP


async def test_a_list_is_told_which_rows_moved(run: Run, people: People) -> None:
    other = await sync_to_async(a_run)(started_by=people.starter)
    async with socket("/ws/runs/", people.starter) as live:
        await live.send_json_to({"watch": {str(run.id): 0, str(other.id): 0}})
        await happen(run, 1)
        assert await live.receive_json_from(timeout=5) == {"run": str(run.id), "seq": 1}
        assert await live.receive_nothing(timeout=0.4)


async def test_a_list_is_not_told_of_rows_that_one_may_not_see(run: Run, people: People) -> None:
    async with socket("/ws/runs/", people.nobody) as live:
        await live.send_json_to({"watch": {str(run.id): 0}})
        await happen(run, 1)
        assert await live.receive_nothing(timeout=0.6)


@pytest.mark.parametrize("text", ["no json", "[]", '{"watch": {"x": 1}}', '{"watch": 3}'])
async def test_a_message_that_cannot_be_read_closes_the_socket(text: str, people: People) -> None:
    async with socket("/ws/runs/", people.starter) as live:
        await live.send_to(text_data=text)
        message = await live.receive_output(timeout=5)
    assert message["code"] == consumers.BAD_MESSAGE


async def test_one_look_serves_all_watchers(run: Run, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    look = hub._heads

    async def counted(runs: Any) -> Any:
        asked.append(len(runs))
        return await look(runs)

    monkeypatch.setattr(hub, "_heads", counted)
    path = f"/ws/runs/{run.id}/?after=0"
    async with socket(path, people.starter), socket(path, people.starter), socket(path, people.starter):
        asked.clear()
        await asyncio.sleep(hub.PERIOD * 4)
    assert len(asked) <= 5
    assert set(asked) == {1}
