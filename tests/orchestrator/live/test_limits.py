"""What one person may ask of the sockets: how many, how often, how much, and nothing
that they do not know.
"""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from django.test import override_settings

from checkpoints.models import Run
from orchestrator.live import consumers, limits
from tests.support.browsers import Browser, close_of
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)

RUN = "0190c6a0-0000-7000-8000-000000000000"


@override_settings(COUNTERSIGN={"SOCKETS_PER_PERSON": 2})
async def test_nobody_has_more_sockets_than_the_limit_and_who_closes_one_may_open_another(
    run: Run, olive: Browser, ada: Browser
) -> None:
    async with AsyncExitStack() as stack:
        first = stack.enter_async_context(olive.socket("/ws/runs/"))
        async with olive.socket(f"/ws/runs/{run.id}/"):
            await first
            async with olive.socket("/ws/runs/") as third:
                assert await close_of(third) == consumers.TOO_MANY
            async with ada.socket("/ws/runs/") as other:
                assert await other.receive_nothing(timeout=0.2)
        async with olive.socket(f"/ws/runs/{run.id}/") as again:
            assert await again.receive_nothing(timeout=0.2)


async def test_a_socket_that_broke_is_no_longer_counted(
    people: People, olive: Browser
) -> None:
    communicator = olive.communicator("/ws/runs/")
    await communicator.connect(timeout=15)
    assert limits._open[people.starter.pk] == 1
    communicator.stop()
    with pytest.raises(BaseException):  # noqa: B017, PT011
        await communicator.future
    assert people.starter.pk not in limits._open


@override_settings(COUNTERSIGN={"SOCKET_MESSAGES_PER_SECOND": 3.0})
async def test_who_speaks_more_often_than_the_limit_is_cut_off(olive: Browser) -> None:
    async with olive.socket("/ws/runs/") as live:
        for _ in range(3):
            await live.send_json_to({"watch": {}})
        assert await live.receive_nothing(timeout=0.2)
        await live.send_json_to({"watch": {}})
        await live.send_json_to({"watch": {}})
        assert await close_of(live) == consumers.TOO_MANY


def test_the_limit_of_messages_is_made_up_for_with_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    rate = limits.Rate(2)
    assert [rate.allows_one() for _ in range(3)] == [True, True, False]
    now[0] += 0.5
    assert [rate.allows_one() for _ in range(2)] == [True, False]
    now[0] += 60
    assert [rate.allows_one() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("text", ["no json", '{"watch": {}, "more": 1}'])
async def test_a_message_that_cannot_be_read_closes_the_socket(
    text: str, olive: Browser
) -> None:
    async with olive.socket("/ws/runs/") as live:
        await live.send_to(text_data=text)
        assert await close_of(live) == consumers.BAD_MESSAGE


async def test_a_message_that_is_too_large_closes_the_socket(olive: Browser) -> None:
    async with olive.socket("/ws/runs/") as live:
        await live.send_to(text_data='{"watch": {}}' + " " * 20_000)
        assert await close_of(live) == consumers.TOO_LARGE


async def test_bytes_close_the_socket(olive: Browser) -> None:
    async with olive.socket("/ws/runs/") as live:
        await live.send_to(bytes_data=b"{}")
        assert await close_of(live) == consumers.BAD_MESSAGE


async def test_a_socket_that_follows_a_run_takes_no_message(
    run: Run, olive: Browser
) -> None:
    async with olive.socket(f"/ws/runs/{run.id}/") as live:
        await live.send_json_to({"watch": {}})
        assert await close_of(live) == consumers.BAD_MESSAGE


async def test_a_list_of_a_hundred_rows_is_watched(olive: Browser) -> None:
    watched: dict[str, Any] = {RUN[:-3] + f"{n:03}": 10**12 for n in range(100)}
    async with olive.socket("/ws/runs/") as live:
        await live.send_json_to({"watch": watched})
        assert await live.receive_nothing(timeout=0.4)
