"""Agents of other libraries whose tools wait for people, in one inbox: what runs is what
was signed, whichever library it is.
"""

import pytest

from approvals import inbox
from orchestrator import asking, tokens
from orchestrator.bridges.tool_calls import NotSigned, ToolCall, key_of, question_of
from orchestrator.client import Client, Unreachable
from tests.support.agents import Payer
from tests.support.bridges import Office
from tests.support.cast import People
from tests.support.tool_calls import (
    APPROVE,
    LIBRARIES,
    REJECT,
    edit,
    payer_of,
    sign,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(params=LIBRARIES)
def new_payer(request: pytest.FixtureRequest) -> type[Payer]:
    return payer_of(request.param)


def test_what_was_approved_runs_once_after_a_restart(
    office: Office, new_payer: type[Payer]
) -> None:
    payer = new_payer().pause()
    asked = office.client.ask(**payer.restarted().question())
    approval = sign(office, asked, APPROVE, APPROVE)
    assert payer.restarted().go_on(approval) == "paid 10; paid 20"
    assert sorted(payer.shop.paid) == [("a", 10), ("b", 20)]


def test_an_edit_runs_as_it_was_signed_and_a_rejection_says_why(
    office: Office, new_payer: type[Payer]
) -> None:
    payer = new_payer().pause()
    asked = office.client.ask(**payer.question())
    approval = sign(office, asked, edit(invoice="a", amount=8), REJECT)
    text = payer.restarted().go_on(approval)
    assert payer.shop.paid == [("a", 8)]
    assert "paid 8" in text
    assert "paid already" in text


def test_what_came_of_each_call_is_in_the_inbox_and_on_the_receipt(
    office: Office, new_payer: type[Payer]
) -> None:
    payer = new_payer().pause()
    asked = office.client.ask(**payer.question(), reports=True)
    approval = sign(office, asked, edit(invoice="a", amount=8), REJECT)
    later = payer.restarted()
    later.go_on(approval, (office.url, office.token))
    for _ in range(2):
        later.report(office.client, approval)
    assert office.outcomes() == ["done", None]
    assert office.details() == [""]
    assert "The caller reported: done" in office.inbox()
    assert "that it was done" in office.receipts()


@pytest.mark.parametrize("name", ["pydantic-ai", "openai-agents"])
def test_a_call_that_was_reported_as_done_is_not_made_again(
    office: Office, name: str
) -> None:
    payer = payer_of(name)().pause()
    asked = office.client.ask(**payer.question())
    first = payer.restarted()
    first.go_on(sign(office, asked, APPROVE, REJECT), (office.url, office.token))
    first.report(office.client, office.client.approval(asked.id))
    # Nothing was kept of what the first process did.
    text = payer.restarted().go_on(office.client.approval(asked.id))
    assert payer.shop.paid == [("a", 10)]
    assert "done before" in text


def test_a_site_that_is_away_does_not_break_the_work(
    office: Office, new_payer: type[Payer], caplog: pytest.LogCaptureFixture
) -> None:
    payer = new_payer().pause()
    approval = sign(office, office.client.ask(**payer.question()), APPROVE, APPROVE)
    payer.go_on(approval, ("http://127.0.0.1:9", office.token))
    payer.report(office.client_without_answers(1), approval)
    assert sorted(payer.shop.paid) == [("a", 10), ("b", 20)]
    assert office.outcomes() == [None, None]
    assert "its outcome is not reported" in caplog.text


def test_what_another_account_asked_runs_nothing(
    office: Office, new_payer: type[Payer], people: People
) -> None:
    token = tokens.make_token(people.steward, scopes=["start", "read"])
    payer = new_payer().pause()
    asked = Client(office.url, token=token).ask(**payer.question())
    approval = sign(office, asked, APPROVE, APPROVE)
    with pytest.raises(NotSigned, match="another account asked"):
        payer.go_on(approval)
    assert payer.shop.paid == []


@pytest.mark.parametrize("name", ["key", "items"])
def test_what_the_calls_say_themselves_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} is made of the calls"):
        question_of("x", "r-1", [ToolCall("a", "pay", {})], **{name: "mine"})


def test_who_loses_the_answer_and_asks_again_asks_once(
    office: Office, new_payer: type[Payer]
) -> None:
    payer = new_payer().pause()
    with pytest.raises(Unreachable):
        office.client_that_loses(1).ask(**payer.question())
    first = office.client.ask(**payer.restarted().question())
    assert office.client.ask(**payer.question()).id == first.id
    assert len(office.asked()) == 1


def test_nothing_runs_before_people_have_decided(
    office: Office, new_payer: type[Payer]
) -> None:
    payer = new_payer().pause()
    asked = office.client.ask(**payer.question())
    with pytest.raises(NotSigned, match="not decided"):
        payer.go_on(asked)
    assert payer.shop.paid == []
    asking.cancel(asked.id, reason="no longer needed")
    with pytest.raises(NotSigned, match="cancelled"):
        payer.go_on(office.client.approval(asked.id))
    assert payer.shop.paid == []


def test_the_approval_of_another_run_does_not_count(
    office: Office, new_payer: type[Payer]
) -> None:
    asked = office.client.ask(**new_payer(run="r-1").pause().question())
    approval = sign(office, asked, APPROVE, APPROVE)
    other = new_payer(run="r-2").pause()
    with pytest.raises(NotSigned):
        other.go_on(approval)
    assert other.shop.paid == []


def test_people_see_each_call_with_the_form_of_its_tool(
    office: Office, new_payer: type[Payer]
) -> None:
    asked = office.client.ask(**new_payer().pause().question())
    [first, second] = asked.raw["items"]
    assert (first["label"], first["effect"]) == ("pay", "external")
    assert first["schema"]["properties"]["amount"]["type"] == "integer"
    assert second["value"] == {"invoice": "b", "amount": 20}
    assert asked.title == "r-1: pay"


def test_agents_of_all_libraries_wait_in_one_inbox(office: Office) -> None:
    payers = [payer_of(name)(run=name).pause() for name in LIBRARIES]
    asked = [office.client.ask(**payer.question()) for payer in payers]
    office.asked(len(payers))
    assert len(inbox.waiting_for(office.reviewer)) == len(payers)
    for payer, approval in zip(payers, asked, strict=True):
        signed = sign(office, approval, REJECT, edit(invoice="b", amount=1))
        payer.restarted().go_on(signed)
        assert payer.shop.paid == [("b", 1)]
    assert len(inbox.waiting_for(office.reviewer)) == 0


def test_no_two_runs_have_one_key() -> None:
    calls = [ToolCall("call-1", "pay", {})]
    keys = {key_of(library, run, calls) for library in "xy" for run in ("a/1", "a:1")}
    assert len(keys) == 4
    assert all("/" not in key and ":" not in key for key in keys)
    assert len(key_of("langgraph", "r" * 1000, calls)) <= 200
