"""Waiting for an approval, and following it: until it is decided, and for who may see it."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from channels.db import database_sync_to_async
from django.contrib.auth.models import User
from django.db import connections

from checkpoints.models import Run
from orchestrator import asking, tokens
from orchestrator.engine import registry
from orchestrator.graphs import approval
from orchestrator.live import approval_stream, limits, stream
from orchestrator.live.hub import Hub
from orchestrator.live.viewers import SignedOut
from tests.support.approvals import decided, opened, payers, reported
from tests.support.browsers import Browser
from tests.support.cast import People
from tests.support.streams import Stream
from tests.support.streams import opened as connected

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def rita(people: People) -> User:
    registry.replace(approval)
    payers(people.reviewer)
    return people.reviewer


@pytest.fixture
def asked(rita: User) -> asking.Approval:
    return opened(reports=True)


@pytest.fixture
def token(people: People) -> str:
    return tokens.make_token(people.auditor, scopes=["read"])


def _waiting(asked: asking.Approval, seconds: int) -> str:
    return f"approvals/{asked.run.id}/?wait={seconds}"


def _call(path: str, token: str) -> Any:
    return connected(path, token=token, accept="*/*")


def _followed(asked: asking.Approval) -> str:
    return f"approvals/{asked.run.id}/stream/"


async def _in_thread(act: Any) -> Any:
    return await database_sync_to_async(act, thread_sensitive=False)()


async def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(600):
        if is_so():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never came")


async def _watched(run: Run) -> None:
    await _until(lambda: run.id in Hub.here()._bells)


async def _state(live: Stream) -> dict[str, Any]:
    """The next event: the approval, with the number of the event as `number`."""
    while (block := await live.block()) is not None:
        fields = dict(row.split(": ", 1) for row in block.splitlines())
        if "data" in fields:
            return {"number": fields["id"], **json.loads(fields["data"])}
    raise AssertionError("the stream has ended")


async def test_who_waits_is_answered_when_people_have_decided(
    asked: asking.Approval, rita: User, token: str
) -> None:
    async with _call(_waiting(asked, 60), token) as live:
        assert live.status == 200
        assert live.headers["content-type"] == "application/json"
        await _watched(asked.run)
        await _in_thread(lambda: decided(asked, rita, "approve", "reject"))
        answer = await live.body()
    assert answer["state"] == "partial"
    assert [item["verdict"] for item in answer["items"]] == ["approved", "rejected"]
    assert not Hub.here()._bells
    assert limits.all_open_sockets() == 0


async def test_who_waited_long_enough_is_answered_with_what_there_is(
    asked: asking.Approval, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "HEARTBEAT", 0.2)
    async with _call(_waiting(asked, 1), token) as live:
        assert (await live.body())["state"] == "open"


async def test_what_is_decided_is_answered_at_once(
    asked: asking.Approval, rita: User, token: str
) -> None:
    await _in_thread(lambda: decided(asked, rita, "approve", "approve"))
    async with _call(_waiting(asked, 60), token) as live:
        assert (await live.body())["state"] == "approved"
    assert not Hub.here()._bells


@pytest.mark.parametrize("wait", ["61", "-1", "x", ""])
async def test_a_wait_that_is_none_is_refused(
    asked: asking.Approval, token: str, wait: str
) -> None:
    path = f"approvals/{asked.run.id}/?wait={wait}"
    async with _call(path, token) as live:
        assert live.status == 400


async def test_who_may_not_see_it_when_it_is_decided_gets_no_answer(
    asked: asking.Approval, rita: User, token: str
) -> None:
    # The connection breaks off; who calls again receives the reason.
    with pytest.raises(SignedOut):  # noqa: PT012
        async with _call(_waiting(asked, 60), token) as live:
            await _watched(asked.run)
            row = await _in_thread(lambda: tokens.find_token(token))
            await _in_thread(lambda: tokens.revoke_token(row))
            await _in_thread(lambda: decided(asked, rita, "approve", "approve"))
            await live.body()


async def test_a_waiting_call_beyond_the_limit_is_refused(
    asked: asking.Approval, token: str, configure: Any
) -> None:
    configure(WAITS_PER_PERSON=1)
    async with _call(_waiting(asked, 60), token):
        await _watched(asked.run)
        async with _call(_waiting(asked, 60), token) as refused:
            assert refused.status == 429
        async with _call(_waiting(asked, 0), token) as at_once:
            assert at_once.status == 200


async def test_many_who_wait_keep_no_thread_and_no_look_for_themselves(
    asked: asking.Approval, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Any] = []
    look_at = approval_stream.look_at

    def counting(*of: Any) -> approval_stream.SeenApproval:
        looks.append(of)
        return look_at(*of)

    monkeypatch.setattr(approval_stream, "look_at", counting)
    async with asyncio.TaskGroup() as group:
        ready = asyncio.Semaphore(0)
        leave = asyncio.Event()

        async def wait() -> None:
            async with _call(_waiting(asked, 60), token) as live:
                assert live.status == 200
                ready.release()
                await leave.wait()

        before = threading.active_count()
        for _ in range(60):
            group.create_task(wait())
        for _ in range(60):
            await ready.acquire()
        await _until(lambda: len(Hub.here()._bells.get(asked.run.id, ())) == 60)
        # Those of the shared pool alone, which looks for all of them.
        await _until(lambda: len(looks) >= 120)
        assert threading.active_count() - before < 50
        # One before it waits, one as it begins to, and one for the first of the hub.
        assert len(looks) <= 180
        leave.set()
    connections.close_all()


def test_a_server_that_cannot_wait_says_so(
    asked: asking.Approval, people: People
) -> None:
    browser = Browser(people.auditor).client
    answer = browser.get(f"/api/v1/{_waiting(asked, 5)}")
    assert (answer.status_code, answer.json()["code"]) == (406, "stream_not_served")
    assert browser.head(f"/api/v1/{_waiting(asked, 5)}").status_code == 200
    assert browser.get(f"/api/v1/{_waiting(asked, 0)}").json()["state"] == "open"
    assert browser.get(f"/api/v1/{_followed(asked)}").status_code == 406


async def test_each_change_is_an_event_until_the_outcome_is_reported(
    asked: asking.Approval, rita: User, token: str
) -> None:
    async with connected(_followed(asked), token=token) as live:
        first = await _state(live)
        assert first["state"] == "open"
        await _in_thread(lambda: decided(asked, rita, "approve", "reject"))
        second = await _state(live)
        assert second["state"] == "partial"
        said = [{"item": "inv-1", "result": "failed", "detail": "closed"}]
        await _in_thread(lambda: reported(asked.run, said))
        last = await _state(live)
        assert last["items"][0]["outcome"]["result"] == "failed"
        assert await live.line() is None
        assert live.ended
    known = {"token": token, "last_event_id": last["number"]}
    async with connected(_followed(asked), **known) as again:
        assert again.status == 204
    known["last_event_id"] = second["number"]
    async with connected(_followed(asked), **known) as again:
        assert (await _state(again))["number"] == last["number"]
        assert await again.line() is None


async def test_without_reports_the_stream_ends_with_the_decision(
    rita: User, token: str
) -> None:
    asked = await _in_thread(opened)
    async with connected(_followed(asked), token=token) as live:
        await _state(live)
        await _in_thread(lambda: decided(asked, rita, "reject", "reject"))
        assert (await _state(live))["state"] == "rejected"
        assert await live.line() is None


async def test_the_stream_ends_with_the_right_to_see_it(
    asked: asking.Approval, rita: User, token: str
) -> None:
    async with connected(_followed(asked), token=token) as live:
        await _state(live)
        row = await _in_thread(lambda: tokens.find_token(token))
        await _in_thread(lambda: tokens.revoke_token(row))
        await _in_thread(lambda: decided(asked, rita, "approve", "approve"))
        assert await live.line() is None


async def test_a_stranger_follows_nothing(
    asked: asking.Approval, people: People
) -> None:
    stranger = await _in_thread(lambda: tokens.make_token(people.nobody))
    for path in (_followed(asked), _waiting(asked, 60)):
        async with _call(path, stranger) as live:
            assert live.status == 404
            assert (await live.body())["code"] == "unknown_thing"
