"""A bundle of a run that a passkey signed: whatever its house says otherwise is named
with the decision, offline.
"""

import copy
import io
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import reviews
from checkpoints import bundle
from checkpoints.models import Run
from tests.support import cast, run_actions
from tests.support.bundle_reader import first_bad_line
from tests.support.bundles import KEY, PUBLIC, exported, lines_of, written
from tests.support.cast import UserFactory
from tests.support.passkey_runs import (
    FORGED_ASSERTIONS,
    Assertion,
    decision_of,
    passkey_run,
)
from tests.support.sealed_tables import ONE_KEY

pytestmark = pytest.mark.django_db(transaction=True)

Bodies = list[dict[str, Any]]


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def run(rita: User) -> Run:
    return passkey_run(rita)


def row_of(bodies: Bodies, kind: str) -> dict[str, Any]:
    [body] = [body for body in bodies if body["kind"] == kind]
    return body["row"]


def assert_named(bodies: Bodies, decision: str) -> str:
    data = written(bodies, KEY)
    verdict = bundle.verify(io.BytesIO(data), PUBLIC)
    [line] = [n for n, body in enumerate(bodies, 1) if body["kind"] == "decision"]
    assert (verdict.ok, verdict.bad_line) == (False, line), verdict
    assert decision in verdict.reason
    assert first_bad_line(data, PUBLIC) == line
    return verdict.reason


def test_what_a_passkey_signed_verifies_offline(run: Run) -> None:
    data = written(lines_of(exported(run)), KEY)
    assert bundle.verify(io.BytesIO(data), PUBLIC) == (True, 0, "")
    assert first_bad_line(data, PUBLIC) == 0


@pytest.mark.parametrize("change", FORGED_ASSERTIONS)
def test_an_assertion_that_does_not_hold_is_named_with_its_decision(
    run: Run, change: Callable[[Assertion], None]
) -> None:
    bodies = lines_of(exported(run))
    change(row_of(bodies, "receipt")["assertion"])
    assert_named(bodies, str(decision_of(run).id))


@pytest.mark.parametrize(
    ("column", "value"),
    [("by_name", "ravi"), ("reason", '"it is late"'), ("confirmed_by", "")],
)
def test_a_decision_that_its_passkey_did_not_sign_is_named(
    run: Run, column: str, value: str
) -> None:
    bodies = lines_of(exported(run))
    row_of(bodies, "decision")[column] = value
    assert_named(bodies, str(decision_of(run).id))


@pytest.mark.parametrize("confirmed_by", ["passkey", "password", ""])
def test_a_decision_without_the_passkey_that_its_gate_asks_for_is_named(
    run: Run, confirmed_by: str
) -> None:
    bodies = lines_of(exported(run))
    row_of(bodies, "receipt")["assertion"] = None
    row_of(bodies, "decision")["confirmed_by"] = confirmed_by
    assert_named(bodies, str(decision_of(run).id))


def test_a_policy_that_is_not_the_one_that_was_signed_under_is_named(run: Run) -> None:
    bodies = lines_of(exported(run))
    row_of(bodies, "request")["policy"]["confirm"] = "password"
    data = written(bodies, KEY)
    verdict = bundle.verify(io.BytesIO(data), PUBLIC)
    [line] = [n for n, body in enumerate(bodies, 1) if body["kind"] == "request"]
    assert (verdict.ok, verdict.bad_line) == (False, line), verdict
    assert "policy" in verdict.reason
    assert first_bad_line(data, PUBLIC) == line


def test_for_whom_a_passkey_signed_is_part_of_what_it_signed(rita: User) -> None:
    ben = UserFactory.create(username="ben")
    ends = timezone.now() + timedelta(days=1)
    reviews.delegate(to=ben, by=rita, ends=ends)
    run = passkey_run(ben)
    bodies = lines_of(exported(run))
    assert row_of(bodies, "decision")["delegator_name"] == "rita"
    unchanged = written(copy.deepcopy(bodies), KEY)
    assert bundle.verify(io.BytesIO(unchanged), PUBLIC) == (True, 0, "")
    row_of(bodies, "decision")["delegator_name"] = "ravi"
    assert_named(bodies, str(decision_of(run).id))


def test_in_an_encrypted_run_the_passkey_is_verified_too(
    rita: User, configure: Any
) -> None:
    configure(**ONE_KEY)
    run = passkey_run(rita, encrypted=True)
    bodies = lines_of(exported(run))
    unchanged = written(copy.deepcopy(bodies), KEY)
    assert bundle.verify(io.BytesIO(unchanged), PUBLIC) == (True, 0, "")
    row_of(bodies, "decision")["by_name"] = "ravi"
    assert_named(bodies, str(decision_of(run).id))
