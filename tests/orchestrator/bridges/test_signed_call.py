"""What the bridges to job runners share: a call whose arguments people sign."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from checkpoints.core.run_key import is_run_key
from orchestrator import asking, tokens
from orchestrator.bridges.signed_call import (
    Rejected,
    SignedCall,
    is_done,
    key_of,
    signed_arguments,
)
from orchestrator.client import Client, KeyConflict
from orchestrator.engine import NotDone
from tests.support.bridges import Office
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)
ASKED_OF: Any = {"reviewers": ["group:payers"]}


def pay(invoice: str, amount: Decimal, currency: str = "EUR") -> tuple[str, Any, str]:
    if invoice == "unpayable":
        raise NotDone("the account is closed")
    if invoice == "unlucky":
        raise TimeoutError("token=s3cret")
    return invoice, amount, currency


def _signed(office: Office, call: SignedCall, invoice: str) -> Any:
    call.ask("K-1", invoice, amount=Decimal("10.00"))
    [asked] = office.asked(1)
    office.decide(asked, "approve")
    return office.client.approval("K-1")


def _outcome(office: Office) -> Any:
    [approval] = office.asked(1)
    [item] = approval.items
    return None if item.outcome is None else (item.outcome.result, item.outcome.detail)


def test_keys_are_keys_of_runs_and_no_two_calls_share_one() -> None:
    ids = [
        ("a", "b.c"),
        ("a.b", "c"),
        ("a,b", "c"),
        ("a", "b,c"),
        ("a/b:c", ""),
        ("é",),
    ]
    keys = [key_of("celery", *names) for names in ids]
    long = [key_of("celery", "x" * 300), key_of("celery", "x" * 301)]
    assert all(is_run_key(key) for key in keys + long)
    assert len({*keys, *long}) == len(ids) + 2


def test_a_question_has_the_arguments_with_their_defaults_and_a_form(
    office: Office,
) -> None:
    call = SignedCall(
        office.client,
        pay,
        reviewers=["group:payers"],
        title=lambda arguments: f"Pay {arguments['invoice']}",
        facts=[{"label": "Total", "value": "10.00"}],
    )
    call.ask("K-1", "INV-1", amount=Decimal("10.00"))
    [asked] = office.asked(1)
    [item] = asked.items
    assert asked.question["title"] == "Pay INV-1"
    assert asked.question["facts"] == [{"label": "Total", "value": "10.00"}]
    assert item.value == {"invoice": "INV-1", "amount": "10.00", "currency": "EUR"}
    assert item.effect == "external"
    assert set(item.schema["properties"]) == {"invoice", "amount", "currency"}


def test_the_same_key_with_other_arguments_is_refused(office: Office) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    first = call.ask("K-1", "INV-1", "10.00")
    assert call.ask("K-1", invoice="INV-1", amount=Decimal("10.00")).id == first.id
    with pytest.raises(KeyConflict):
        call.ask("K-1", "INV-1", "99.00")


def test_what_is_not_approved_has_no_arguments(office: Office) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    for key, verdict, reason in (("K-1", "approve", ""), ("K-2", "reject", "twice")):
        call.ask(key, "INV-1", "10.00")
        with pytest.raises(Rejected, match="open"):
            signed_arguments(office.client.approval(key))
        office.decide(office.asked()[-1], verdict, reason=reason)
    call.ask("K-3", "INV-1", "10.00")
    asking.cancel("K-3", reason="over")
    assert signed_arguments(office.client.approval("K-1"))["amount"] == "10.00"
    with pytest.raises(Rejected, match="twice"):
        signed_arguments(office.client.approval("K-2"))
    with pytest.raises(Rejected, match="cancelled"):
        signed_arguments(office.client.approval("K-3"))


def test_what_came_of_a_call_is_reported(office: Office) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    approval = _signed(office, call, "INV-1")
    done = call.run(approval)
    assert done == ("INV-1", Decimal("10.00"), "EUR")
    assert _outcome(office) == ("done", "")
    assert not is_done(approval)
    assert is_done(office.client.approval("K-1"))


@pytest.mark.parametrize(
    ("invoice", "error", "outcome"),
    [
        ("unpayable", NotDone, ("failed", "the account is closed")),
        ("unlucky", TimeoutError, ("unknown", "TimeoutError")),
    ],
)
def test_a_call_that_raises_is_reported_without_its_secrets(
    office: Office, invoice: str, error: type[Exception], outcome: Any
) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    approval = _signed(office, call, invoice)
    with pytest.raises(error):
        call.run(approval)
    assert _outcome(office) == outcome


def test_a_call_that_was_done_does_not_run_again(office: Office) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    call.run(_signed(office, call, "INV-1"))
    with pytest.raises(Rejected, match="done before"):
        call.run(office.client.approval("K-1"))


@pytest.mark.parametrize(
    ("errors", "outcome"),
    [
        ([NotDone("busy")], ("done", "")),
        ([NotDone("busy"), TimeoutError()], ("done", "")),
        ([TimeoutError(), NotDone("busy")], ("done", "")),
        ([NotDone("busy"), TimeoutError(), None], ("unknown", "TimeoutError")),
        ([TimeoutError(), NotDone("busy"), None], ("unknown", "TimeoutError")),
    ],
)
def test_another_attempt_is_reported_too(
    office: Office, errors: list[Exception | None], outcome: Any
) -> None:
    def pay(invoice: str, amount: Decimal) -> None:
        error = errors.pop(0) if errors else None
        if error is not None:
            raise error

    call = SignedCall(office.client, pay, **ASKED_OF)
    _signed(office, call, "INV-1")
    while errors and errors[0] is not None:
        with pytest.raises((NotDone, TimeoutError)):
            call.run(office.client.approval("K-1"))
    if not errors:
        call.run(office.client.approval("K-1"))
    assert _outcome(office) == outcome


def test_what_came_of_a_call_is_not_reported_where_nobody_wants_it(
    office: Office,
) -> None:
    call = SignedCall(office.client, pay, reports=False, **ASKED_OF)
    approval = _signed(office, call, "INV-1")
    call.run(approval)
    assert _outcome(office) is None


def test_a_report_that_fails_does_not_undo_the_call_and_is_made_after_the_next(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    asking_call = SignedCall(office.client, pay, **ASKED_OF)
    approval = _signed(office, asking_call, "INV-1")
    call = SignedCall(office.client_without_answers(1), pay, **ASKED_OF)
    assert call.run(approval)[0] == "INV-1"
    assert "its outcome is not reported" in caplog.text
    assert _outcome(office) is None
    asking_call.ask("K-2", "unlucky", "1.00")
    [_, asked] = office.asked(2)
    office.decide(asked, "approve")
    with pytest.raises(TimeoutError):
        call.run(office.client.approval("K-2"))
    assert office.outcomes() == ["done", "unknown"]


def test_an_outcome_is_not_reported_of_what_was_signed_since(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    approval = _signed(office, call, "INV-1")
    item = replace(approval.item("call"), hash="0" * 64)
    call.run(replace(approval, items=(item,)))
    assert "stale_proposal" in caplog.text
    assert _outcome(office) is None
    call.run(approval)
    assert _outcome(office) == ("done", "")


def test_what_is_not_signed_does_not_run(office: Office) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    with pytest.raises(Rejected, match="opening"):
        call.run(call.ask("K-1", "INV-1", "10.00"))


class Parcel(BaseModel):
    tags: set[str]


def test_the_members_of_sets_are_in_order(office: Office) -> None:
    def send(
        parcels: list[Parcel], to: frozenset[str], at: set[tuple[int, str]]
    ) -> Any:
        return parcels, to, at

    tags = {f"tag {number}" for number in range(20)}
    places = {(2, "b"), (1, "b"), (1, "a")}
    call = SignedCall(office.client, send, **ASKED_OF)
    asked = call.ask("K-1", [Parcel(tags=tags)], frozenset("cab"), at=places)
    assert asked.item("call").value == {
        "parcels": [{"tags": sorted(tags)}],
        "to": ["a", "b", "c"],
        "at": [[1, "a"], [1, "b"], [2, "b"]],
    }
    [approval] = office.asked(1)
    office.decide(approval, "approve")
    sent = call.run(office.client.approval("K-1"))
    assert sent == ([Parcel(tags=tags)], frozenset("cab"), places)


@pytest.mark.parametrize("name", ["key", "items"])
def test_what_the_call_says_itself_is_refused_by_name(
    office: Office, name: str
) -> None:
    with pytest.raises(TypeError, match=f"{name} is made of the calls"):
        SignedCall(office.client, pay, **ASKED_OF, **{name: "mine"})


def test_a_named_call_takes_no_signature_of_another_of_its_function(
    office: Office,
) -> None:
    salary = SignedCall(office.client, pay, name="pay_salary", **ASKED_OF)
    refund = SignedCall(office.client, pay, name="pay_back", **ASKED_OF)
    assert salary.address != refund.address
    with pytest.raises(Rejected, match="not asked"):
        refund.require_asked(salary.ask("K-1", "INV-1", "10.00"))


def test_what_another_account_asked_is_no_signature_of_this_call(
    office: Office, people: People
) -> None:
    token = tokens.make_token(people.steward, scopes=["start", "read"])
    other = SignedCall(Client(office.url, token=token), pay, **ASKED_OF)
    other.ask("K-1", "INV-1", "10.00")
    with pytest.raises(Rejected, match="another account asked"):
        SignedCall(office.client, pay, **ASKED_OF).ask("K-1", "INV-1", "10.00")


def test_a_function_whose_arguments_have_no_names_is_refused(office: Office) -> None:
    def listed(*invoices: str) -> None: ...

    def named(**invoices: str) -> None: ...

    def positional(invoice: str, /) -> None: ...

    for function in (listed, named, positional):
        with pytest.raises(TypeError, match="by name"):
            SignedCall(office.client, function, **ASKED_OF)


@pytest.mark.parametrize(
    "policy",
    [
        {"reviewers": ["group:payers", "group:clerks"]},
        {"reviewers": ["group:payers"], "quorum": 2},
        {"reviewers": ["group:payers"], "four_eyes": True},
    ],
)
def test_what_others_were_asked_is_no_signature_of_this_call(
    office: Office, policy: dict[str, Any]
) -> None:
    call = SignedCall(office.client, pay, **ASKED_OF)
    approval = call.ask("K-1", "INV-1", "10.00")
    call.require_asked(approval)
    [asked] = office.asked(1)
    call.require_asked(office.client.approval("K-1"))
    office.decide(asked, "edit", value={**asked.items[0].value, "amount": "9.00"})
    call.require_asked(office.client.approval("K-1"))
    with pytest.raises(Rejected, match="not asked of its reviewers"):
        SignedCall(office.client, pay, **policy).require_asked(approval)


def test_another_function_takes_no_signature_of_this_one(office: Office) -> None:
    approval = SignedCall(office.client, pay, **ASKED_OF).ask("K-1", "INV-1", "10.00")

    def refund(invoice: str, amount: Decimal, currency: str) -> None: ...

    with pytest.raises(Rejected, match="not asked"):
        SignedCall(office.client, refund, **ASKED_OF).require_asked(approval)
