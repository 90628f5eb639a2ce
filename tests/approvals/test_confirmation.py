"""A gate that asks who signs to show once more who they are: nothing counts without."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals import reviews
from approvals.confirmation import Confirmation
from approvals.models import Decision, Receipt
from checkpoints.models import Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import Show, registry
from orchestrator.engine.errors import ConfirmationRequired, TamperedRow
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated, items_of
from tests.support.run_actions import pending, request
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


def signed(run: Run, by: User, *, method: str = "", **more: Any) -> Receipt:
    confirmation = Confirmation(by.pk, method) if method else None
    return reviews.sign(run.id, items_of(run, **more), by=by, confirmation=confirmation)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_nothing_counts_without_the_confirmation_that_a_gate_asks_for(
    rita: User, verdict: str
) -> None:
    run = advanced(gated(confirm="password"))
    with pytest.raises(ConfirmationRequired) as refused:
        signed(run, rita, verdict=verdict)
    assert refused.value.facts == {
        "confirm": "password",
        "writes": [str(pending(run)[0].write)],
        "page": f"/reviews/{run.id}/",
    }
    assert not Decision.objects.exists()
    assert request(run).status == "open"
    assert verify_run(run.id) == []


def test_a_confirmed_decision_says_how_under_its_seal(rita: User) -> None:
    run = advanced(gated(confirm="password"))
    signed(run, rita, method="password")
    decision = Decision.objects.get()
    assert decision.confirmed_by == "password"
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []
    # Neither the word nor its absence can be put in its place.
    for forged in ("", "passkey"):
        decision.confirmed_by = forged
        with pytest.raises(TamperedRow, match="is not as it was sealed"):
            sealed_rows.verify_row(decision, PLAIN)


def test_a_decision_of_before_there_were_confirmations_still_verifies(
    rita: User,
) -> None:
    run = advanced(gated())
    signed(run, rita)
    decision = Decision.objects.get()
    assert decision.confirmed_by == ""
    without = sealed_rows._shape(Decision)
    assert b"confirmed_by" not in without.head
    decision.confirmed_by = "password"
    with pytest.raises(TamperedRow, match="is not as it was sealed"):
        sealed_rows.verify_row(decision, PLAIN)


def test_the_confirmation_of_somebody_else_does_nothing(
    rita: User, people: cast.People
) -> None:
    run = advanced(gated(confirm="password"))
    theirs = Confirmation(people.second_reviewer.pk, "password")
    with pytest.raises(ConfirmationRequired):
        reviews.sign(run.id, items_of(run), by=rita, confirmation=theirs)


@pytest.mark.parametrize("method", ["password", "passkey"])
def test_the_confirmation_of_somebody_else_is_not_kept_where_none_was_needed(
    rita: User, people: cast.People, method: str
) -> None:
    run = advanced(gated())
    theirs = Confirmation(people.second_reviewer.pk, method)
    reviews.sign(run.id, items_of(run), by=rita, confirmation=theirs)
    assert Decision.objects.get().confirmed_by == ""


@pytest.mark.parametrize("method", ["passkey", "oath"])
def test_a_confirmation_that_shows_nothing_is_not_kept_where_none_was_needed(
    rita: User, method: str
) -> None:
    run = advanced(gated())
    signed(run, rita, method=method)
    assert Decision.objects.get().confirmed_by == ""


def test_a_password_does_not_do_where_a_passkey_is_asked_for(rita: User) -> None:
    run = advanced(gated(confirm="passkey"))
    with pytest.raises(ConfirmationRequired, match="by passkey"):
        signed(run, rita, method="password")
    assert not Decision.objects.exists()


@pytest.mark.parametrize(("amount", "asks"), [("5000", False), ("5000.01", True)])
def test_a_limit_says_from_which_amount_on_it_is_asked(
    rita: User, amount: str, asks: bool
) -> None:
    run = advanced(gated(amount=amount, confirm="password", confirm_above=5000))
    assert request(run).policy["confirm_above"] == "5000"
    if not asks:
        signed(run, rita)
        assert Decision.objects.get().confirmed_by == ""
        return
    with pytest.raises(ConfirmationRequired):
        signed(run, rita)


@pytest.mark.parametrize("amount", [None, "many", ["6000"]])
def test_an_amount_that_cannot_be_read_counts_as_above(rita: User, amount: Any) -> None:
    run = advanced(gated(amount=amount, confirm="password", confirm_above=5000))
    with pytest.raises(ConfirmationRequired):
        signed(run, rita)


@pytest.mark.parametrize(("seen", "edited"), [("10", "6000"), ("6000", "10")])
def test_an_edit_across_the_limit_is_asked_either_way(
    rita: User, seen: str, edited: str
) -> None:
    run = advanced(gated(amount=seen, confirm="password", confirm_above=5000))
    with pytest.raises(ConfirmationRequired):
        signed(run, rita, verdict="edit", value={"amount": edited})
    assert pending(run)[0].revision == 1


def test_a_deployment_of_an_easier_gate_changes_nothing_for_an_open_request(
    rita: User,
) -> None:
    run = advanced(gated("eased", confirm="password"))
    registry.replace(gated("eased", confirm="password", confirm_above=100_000))
    with pytest.raises(ConfirmationRequired):
        signed(run, rita)


def test_a_deployment_that_looks_at_another_amount_changes_nothing_for_an_open_request(
    rita: User,
) -> None:
    run = advanced(gated("moved", amount="10", confirm="password", confirm_above=100))
    made = gated("moved", amount="10", confirm="password", confirm_above=100)
    gate = made.nodes[0].gate
    object.__setattr__(gate, "writes", {"payout": Show(money="small")})
    registry.replace(made)
    value = {"amount": "6000", "small": "1"}
    with pytest.raises(ConfirmationRequired):
        signed(run, rita, verdict="edit", value=value)


def test_an_answer_that_goes_with_a_fork_is_no_way_round(rita: User) -> None:
    run = advanced(gated(confirm="password"))
    answers = {"propose": {"payout": {"amount": "6000"}}}
    with pytest.raises(ConfirmationRequired):
        runs.fork(str(run.head), answers=answers, by=rita)
    assert Run.objects.count() == 1
