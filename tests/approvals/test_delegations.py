"""Which delegations were put back as they were before, as the audit log says."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from structlog.testing import capture_logs

from approvals import delegations, reviews
from approvals.delegations import kept_delegations, lasting_to, those_brought_back
from approvals.models import Delegation
from orchestrator.engine.errors import TamperedRow
from tests.support import cast

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made(people: cast.People) -> Delegation:
    ends = timezone.now() + timedelta(days=1)
    return reviews.delegate(
        to=people.second_reviewer, by=people.reviewer, ends=ends, reason="on leave"
    )


def read_before(made: Delegation) -> Delegation:
    return Delegation.objects.get(id=made.id)


def test_what_is_revoked_while_it_is_read_was_not_put_back(made: Delegation) -> None:
    before = read_before(made)
    reviews.revoke_delegation(made.id, by=made.delegator)
    assert those_brought_back([before]) == []
    # The whole row of before, with its seal.
    before.save(force_update=True)
    assert those_brought_back([read_before(made)]) == [made]
    with pytest.raises(TamperedRow):
        kept_delegations([made.id])


def test_what_is_taken_back_after_its_delegate_has_ended_it_was_not_put_back(
    made: Delegation,
) -> None:
    reviews.revoke_delegation(made.id, by=made.delegate)
    ended = read_before(made)
    reviews.revoke_delegation(made.id, by=made.delegator)
    assert those_brought_back([ended]) == []
    ended.save(force_update=True)
    assert those_brought_back([read_before(made)]) == [made]


def test_a_delegation_whose_row_is_gone_was_not_revoked_by_that(
    made: Delegation,
) -> None:
    before = read_before(made)
    reviews.revoke_delegation(made.id, by=made.delegator)
    Delegation.objects.filter(id=made.id).delete()
    assert those_brought_back([before]) == [made]


def test_what_is_revoked_while_rights_are_read_gives_none_and_nobody_is_alarmed(
    made: Delegation, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_as_made = delegations._is_as_made

    def revoked_meanwhile(row: Delegation) -> bool:
        reviews.revoke_delegation(row.id, by=made.delegator)
        return is_as_made(row)

    monkeypatch.setattr(delegations, "_is_as_made", revoked_meanwhile)
    with capture_logs() as lines:
        assert lasting_to(made.delegate) == []
    assert _refused(lines) == []


def test_what_was_put_back_gives_no_right_and_leaves_a_line(made: Delegation) -> None:
    before = read_before(made)
    reviews.revoke_delegation(made.id, by=made.delegator)
    before.save(force_update=True)
    with capture_logs() as lines:
        assert lasting_to(made.delegate) == []
    assert len(_refused(lines)) == 1


def _refused(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["event"] == "delegation_refused"]
