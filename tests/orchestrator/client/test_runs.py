"""Runs and requests over a server that streams: started, followed, signed, waited for."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group

from orchestrator import runs, tokens
from orchestrator.client import AsyncClient, Client, Conflict, DecisionSet, calls
from orchestrator.client.connections import Connection
from orchestrator.engine import registry
from tests.graphs_app import graphs
from tests.support.approvals import BODY
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def site(streaming_site: str) -> str:
    return streaming_site


@pytest.fixture(autouse=True)
def graph_is_registered(asked_of_payers: None, people: People) -> None:
    """Register the graph of the app whose graphs the serving process has too."""
    registry.replace(graphs.gated)
    people.reviewer.groups.add(Group.objects.get_or_create(name="claims")[0])


@pytest.fixture
def order(tmp_path: Path) -> dict[str, Any]:
    return {"folder": str(tmp_path), "number": "A-1", "amount": 40}


@pytest.fixture
def olive(site: str, token: str) -> Iterator[Client]:
    with Client(site, token=token) as client:
        yield client


@pytest.fixture
def token_of_rita(people: People) -> str:
    return tokens.make_token(people.reviewer, scopes=tokens.SCOPES)


@pytest.fixture
def rita(site: str, token_of_rita: str) -> Iterator[Client]:
    with Client(site, token=token_of_rita) as client:
        yield client


def decide(rita: Client, run: str) -> Any:
    [request] = rita.requests.list(waiting="me", run=run)
    decisions = DecisionSet(rita.requests.get(request["id"]))
    decisions.approve(*decisions.undecided)
    return rita.requests.sign(decisions)


def test_a_run_is_started_followed_signed_and_waited_for(
    olive: Client,
    rita: Client,
    order: dict[str, Any],
    beside: Callable[[Callable[[], None]], None],
) -> None:
    run = olive.runs.start(graph="gated", input=order, key="CLM-1")
    assert run["status"] == "queued"
    assert olive.runs.start(graph="gated", input=order, key="CLM-1") == run
    beside(lambda: _advance(run["id"]))
    paused = olive.runs.wait("CLM-1", timeout=30, until_paused=True)
    assert paused["status"] == "paused"

    receipt = decide(rita, run["id"])
    assert {line["result"] for line in receipt["lines"]} == {"counted"}
    beside(lambda: _advance(run["id"]))
    assert olive.runs.wait("CLM-1", timeout=30)["status"] == "completed"
    last = olive.runs.get("CLM-1")["event_seq"]
    seen = []
    for event in olive.runs.events("CLM-1"):
        seen.append(event["seq"])
        if event["seq"] == last:
            break
    assert seen == list(range(1, last + 1))
    assert [row["key"] for row in olive.rows(calls.runs_list(graph="gated"))] == [
        "CLM-1"
    ]
    plan = olive.send(calls.checkpoints_plan_create("CLM-1:initial", {"how": "fork"}))
    assert plan["runs"]
    fork = olive.send(calls.checkpoints_fork_create("CLM-1:initial", {"key": "CLM-2"}))
    assert olive.runs.cancel("CLM-2", reason="not needed")["id"] == fork["id"]
    assert olive.runs.wait("CLM-2", timeout=30)["status"] == "cancelled"
    with pytest.raises(Conflict):
        olive.runs.resume("CLM-2")


def _advance(run: str) -> None:
    runs.advance(run)


def test_waiting_listens_and_looks_only_when_something_happened(
    olive: Client, sign: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = olive.ask(**BODY)
    runs.advance(approval.id)
    looks: list[str] = []
    listening = threading.Event()
    listen = Connection._listen
    request = olive._connection._http.request

    def heard(connection: Any, step: Any) -> int | None:
        if step.after:
            listening.set()
        return listen(connection, step)

    def looked(**options: Any) -> Any:
        looks.append(options["url"])
        return request(**options)

    monkeypatch.setattr(Connection, "_listen", heard)
    monkeypatch.setattr(olive._connection._http, "request", looked)
    settled: list[Any] = []

    def wait() -> None:
        settled.append(olive.wait(approval.id, timeout=60))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert listening.wait(30)
    # One look at first, one at the event that says how it stands.
    assert len(looks) == 2
    sign(approval.id, {"verdict": "approve"}, {"verdict": "approve"})
    waiting.join(60)
    assert settled[0].state == "approved"


def test_waiting_by_listening_ends_with_its_time(
    olive: Client, order: dict[str, Any]
) -> None:
    approval = olive.ask(**BODY)
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        olive.wait(approval.id, timeout=1.5)
    assert time.monotonic() - began >= 1.5
    olive.runs.start(graph="gated", input=order, key="CLM-1")
    with pytest.raises(TimeoutError, match="run CLM-1 is queued after 1 s"):
        olive.runs.wait("CLM-1", timeout=1)


async def test_the_client_that_awaits_waits_by_listening(
    site: str, token: str, token_of_rita: str, sign: Any, order: Any, beside: Any
) -> None:
    async with AsyncClient(site, token=token) as awaited:
        approval = await awaited.ask(**BODY)
        beside(
            lambda: sign(approval.id, {"verdict": "approve"}, {"verdict": "approve"})
        )
        assert (await awaited.wait(approval.id, timeout=60)).state == "approved"
        started = await awaited.runs.start(graph="gated", input=order, key="CLM-1")
        beside(lambda: _advance(started["id"]))
        paused = await awaited.runs.wait("CLM-1", timeout=60, until_paused=True)
        assert paused["status"] == "paused"
        assert await awaited.runs.get("CLM-1") == paused
    async with AsyncClient(site, token=token_of_rita) as awaited:
        listed = [row async for row in awaited.requests.list(waiting="me")]
        request = await awaited.requests.get(listed[0]["id"])
        decisions = DecisionSet(request)
        decisions.reject(*decisions.undecided, reason="no")
        receipt = await awaited.requests.sign(decisions)
        assert receipt["lines"][0]["result"] == "counted"
