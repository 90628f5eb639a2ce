"""A socket is open for whoever is signed in and may see the run, and no longer than
that.
"""

from collections.abc import Callable
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import override_settings
from django.utils import timezone

from checkpoints import timeline
from checkpoints.models import Run
from orchestrator.live import consumers, tail
from tests.support.browsers import Browser, close_of, happen
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)

SOCKETS = ["/ws/runs/{run}/?after=0", "/ws/runs/"]


def log_out(user: User, browser: Browser) -> None:
    browser.client.post("/logout/")


def let_the_session_expire(user: User, browser: Browser) -> None:
    assert Session.objects.update(expire_date=timezone.now()) == 1


def delete_the_session(user: User, browser: Browser) -> None:
    assert Session.objects.all().delete()[0] == 1


def change_the_password(user: User, browser: Browser) -> None:
    user.set_password("another one")
    user.save()


def close_the_account(user: User, browser: Browser) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


@pytest.mark.parametrize(
    ("act", "path"),
    [
        *(
            (act, SOCKETS[0])
            for act in (
                log_out,
                let_the_session_expire,
                delete_the_session,
                change_the_password,
                close_the_account,
            )
        ),
        (log_out, SOCKETS[1]),
    ],
)
async def test_an_open_socket_ends_with_its_session_even_if_nothing_happens(
    run: Run,
    people: People,
    ada: Browser,
    act: Callable[..., None],
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tail, "CHECK_AGAIN", 0.1)
    async with ada.socket(path.format(run=run.id)) as live:
        assert await live.receive_nothing(timeout=0.3)
        await database_sync_to_async(act)(people.auditor, ada)
        assert await close_of(live) == consumers.SIGNED_OUT


async def test_the_bar_ends_with_the_session_too(
    people: People, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "CHECK_AGAIN", 0.1)
    async with ada.socket("/ws/reviews/") as live:
        assert (await live.receive_json_from(timeout=15))["waiting"] == 0
        await database_sync_to_async(close_the_account)(people.auditor, ada)
        assert await close_of(live) == consumers.SIGNED_OUT


def test_what_is_silent_is_looked_at_every_few_seconds() -> None:
    assert tail.CHECK_AGAIN <= 5


async def test_not_one_line_is_sent_after_the_log_out(run: Run, ada: Browser) -> None:
    async with ada.socket(f"/ws/runs/{run.id}/") as live:
        await happen(run, 1)
        assert (await live.receive_json_from(timeout=15))["seq"] == 1
        await database_sync_to_async(ada.client.post)("/logout/")
        await happen(run, 2)
        message = await live.receive_output(timeout=15)
    assert message["type"] == "websocket.close"
    assert message["code"] == consumers.SIGNED_OUT


async def test_not_one_line_is_sent_after_the_right_was_taken_away(
    run: Run, people: People, ada: Browser
) -> None:
    async with ada.socket(f"/ws/runs/{run.id}/") as live:
        await happen(run, 1)
        assert (await live.receive_json_from(timeout=15))["seq"] == 1
        await database_sync_to_async(people.auditor.groups.clear)()
        await happen(run, 2)
        message = await live.receive_output(timeout=15)
    assert message["type"] == "websocket.close"
    assert message["code"] == consumers.NOT_FOUND


async def test_a_right_that_is_taken_away_while_lines_are_read_sends_none_of_them(
    run: Run, people: People, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = timeline.events_after

    def meanwhile(*args: Any, **kwargs: Any) -> Any:
        lines = read(*args, **kwargs)
        if lines:
            people.auditor.groups.clear()
        return lines

    async with ada.socket(f"/ws/runs/{run.id}/") as live:
        monkeypatch.setattr(timeline, "events_after", meanwhile)
        await happen(run, 1)
        message = await live.receive_output(timeout=15)
    assert message["type"] == "websocket.close"
    assert message.get("code") == consumers.NOT_FOUND


async def test_a_right_that_was_taken_away_closes_a_silent_socket_too(
    run: Run, people: People, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "CHECK_AGAIN", 0.1)
    async with ada.socket(f"/ws/runs/{run.id}/") as live:
        await database_sync_to_async(people.auditor.groups.clear)()
        assert await close_of(live) == consumers.NOT_FOUND


async def test_a_list_is_told_nothing_of_a_run_that_one_may_see_no_longer(
    run: Run, people: People, ada: Browser
) -> None:
    async with ada.socket("/ws/runs/") as live:
        await live.send_json_to({"watch": {str(run.id): 0}})
        await happen(run, 1)
        assert await live.receive_json_from(timeout=15) == {
            "run": str(run.id),
            "seq": 1,
        }
        await database_sync_to_async(people.auditor.groups.clear)()
        await happen(run, 2)
        if not await live.receive_nothing(timeout=0.6):
            # A database that is busy closes the socket, and the page opens another one.
            sent = await live.receive_output()
            assert sent["type"] == "websocket.close", sent


@pytest.mark.parametrize("path", SOCKETS)
async def test_who_is_not_signed_in_is_refused_before_the_socket_is_accepted(
    run: Run, path: str
) -> None:
    connected, _ = (
        await Browser(None).communicator(path.format(run=run.id)).connect(timeout=15)
    )
    assert not connected


async def test_a_session_that_has_ended_opens_no_socket(run: Run, ada: Browser) -> None:
    await database_sync_to_async(ada.client.post)("/logout/")
    connected, _ = await ada.communicator(f"/ws/runs/{run.id}/").connect(timeout=15)
    assert not connected


async def test_a_socket_outlives_a_change_of_the_secret_key_that_is_kept_as_fallback(
    run: Run, ada: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "CHECK_AGAIN", 0.1)
    async with ada.socket(f"/ws/runs/{run.id}/") as live:
        with override_settings(
            SECRET_KEY="n" * 50, SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]
        ):
            assert await live.receive_nothing(timeout=0.5)
            kept: Any = await database_sync_to_async(Session.objects.count)()
        assert kept == 1
