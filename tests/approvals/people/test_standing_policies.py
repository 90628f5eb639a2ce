"""Who makes a standing policy, within which bounds, and who takes it back."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals import reviews
from approvals.models import ApprovalRequest, StandingPolicy
from approvals.people.standing_policies import (
    MOST_AT_A_GATE,
    listed_policies,
    standing_policies_of,
)
from checkpoints.models import AuditLine
from orchestrator.engine.errors import (
    CountersignError,
    InvalidValue,
    NotAReviewer,
    TamperedRow,
    UnknownThing,
)
from tests.support import cast, run_actions
from tests.support.cast import UserFactory
from tests.support.deadlines import gated
from tests.support.small_graphs import advanced
from tests.support.standing_policies import TOTAL, policy_of, waiting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


def in_days(days: float) -> Any:
    return timezone.now() + timedelta(days=days)


def test_it_says_at_which_gate_for_whom_and_until_when(rita: Any) -> None:
    run = waiting()
    ends = in_days(3)
    policy = policy_of(
        run, rita, ends=ends, reason="Small ones", limits={"total": {"value": 9.5}}
    )
    assert (policy.graph, policy.gate, policy.by) == ("permitting", "review", rita)
    assert (policy.limits, policy.ends_at, policy.uses) == (
        {"total": {"value": "9.5"}},
        ends,
        0,
    )
    assert [policy.name, policy_of(run, rita).name] == ["policy 1", "policy 2"]


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"limits": {"total": {"value": "many"}}}, "limits.total.value"),
        ({"limits": {"total": {"value": True}}}, "limits.total.value"),
        ({"limits": {"total": {"value": -1}}}, "limits.total.value"),
        ({"limits": {"total": {"a..b": 1}}}, "limits.total.a..b"),
        ({"limits": {}}, "limits"),
        ({"limits": {"value": 10}}, "limits.value"),
        ({"limits": {"total": {"value": 10**5000}}}, "limits.total.value"),
        ({"limits": {"total": {"value": "9" * 41}}}, "limits.total.value"),
        ({"limits": {"total": {"value": [1]}}}, "limits.total.value"),
        ({"limits": ["value"]}, "limits"),
        ({"limits": {str(n): {} for n in range(21)}}, "limits"),
        ({"limits": {"total": {str(n): 1 for n in range(21)}}}, "limits.total"),
        ({"most_uses": 0}, "most_uses"),
        ({"most_uses": True}, "most_uses"),
        ({"most_uses": 10_001}, "most_uses"),
        ({"ends": in_days(-1)}, "ends"),
        ({"ends": in_days(91)}, "ends"),
        ({"begins": in_days(3)}, "ends"),
        ({"begins": in_days(3), "ends": in_days(91)}, "ends"),
        ({"reason": "\x00"}, "reason"),
    ],
)
def test_its_bounds_are_checked(rita: Any, options: dict[str, Any], path: str) -> None:
    run = waiting()
    with pytest.raises(InvalidValue) as refused:
        policy_of(run, rita, **options)
    assert refused.value.facts["path"] == path
    assert not StandingPolicy.objects.exists()


def test_only_a_reviewer_by_their_own_right_makes_it(
    rita: Any, people: cast.People
) -> None:
    run = waiting()
    ben = UserFactory.create(username="ben")
    with pytest.raises(UnknownThing):
        policy_of(run, ben)
    # Whoever decides for a reviewer passes that on to no policy.
    reviews.delegate(to=ben, ends=in_days(1), by=rita)
    with pytest.raises(NotAReviewer):
        policy_of(run, ben)
    with pytest.raises(NotAReviewer):
        policy_of(run, people.auditor)
    lines = AuditLine.objects.filter(kind="refused_not_a_reviewer").order_by("id")
    assert [line.actor for line in lines] == [ben, people.auditor]


def test_a_gate_that_does_not_permit_it_has_none(rita: Any) -> None:
    run = advanced(gated("without-standing"))
    with pytest.raises(InvalidValue, match="permits no standing policies"):
        policy_of(run, rita)


def test_nobody_has_very_many_at_a_gate(rita: Any) -> None:
    run = waiting()
    made = [policy_of(run, rita) for _ in range(MOST_AT_A_GATE)]
    with pytest.raises(InvalidValue, match="already; revoke one first"):
        policy_of(run, rita)
    reviews.revoke_standing_policy(made[0].id, by=rita)
    assert policy_of(run, rita).number == MOST_AT_A_GATE + 1


def test_its_maker_and_a_steward_revoke_it_and_others_do_not_see_it(
    rita: Any, people: cast.People
) -> None:
    run = waiting()
    first = policy_of(run, rita)
    second = policy_of(run, rita)
    with pytest.raises(UnknownThing):
        reviews.revoke_standing_policy(first.id, by=people.second_reviewer)
    assert not standing_policies_of(people.second_reviewer).exists()
    revoked = reviews.revoke_standing_policy(first.id, by=rita)
    # The first time counts.
    again = reviews.revoke_standing_policy(first.id, by=people.steward)
    assert (again.revoked_at, again.revoked_by) == (revoked.revoked_at, rita)
    reviews.revoke_standing_policy(second.id, by=people.steward)
    lines = AuditLine.objects.filter(kind="standing_policy_revoked").order_by("id")
    assert [line.actor for line in lines] == [rita, people.steward]
    assert standing_policies_of(people.steward).count() == 2


def test_a_row_that_was_put_back_is_neither_used_nor_ended(rita: Any) -> None:
    policy = policy_of(waiting(), rita)
    reviews.revoke_standing_policy(policy.id, by=rita)
    policy.save(force_update=True)
    with pytest.raises(TamperedRow):
        reviews.revoke_standing_policy(policy.id, by=rita)
    [listed] = listed_policies(rita, most=5)
    assert listed.refused
    assert not listed.is_revocable


def test_beside_an_unknown_or_changed_request_none_is_made(rita: Any) -> None:
    run = waiting()
    request = ApprovalRequest.objects.get(run=run.id)
    arguments: dict[str, Any] = {"limits": TOTAL, "ends": in_days(1), "most_uses": 1}
    with pytest.raises(UnknownThing):
        reviews.make_standing_policy(run.id, by=rita, **arguments)
    ApprovalRequest.objects.filter(id=request.id).update(graph="another")
    with pytest.raises(CountersignError):
        reviews.make_standing_policy(request.id, by=rita, **arguments)


def test_those_in_force_are_listed_before_newer_ones_that_are_over(rita: Any) -> None:
    run = waiting()
    lasting = policy_of(run, rita)
    over = policy_of(run, rita)
    reviews.revoke_standing_policy(over.id, by=rita)
    listed = listed_policies(rita, most=5)
    assert [policy.row.id for policy in listed] == [lasting.id, over.id]
    assert [policy.row.id for policy in listed_policies(rita, most=1)] == [lasting.id]


def test_a_channel_may_be_signed_without_a_limit(rita: Any) -> None:
    flow = gated("letters", deadline=None, standing=True)
    made_policy = policy_of(advanced(flow), rita, limits={"letter": {}, **TOTAL})
    assert made_policy.limits == {"letter": {}, "total": {"value": "10"}}
    assert advanced(flow).status == "completed"
