"""The examination of a run verifies what passkeys signed, and that people confirmed what
their gates wanted confirmed.
"""

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.utils import timezone

from approvals import append_only, reviews
from approvals.confirmation import Confirmation
from checkpoints import retention
from checkpoints.models import Run
from checkpoints.verification import verify_run
from tests.support import cast, forging, run_actions
from tests.support.cast import UserFactory
from tests.support.confirmed_graphs import gated, items_of
from tests.support.passkey_runs import (
    FORGED_ASSERTIONS,
    Assertion,
    decision_of,
    passkey_run,
)
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def rewrite(row: Model, **values: Any) -> None:
    """Seal other values, as whoever has the keys of the house could."""
    with append_only.triggers_lifted():
        forging.rewrite(row, **values)


def reason_against(run: Run) -> str:
    [fault] = verify_run(run.id)
    assert fault.what == f"approvals_decision {run.id} {decision_of(run).id}"
    return fault.reason


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_a_passkey_signed_verifies(
    rita: User, configure: Any, encrypted: bool
) -> None:
    configure(**ONE_KEY)
    assert verify_run(passkey_run(rita, encrypted=encrypted).id) == []


def test_what_a_passkey_signed_verifies_once_it_was_erased(
    rita: User, people: cast.People
) -> None:
    run = passkey_run(rita)
    retention.erase(run.id, reason="asked", by=people.steward)
    assert verify_run(run.id) == []


@pytest.mark.parametrize("change", FORGED_ASSERTIONS)
def test_an_assertion_that_does_not_hold_is_named_with_its_decision(
    rita: User, change: Callable[[Assertion], None]
) -> None:
    run = passkey_run(rita)
    receipt: Any = decision_of(run).receipt
    assertion = copy.deepcopy(receipt.assertion)
    change(assertion)
    rewrite(receipt, assertion=assertion)
    reason_against(run)


def test_a_missing_and_a_denied_passkey_are_named(rita: User) -> None:
    run = passkey_run(rita)
    decision = decision_of(run)
    receipt: Any = decision.receipt
    rewrite(decision, confirmed_by="password")
    assert "was not confirmed by passkey, as its gate asks" in reason_against(run)
    rewrite(decision, confirmed_by="passkey")
    rewrite(receipt, assertion=None)
    assert "lacks the signature of its passkey" in reason_against(run)


def test_a_passkey_where_a_password_would_do_is_not_denied_either(rita: User) -> None:
    run = passkey_run(rita, confirm="password")
    rewrite(decision_of(run), confirmed_by="password")
    assert "denies the passkey that signed it" in reason_against(run)


@pytest.mark.parametrize(("amount", "is_named"), [("6000", True), ("10", False)])
def test_what_was_signed_without_the_password_of_its_gate_is_named(
    rita: User, amount: str, is_named: bool
) -> None:
    run = advanced(gated(amount=amount, confirm="password", confirm_above=5000))
    confirmation = Confirmation(rita.pk, "password")
    reviews.sign(run.id, items_of(run), by=rita, confirmation=confirmation)
    assert verify_run(run.id) == []
    rewrite(decision_of(run), confirmed_by="")
    assert bool(verify_run(run.id)) == is_named


def test_that_it_was_signed_for_another_person_than_its_passkey_says_is_named(
    rita: User,
) -> None:
    ben = UserFactory.create(username="ben")
    ends = timezone.now() + timedelta(days=1)
    reviews.delegate(to=ben, by=rita, ends=ends)
    run = passkey_run(ben)
    assert verify_run(run.id) == []
    rewrite(decision_of(run), delegator=None, delegator_name="", delegation=None)
    assert "is another decision than its passkey signed" in reason_against(run)
