"""Server-sent events: each later line once, in order, also after a cut; for who may see
the run, as long as he may.
"""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import Group
from django.test import Client

from checkpoints.models import Run, RunEvent
from orchestrator import tokens
from orchestrator.live import limits, stream, tail
from orchestrator.live.hub import Hub
from tests.support.browsers import Browser, happen
from tests.support.cast import People
from tests.support.streams import opened

pytestmark = pytest.mark.django_db(transaction=True)


def path(run: Run, after: Any = None) -> str:
    return f"runs/{run.id}/stream/" + ("" if after is None else f"?after={after}")


async def test_every_line_after_the_last_seen_is_sent_once_in_order_and_later_ones_when_they_come(
    run: Run, ada: Browser
) -> None:
    await happen(run, 1, 2, 3)
    async with opened(path(run, 1), cookie=ada.cookie) as live:
        assert live.status == 200
        assert live.headers["content-type"] == "text/event-stream"
        assert live.headers["cache-control"] == "no-store"
        assert live.headers["x-accel-buffering"] == "no"
        assert await live.numbers(2) == [2, 3]
        await happen(run, 4)
        line = await live.line()
        assert line is not None
        assert line["id"] == 4
        assert line["seq"] == 4
        assert line["type"] == "checkpoint_saved"
        assert line["payload"] == {"superstep": 4}


async def test_a_client_that_is_cut_off_again_and_again_gets_each_line_once(
    run: Run, ada: Browser
) -> None:
    seen: list[int] = []
    for number in range(6):
        await happen(run, 2 * number + 1, 2 * number + 2)
        known = {"last_event_id": str(seen[-1])} if seen else {}
        # The address is the one that was opened first: what the client knows goes
        # before it.
        async with opened(path(run, 0), cookie=ada.cookie, **known) as live:
            seen += await live.numbers(1 if number % 2 else 2)
    async with opened(
        path(run, 0), cookie=ada.cookie, last_event_id=str(seen[-1])
    ) as live:
        seen += await live.numbers(12 - len(seen))
    assert seen == [*range(1, 13)]


async def test_more_lines_than_one_batch_all_arrive(
    run: Run, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.live.tail.BATCH", 3)
    await happen(run, *range(1, 11))
    async with opened(path(run), cookie=ada.cookie) as live:
        assert await live.numbers(10) == [*range(1, 11)]


@pytest.mark.parametrize(
    "after", ["-1", "x", "1.5", "", "9" * 30, "1&after=2", "٣", "1&before=2"]
)
async def test_a_number_that_is_none_is_refused_by_name(
    after: str, run: Run, ada: Browser
) -> None:
    async with opened(path(run, quote(after, safe="&=")), cookie=ada.cookie) as live:
        assert live.status == 400
        assert (await live.body())["code"] == "invalid_body"


async def test_a_last_event_id_that_is_none_is_refused_by_name(
    run: Run, ada: Browser
) -> None:
    async with opened(path(run, 1), cookie=ada.cookie, last_event_id="soon") as live:
        assert live.status == 400
        assert (await live.body())["errors"][0]["path"] == "Last-Event-ID"


async def test_a_run_that_one_may_not_see_is_not_there(
    run: Run, people: People, ada: Browser
) -> None:
    await happen(run, 1)
    nobody = await database_sync_to_async(lambda: Browser(people.nobody).cookie)()
    for session in ({"cookie": nobody}, {"cookie": ""}):
        async with opened(path(run), **session) as live:
            assert live.status == (404 if session["cookie"] else 401)
    async with opened("runs/none/stream/", cookie=ada.cookie) as live:
        assert live.status == 404


async def test_a_stream_ends_when_the_right_is_taken_away_and_not_one_line_is_sent_after(
    run: Run, people: People, ada: Browser
) -> None:
    await happen(run, 1)
    async with opened(path(run), cookie=ada.cookie) as live:
        assert await live.numbers(1) == [1]
        await database_sync_to_async(
            lambda: people.auditor.groups.remove(Group.objects.get(name="auditor"))
        )()
        await happen(run, 2)
        assert await live.line() is None
        assert live.ended


async def test_a_silent_stream_ends_with_its_session(
    run: Run, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "CHECK_AGAIN", 0.1)
    async with opened(path(run), cookie=ada.cookie) as live:
        assert await live.block() == f"retry: {stream.RETRY_MS}"
        await database_sync_to_async(ada.client.logout)()
        assert await live.line() is None


async def test_a_token_opens_a_stream_that_ends_when_it_is_revoked(
    run: Run, people: People
) -> None:
    await happen(run, 1)
    text = await database_sync_to_async(
        lambda: tokens.make_token(people.auditor, scopes=["read"])
    )()
    other = await database_sync_to_async(
        lambda: tokens.make_token(people.auditor, scopes=["steer"])
    )()
    async with opened(path(run), token=other) as live:
        assert live.status == 403
    async with opened(path(run), token=text) as live:
        assert await live.numbers(1) == [1]
        row = await database_sync_to_async(tokens.find_token)(text)
        assert row is not None
        await database_sync_to_async(tokens.revoke_token)(row)
        await happen(run, 2)
        assert await live.line() is None


async def test_a_gap_in_the_numbers_ends_the_stream_instead_of_being_papered_over(
    run: Run, ada: Browser
) -> None:
    await happen(run, 1, 2, 4)
    async with opened(path(run), cookie=ada.cookie) as live:
        assert await live.numbers(2) == [1, 2]
        assert await live.line() is None


async def test_a_comment_says_that_a_silent_stream_lives(
    run: Run, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.1)
    async with opened(path(run), cookie=ada.cookie) as live:
        assert [await live.block() for _ in range(3)][1:] == [": still here"] * 2


async def test_streams_and_sockets_of_a_user_are_limited_and_closed_ones_do_not_count(
    run: Run, people: People, ada: Browser, configure: Any
) -> None:
    configure(SOCKETS_PER_PERSON=2)
    await happen(run, 1)
    async with (
        ada.socket(f"/ws/runs/{run.id}/"),
        opened(path(run), cookie=ada.cookie) as first,
    ):
        assert await first.numbers(1) == [1]
        async with opened(path(run), cookie=ada.cookie) as refused:
            assert refused.status == 429
            assert refused.headers["retry-after"] == "2"
            assert (await refused.body())["code"] == "too_many_streams"
    assert await _freed(people.auditor.pk)
    async with opened(path(run), cookie=ada.cookie) as again:
        assert await again.numbers(1) == [1]
    assert await _freed(people.auditor.pk)
    assert not Hub.here()._bells, "nobody watches any more"


async def _freed(person: Any) -> bool:
    for _ in range(50):
        if not limits.open_sockets(person):
            return True
        await asyncio.sleep(0.1)
    return False


def test_a_server_that_cannot_stream_says_so(run: Run, ada: Browser) -> None:
    answer = ada.client.get(
        f"/api/v1/runs/{run.id}/stream/", headers={"Accept": "text/event-stream"}
    )
    assert answer.status_code == 406
    assert answer.json()["code"] == "stream_not_served"
    assert ada.client.head(f"/api/v1/runs/{run.id}/stream/").status_code == 200
    assert ada.client.post(f"/api/v1/runs/{run.id}/stream/").status_code == 405
    assert Client().get(f"/api/v1/runs/{run.id}/stream/").status_code == 401
    assert not RunEvent.objects.exists()
