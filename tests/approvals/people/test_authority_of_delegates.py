"""What was signed for another lets a node act as long as both may: the one who signed is
active, the other is active and a reviewer, and the delegation was not revoked.
"""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import reviews
from approvals.models import Delegation
from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support.authority_graphs import leave, paying, payments, signed
from tests.support.cast import UserFactory

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paid() -> Iterator[list[int]]:
    with payments() as amounts:
        yield amounts


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ben() -> User:
    return UserFactory.create(username="ben")


@pytest.fixture
def delegation(rita: User, ben: User) -> Delegation:
    ends = timezone.now() + timedelta(days=1)
    return reviews.delegate(to=ben, ends=ends, by=rita)


@pytest.fixture
def about_to_pay(delegation: Delegation, ben: User) -> Run:
    return signed(paying(), ben)


def _deactivate(user: User) -> None:
    user.is_active = False
    user.save()


def test_a_node_acts_on_what_was_signed_for_another(
    paid: list[int], about_to_pay: Run
) -> None:
    run = runs.advance(about_to_pay.id)
    assert run.status == Status.COMPLETED
    assert paid == [7]
    assert verify_run(run.id) == []


def test_that_the_delegation_is_over_takes_nothing_from_it(
    paid: list[int], about_to_pay: Run, delegation: Delegation
) -> None:
    past = timezone.now() - timedelta(seconds=1)
    delegation.save(
        update_fields=sealed_rows.seal_again(delegation, PLAIN, ends_at=past)
    )
    assert runs.advance(about_to_pay.id).status == Status.COMPLETED
    assert paid == [7]


def test_that_the_other_ended_it_takes_nothing_from_what_they_signed(
    paid: list[int], about_to_pay: Run, delegation: Delegation, ben: User
) -> None:
    reviews.revoke_delegation(delegation.id, by=ben)
    assert runs.advance(about_to_pay.id).status == Status.COMPLETED
    assert paid == [7]
    assert verify_run(about_to_pay.id) == []


@pytest.mark.parametrize("who", ["rita", "stella"])
def test_nothing_begins_once_it_is_taken_back_after_the_other_ended_it(
    paid: list[int],
    about_to_pay: Run,
    delegation: Delegation,
    people: cast.People,
    rita: User,
    ben: User,
    who: str,
) -> None:
    reviews.revoke_delegation(delegation.id, by=ben)
    by = rita if who == "rita" else people.steward
    reviews.revoke_delegation(delegation.id, by=by)
    assert runs.advance(about_to_pay.id).status == Status.PAUSED
    assert paid == []


@pytest.mark.parametrize("ended_first", [False, True])
def test_nothing_begins_on_a_revoked_delegation_that_was_put_back(
    paid: list[int],
    about_to_pay: Run,
    delegation: Delegation,
    rita: User,
    ben: User,
    *,
    ended_first: bool,
) -> None:
    if ended_first:
        delegation = reviews.revoke_delegation(delegation.id, by=ben)
    reviews.revoke_delegation(delegation.id, by=rita)
    # The whole earlier row, with its seal.
    delegation.save()
    runs.advance(about_to_pay.id)
    assert paid == []
    reasons = [fault.reason for fault in verify_run(about_to_pay.id)]
    assert any("as the audit log says" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("revoked", "rita lets them decide no more"),
        ("left", "rita, for whom it was made, is not a reviewer of review"),
        ("delegator inactive", "rita, for whom it was made, is not active"),
        ("delegate inactive", "not active"),
        ("deleted", "rita lets them decide no more"),
    ],
)
def test_nothing_begins_once_one_of_them_lost_their_part(
    paid: list[int],
    about_to_pay: Run,
    delegation: Delegation,
    rita: User,
    ben: User,
    what: str,
    why: str,
) -> None:
    if what == "revoked":
        reviews.revoke_delegation(delegation.id, by=rita)
    elif what == "left":
        leave(rita)
    elif what == "deleted":
        Delegation.objects.filter(id=delegation.id).delete()
    else:
        _deactivate(rita if what.startswith("delegator") else ben)
    run = runs.advance(about_to_pay.id)
    assert paid == []
    assert run.status == Status.PAUSED
    assert not TaskResult.objects.filter(run=run, node="pay").exists()
    request = run.requests.get(status="open")
    from approvals.gates.request_state import why_of

    assert f"ben's signature does not count any more: {why}" in why_of(request)


def test_a_decision_without_its_delegation_is_named_by_a_verification(
    about_to_pay: Run, delegation: Delegation
) -> None:
    Delegation.objects.filter(id=delegation.id).delete()
    reasons = [fault.reason for fault in verify_run(about_to_pay.id)]
    assert any("has no delegation" in reason for reason in reasons)


def test_a_delegation_that_was_changed_is_named_by_a_verification(
    about_to_pay: Run, delegation: Delegation, rita: User
) -> None:
    Delegation.objects.filter(id=delegation.id).update(reason="another")
    reasons = [fault.reason for fault in verify_run(about_to_pay.id)]
    assert any("does not verify" in reason for reason in reasons)
