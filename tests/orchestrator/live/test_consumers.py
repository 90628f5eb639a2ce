"""What sockets send: every later line once, in order, to whoever may see the run; and
which rows of a list moved.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from channels.testing import WebsocketCommunicator
from django.utils import timezone

from approvals.models import PersonNotice
from approvals.people.comments import comment
from approvals.people.notice_list import mark_read
from checkpoints.models import Run
from orchestrator.live import consumers, hub
from orchestrator.live.routing import websocket_urlpatterns
from tests.support.browsers import close_of, happen
from tests.support.cast import People
from tests.support.rows import a_request, a_run, a_worker

pytestmark = pytest.mark.django_db(transaction=True)

application = URLRouter(websocket_urlpatterns)


@asynccontextmanager
async def socket(path: str, user: Any) -> AsyncIterator[WebsocketCommunicator]:
    communicator = WebsocketCommunicator(application, path)
    communicator.scope["user"] = user
    connected, _ = await communicator.connect(timeout=15)
    assert connected
    try:
        yield communicator
    finally:
        await communicator.disconnect(timeout=15)


async def numbers_from(communicator: WebsocketCommunicator, count: int) -> list[int]:
    return [
        (await communicator.receive_json_from(timeout=15))["seq"] for _ in range(count)
    ]


async def closed_with(path: str, user: Any) -> int:
    communicator = WebsocketCommunicator(application, path)
    communicator.scope["user"] = user
    await communicator.connect(timeout=15)
    message = await communicator.receive_output(timeout=15)
    assert message["type"] == "websocket.close"
    return int(message["code"])


async def test_every_line_after_the_last_seen_is_sent_once_in_order(
    run: Run, people: People
) -> None:
    await happen(run, 1, 2, 3)
    async with socket(f"/ws/runs/{run.id}/?after=1", people.starter) as live:
        assert await numbers_from(live, 2) == [2, 3]
        assert await live.receive_nothing(timeout=0.4)


async def test_lines_that_come_later_are_sent_when_they_come(
    run: Run, people: People
) -> None:
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        await happen(run, 1)
        assert await numbers_from(live, 1) == [1]
        await happen(run, 2, 3)
        assert await numbers_from(live, 2) == [2, 3]


async def test_what_was_missed_while_away_is_sent_on_return(
    run: Run, people: People
) -> None:
    await happen(run, 1)
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        assert await numbers_from(live, 1) == [1]
    await happen(run, 2, 3, 4)
    async with socket(f"/ws/runs/{run.id}/?after=1", people.starter) as live:
        assert await numbers_from(live, 3) == [2, 3, 4]


async def test_more_lines_than_one_batch_all_arrive(
    run: Run, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.live.tail.BATCH", 10)
    await happen(run, *range(1, 36))
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        assert await numbers_from(live, 35) == list(range(1, 36))


async def test_two_viewers_get_the_same_lines(run: Run, people: People) -> None:
    path = f"/ws/runs/{run.id}/?after=0"
    async with (
        socket(path, people.starter) as first,
        socket(path, people.auditor) as second,
    ):
        await happen(run, 1, 2)
        assert await numbers_from(first, 2) == await numbers_from(second, 2) == [1, 2]


async def test_a_message_carries_the_line(run: Run, people: People) -> None:
    await happen(run, 1)
    async with socket(f"/ws/runs/{run.key}/?after=0", people.starter) as live:
        message = await live.receive_json_from(timeout=15)
    assert message["seq"] == 1
    assert message["type"] == "checkpoint_saved"
    assert message["payload"] == {"superstep": 1}


async def test_a_run_one_may_not_see_closes_as_one_that_is_not_there(
    run: Run, people: People
) -> None:
    assert (
        await closed_with(f"/ws/runs/{run.id}/", people.nobody) == consumers.NOT_FOUND
    )
    assert await closed_with("/ws/runs/nothing/", people.starter) == consumers.NOT_FOUND


async def test_a_number_that_is_none_is_refused(run: Run, people: People) -> None:
    assert (
        await closed_with(f"/ws/runs/{run.id}/?after=-1", people.starter)
        == consumers.BAD_MESSAGE
    )
    assert (
        await closed_with(f"/ws/runs/{run.id}/?after={'9' * 30}", people.starter)
        == consumers.BAD_MESSAGE
    )


async def test_the_highest_number_there_can_be_is_waited_behind(
    run: Run, people: People
) -> None:
    await happen(run, 1)
    async with socket(f"/ws/runs/{run.id}/?after={2**63 - 1}", people.starter) as live:
        assert await live.receive_nothing(timeout=0.4)


async def test_a_gap_in_the_numbers_closes_instead_of_being_papered_over(
    run: Run, people: People
) -> None:
    await happen(run, 1, 3)
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        assert await numbers_from(live, 1) == [1]
        message = await live.receive_output(timeout=15)
    assert message["code"] == consumers.GAP


async def test_a_list_is_told_which_rows_moved(run: Run, people: People) -> None:
    other = await database_sync_to_async(a_run)(started_by=people.starter)
    async with socket("/ws/runs/", people.starter) as live:
        await live.send_json_to({"watch": {str(run.id): 0, str(other.id): 0}})
        await happen(run, 1)
        assert await live.receive_json_from(timeout=15) == {
            "run": str(run.id),
            "seq": 1,
        }
        assert await live.receive_nothing(timeout=0.4)


async def test_a_list_is_not_told_of_rows_that_one_may_not_see(
    run: Run, people: People
) -> None:
    async with socket("/ws/runs/", people.nobody) as live:
        await live.send_json_to({"watch": {str(run.id): 0}})
        await happen(run, 1)
        assert await live.receive_nothing(timeout=0.6)


async def test_one_look_serves_all_watchers(
    run: Run, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    look = hub._heads

    async def counted(runs: Any) -> Any:
        calls.append(len(runs))
        return await look(runs)

    monkeypatch.setattr(hub, "_heads", counted)
    path = f"/ws/runs/{run.id}/?after=0"
    async with (
        socket(path, people.starter),
        socket(path, people.starter),
        socket(path, people.starter),
    ):
        calls.clear()
        await asyncio.sleep(hub.PERIOD * 4)
    assert len(calls) <= 5
    assert set(calls) == {1}


async def test_the_bar_is_told_at_once_and_whenever_something_is_asked_or_settled(
    run: Run, people: People
) -> None:
    rita = await database_sync_to_async(lambda: people.reviewer)()
    async with socket("/ws/reviews/", rita) as live:
        at_first = await live.receive_json_from(timeout=15)
        assert at_first["waiting"] == 0
        assert at_first["more"] is False
        open_request = await database_sync_to_async(a_request)(run, "user:rita")
        then = await _next_of(live, waiting=1)
        assert then["mark"] != at_first["mark"]
        await database_sync_to_async(a_request)(run, "user:ravi")
        await database_sync_to_async(
            lambda: (
                type(open_request)
                .objects.filter(id=open_request.id)
                .update(status="settled")
            )
        )()
        assert (await _next_of(live, waiting=0))["mark"] != then["mark"]


async def _next_of(live: Any, *, waiting: int) -> Any:
    """The next message with this number. One before may still have the last number, if
    the change came while it was made.
    """
    for _ in range(2):
        message = await live.receive_json_from(timeout=15)
        if message["waiting"] == waiting:
            break
    assert message["waiting"] == waiting
    return message


async def test_the_bar_is_told_when_notices_were_read_in_another_window(
    run: Run, people: People
) -> None:
    def notify() -> PersonNotice:
        return PersonNotice.objects.create(
            user=people.reviewer,
            notice=1,
            event="request.opened",
            run=run.id,
            at=timezone.now(),
        )

    row = await database_sync_to_async(notify)()
    async with socket("/ws/reviews/", people.reviewer) as live:
        assert (await live.receive_json_from(timeout=15))["notices"] == 1
        await database_sync_to_async(mark_read)(people.reviewer, until=row.id)
        assert (await live.receive_json_from(timeout=15))["notices"] == 0


async def test_the_bar_is_not_told_of_what_others_are_asked(
    run: Run, people: People
) -> None:
    rita = await database_sync_to_async(lambda: people.reviewer)()
    async with socket("/ws/reviews/", rita) as live:
        await live.receive_json_from(timeout=15)
        await database_sync_to_async(a_request)(run, "user:ravi")
        assert await live.receive_nothing(timeout=hub.INBOX_PERIOD * 2)


async def test_the_bar_is_told_when_the_last_worker_is_silent_and_when_one_is_back(
    run: Run, people: People
) -> None:
    async with socket("/ws/reviews/", people.nobody) as live:
        assert (await live.receive_json_from(timeout=15))["silence"] == {
            "since": None,
            "text": "",
        }
        worker = await database_sync_to_async(a_worker)()
        assert (await live.receive_json_from(timeout=15))["silence"] is None
        await database_sync_to_async(
            lambda: type(worker).objects.update(stopped_at=worker.started_at)
        )()
        assert (await live.receive_json_from(timeout=15))["silence"][
            "since"
        ] == worker.heartbeat_at.isoformat()


@pytest.mark.parametrize("path", ["/ws/reviews/", "/ws/runs/", "/ws/runs/{run}/"])
@pytest.mark.parametrize(
    "text",
    ["[" * 50_000 + "]" * 50_000, '{"watch":' * 50_000, "[" * 8_000 + "]" * 8_000],
)
async def test_a_message_that_is_nested_deeply_closes_the_socket_by_a_code_of_ours(
    path: str, text: str, run: Run, people: People
) -> None:
    async with socket(path.format(run=run.id), people.starter) as live:
        await live.send_to(text_data=text)
        code = await close_of(live)
    assert code in (consumers.BAD_MESSAGE, consumers.TOO_LARGE)


def test_every_close_code_is_one_that_the_web_server_sends() -> None:
    names = (
        "NOT_FOUND",
        "GAP",
        "BAD_MESSAGE",
        "SIGNED_OUT",
        "TOO_MANY",
        "TOO_LARGE",
        "TRY_AGAIN",
    )
    codes = [getattr(consumers, name) for name in names]
    assert all(3000 <= code <= 4999 for code in codes), codes
    assert len({*codes}) == len(codes)


async def test_who_asks_for_comments_gets_their_number_when_it_changes(
    run: Run, people: People
) -> None:
    open_request = await database_sync_to_async(a_request)(run, "user:olive")
    async with socket(f"/ws/runs/{run.id}/?after=0&comments=0", people.starter) as live:
        assert await live.receive_nothing(timeout=0.5)
        await database_sync_to_async(comment)(
            open_request.id, "Hello.", by=people.starter
        )
        assert await live.receive_json_from(timeout=15) == {"comments": 1}
        assert await live.receive_nothing(timeout=0.5)
    async with socket(f"/ws/runs/{run.id}/?after=0", people.starter) as live:
        assert await live.receive_nothing(timeout=0.5)
    address = f"/ws/runs/{run.id}/?after=0&comments=one"
    assert await closed_with(address, people.starter) == consumers.BAD_MESSAGE
