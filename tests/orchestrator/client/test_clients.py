"""The clients against a live server: people are asked, decide, and the client reads what
was signed.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import connections

from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs, tokens
from orchestrator.client import (
    AsyncClient,
    Client,
    Conflict,
    DecisionSet,
    InvalidBody,
    KeyConflict,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Unreachable,
)
from orchestrator.client.clients import Client as ClientOfModule
from tests.support.api_people import Client as Http
from tests.support.approvals import BODY
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)
APPROVE = {"verdict": "approve"}
EDIT = {"verdict": "edit", "value": {"amount": "90.00"}}
REJECT = {"verdict": "reject", "reason": "twice"}


def test_what_was_signed_comes_back(client: Client, sign: Any) -> None:
    approval = client.ask(**BODY)
    assert (approval.state, approval.decided, approval.request, approval.url) == (
        "opening",
        False,
        None,
        "",
    )
    sign(approval.id, EDIT, REJECT)
    settled = client.wait("INV-7", timeout=5)
    assert settled.decided
    assert settled.state == "partial"
    paid, refused = settled.items
    assert (paid.id, paid.label, paid.effect) == ("inv-1", "Invoice 1", "external")
    assert (paid.verdict, paid.edited) == ("approved", True)
    assert settled.approved_items == (paid,)
    assert (paid.value, paid.proposed) == ({"amount": "90.00"}, {"amount": "100.00"})
    assert paid.hash
    assert (refused.verdict, refused.reason) == ("rejected", "twice")
    assert settled.item("inv-2") is refused
    with pytest.raises(KeyError, match="inv-1, inv-2"):
        settled.item("inv-3")
    assert verify_run(approval.id) == []


def test_the_page_of_the_review_is_named_once_it_is_open(
    client: Client, live_server: Any
) -> None:
    approval = client.ask(**BODY)
    runs.advance(approval.id)
    opened = client.approval(approval.id)
    assert opened.state == "open"
    assert opened.request is not None
    assert opened.url == f"{live_server.url}/reviews/{approval.id}/"


def test_waiting_ends_with_the_decision_that_is_made_meanwhile(
    client: Client, sign: Any, beside: Callable[[Callable[[], None]], None]
) -> None:
    approval = client.ask(**BODY)
    beside(lambda: sign(approval.id, APPROVE, APPROVE))
    assert client.wait(approval.id, timeout=30).state == "approved"


def test_waiting_ends_with_its_time(client: Client) -> None:
    approval = client.ask(**BODY)
    with pytest.raises(TimeoutError, match=r"INV-7 is opening after 0\.3 s"):
        client.wait(approval.id, timeout=0.3)


def test_a_question_is_taken_back(client: Client, people: People) -> None:
    approval = client.ask(**BODY)
    runs.advance(approval.id)
    shown = client.approval(approval.id)
    decisions = DecisionSet(client.requests.get(shown.request or ""))
    decisions.approve(shown.raw["items"][0]["write"])
    Http(people.reviewer).post(f"requests/{shown.request}/decisions/", decisions.body)
    assert client.cancel(approval.id, reason="paid already").state == "cancelled"
    taken_back = client.wait(approval.id, timeout=5)
    assert taken_back.state == "cancelled"
    assert taken_back.item("inv-1").verdict == "approved"
    assert taken_back.approved_items == ()


def test_what_came_of_it_is_reported(client: Client, sign: Any) -> None:
    approval = client.ask(**BODY, reports=True)
    sign(approval.id, APPROVE, APPROVE)
    settled = client.approval("INV-7")
    outcomes = {"inv-1": ("done", "transfer 77"), "inv-2": ("failed", "no account")}
    reported = client.report(settled, outcomes)
    assert [item["outcome"]["result"] for item in reported.raw["items"]] == [
        "done",
        "failed",
    ]
    with pytest.raises(Conflict):
        client.report(settled, {"inv-1": ("failed", "it came back")})
    other = replace(settled, items=(replace(settled.items[0], hash="0" * 64),))
    with pytest.raises(Conflict, match="not what was acted on"):
        client.report(other, {"inv-1": ("done", "transfer 77")})


def test_the_same_question_is_asked_once_and_another_is_refused(client: Client) -> None:
    assert client.ask(**BODY) == client.ask(**BODY)
    assert Run.objects.count() == 1
    with pytest.raises(KeyConflict, match="Choose another key") as refused:
        client.ask(**{**BODY, "title": "Pay one"})
    assert (refused.value.status, refused.value.code) == (409, "key_conflict")


def test_a_refusal_is_a_type_and_names_the_thing_and_the_cure(
    client: Client, live_server: Any, people: People, token: str
) -> None:
    with pytest.raises(NotFound, match=r"GET approvals/nowhere/: .*nowhere.*Check"):
        client.approval("nowhere")
    with pytest.raises(InvalidBody, match=r"reviewers.*Correct what is named"):
        client.ask(**{**BODY, "reviewers": ["group:nobody-there"]})
    with (
        Client(live_server.url, token="cst_unknown") as stranger,
        pytest.raises(NotAuthenticated, match="create_token"),
    ):
        stranger.approval("INV-7")
    reader = tokens.make_token(people.starter, scopes=["read"])
    with (
        Client(live_server.url, token=reader) as reading,
        pytest.raises(NotAllowed, match="scope"),
    ):
        reading.ask(**BODY)
    nowhere = Client("http://127.0.0.1:9", token=token, retries=0)
    with pytest.raises(Unreachable, match="Check the address"):
        nowhere.approval("INV-7")


async def test_the_client_that_awaits_does_the_same(
    client: Client, live_server: Any, token: str, sign: Any
) -> None:
    async with AsyncClient(live_server.url, token=token) as awaited:
        approval = await awaited.ask(**BODY)
        waiting = asyncio.create_task(awaited.wait(approval.id, timeout=30))
        await asyncio.to_thread(
            _in_a_thread, lambda: sign(approval.id, APPROVE, REJECT)
        )
        settled = await waiting
        assert settled.state == "partial"
        assert await awaited.approval("INV-7") == settled
        with pytest.raises(NotFound):
            await awaited.cancel("nowhere")


def _in_a_thread(act: Callable[[], None]) -> None:
    try:
        act()
    finally:
        connections.close_all()


def test_no_token_is_printed(token: str) -> None:
    client = Client("https://runs.example.org/", token=token)
    assert repr(client) == "Client('https://runs.example.org')"
    with pytest.raises(ValueError, match="letters") as refused:
        Client("https://runs.example.org", token=f"{token}\n")
    assert token not in str(refused.value)
    for address in ("runs.example.org", "ftp://runs.example.org", "https://a:b@c.org"):
        with pytest.raises(ValueError, match="address"):
            Client(address, token=token)


def test_the_client_loads_no_django() -> None:
    assert ClientOfModule is Client
    program = (
        "import sys; from orchestrator.client import AsyncClient, Client\n"
        "print(sorted(m for m in sys.modules if m.partition('.')[0] in"
        " ('django', 'rest_framework', 'channels', 'approvals')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
