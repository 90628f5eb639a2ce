"""Deciding for another: the right alone is passed on, for a time, and nobody counts
twice.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from approvals import inbox, permissions, reviews
from approvals.confirmation import Confirmation
from approvals.models import Decision, Delegation, Receipt
from checkpoints.models import AuditLine, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import (
    ConfirmationRequired,
    InvalidValue,
    NotAReviewer,
    TamperedRow,
    UnknownThing,
)
from tests.support import cast, run_actions
from tests.support.cast import UserFactory
from tests.support.confirmed_graphs import gated, items_of
from tests.support.run_actions import event_payloads, request
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    """A reviewer."""
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    """Another reviewer."""
    return run_actions.reviewer(people.second_reviewer)


@pytest.fixture
def ben() -> User:
    """Nobody's reviewer, who decides for others."""
    return UserFactory.create(username="ben")


def away(delegator: User, delegate: User, **options: Any) -> Delegation:
    """The delegator is away for a day, and the other decides for them."""
    ends = timezone.now() + timedelta(days=1)
    return reviews.delegate(to=delegate, by=delegator, **{"ends": ends, **options})


def signed(run: Run, by: User, verdict: str = "approve", **options: Any) -> Receipt:
    return reviews.sign(run.id, items_of(run, verdict, **options), by=by)


def standing(run: Run) -> tuple[int | None, ...]:
    """The people whose signatures count for the write of a run."""
    from approvals.gates.request_state import load_states
    from checkpoints.sealing.sealed_rows import protection_of

    (state,) = load_states([request(run)], protection_of(run))
    (of_write,) = state.standings.values()
    return of_write.by


def changed(delegation: Delegation, **columns: Any) -> None:
    """The row as if it had been made so."""
    names = sealed_rows.seal_again(delegation, PLAIN, **columns)
    delegation.save(update_fields=names)


# Who decides for whom.


def test_a_person_decides_for_another_and_everything_says_for_whom(
    rita: User, ben: User
) -> None:
    delegation = away(rita, ben, reason="on leave")
    run = advanced(gated())
    receipt = signed(run, ben)
    decision = Decision.objects.get()
    assert decision.by == ben
    assert decision.delegator == rita
    assert decision.delegator_name == "rita"
    assert decision.delegation == delegation.id
    (line,) = receipt.lines
    assert line["delegator"] == "rita"
    (event,) = event_payloads(run, "decision_signed")
    assert event["delegator"] == "rita"
    audit = AuditLine.objects.get(kind="signed")
    assert audit.actor_name == "ben"
    assert audit.facts["delegators"] == ["rita"]
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_for_whom_a_decision_was_made_is_under_its_seal(rita: User, ben: User) -> None:
    away(rita, ben)
    run = advanced(gated())
    signed(run, ben)
    for column, forged in (
        ("delegator_name", ""),
        ("delegator_id", None),
        ("delegator_id", ben.pk),
        ("delegation", None),
    ):
        decision = Decision.objects.get()
        setattr(decision, column, forged)
        with pytest.raises(TamperedRow, match="is not as it was sealed"):
            sealed_rows.verify_row(decision, PLAIN)


def test_a_decision_by_a_persons_own_right_is_sealed_as_before(rita: User) -> None:
    run = advanced(gated(confirm="password"))
    reviews.sign(
        run.id,
        items_of(run),
        by=rita,
        confirmation=Confirmation(rita.pk, "password"),
    )
    decision = Decision.objects.get()
    assert decision.delegator is None
    shape = sealed_rows._shape(Decision, with_added=("confirmed_by",))
    assert b"confirmed_by" in shape.head
    assert b"delegat" not in shape.head
    decision.delegator_name = "ravi"
    with pytest.raises(TamperedRow):
        sealed_rows.verify_row(decision, PLAIN)


def test_who_signs_for_another_confirms_it_with_their_own_password(
    rita: User, ben: User
) -> None:
    away(rita, ben)
    run = advanced(gated(confirm="password"))
    for confirmation in (None, Confirmation(rita.pk, "password")):
        with pytest.raises(ConfirmationRequired):
            reviews.sign(run.id, items_of(run), by=ben, confirmation=confirmation)
    own = Confirmation(ben.pk, "password")
    reviews.sign(run.id, items_of(run), by=ben, confirmation=own)
    decision = Decision.objects.get()
    assert decision.confirmed_by == "password"
    assert decision.delegator == rita
    assert verify_run(run.id) == []


@pytest.mark.parametrize("when", ["before", "after", "revoked", "inactive"])
def test_a_delegation_gives_a_right_only_as_long_as_it_lasts(
    rita: User, ben: User, when: str
) -> None:
    now = timezone.now()
    delegation = away(rita, ben)
    if when == "before":
        changed(delegation, begins_at=now + timedelta(hours=1))
    elif when == "after":
        changed(delegation, ends_at=now - timedelta(seconds=1))
    elif when == "revoked":
        reviews.revoke_delegation(delegation.id, by=rita)
    else:
        User.objects.filter(pk=rita.pk).update(is_active=False)
    run = advanced(gated())
    assert list(inbox.waiting_for(ben)) == []
    assert not permissions.may_see_run(ben, run)
    with pytest.raises(NotAReviewer):
        signed(run, ben)
    assert not Decision.objects.exists()


def test_membership_is_judged_when_the_other_signs(rita: User, ben: User) -> None:
    away(rita, ben)
    run = advanced(gated())
    rita.groups.clear()
    with pytest.raises(NotAReviewer):
        signed(run, ben)


def test_nobody_passes_on_what_was_passed_on_to_them(rita: User, ben: User) -> None:
    zoe = UserFactory.create(username="zoe")
    away(rita, ben)
    away(ben, zoe)
    run = advanced(gated())
    assert list(inbox.waiting_for(zoe)) == []
    with pytest.raises(NotAReviewer):
        signed(run, zoe)


def test_a_delegation_that_was_put_into_the_database_gives_nothing(
    rita: User, ben: User
) -> None:
    zoe = UserFactory.create(username="zoe")
    away(rita, zoe)
    Delegation.objects.update(delegate=ben)
    run = advanced(gated())
    assert list(inbox.waiting_for(ben)) == []
    with pytest.raises(NotAReviewer):
        signed(run, ben)


# Four eyes.


def test_who_started_a_run_decides_for_nobody_under_four_eyes(
    rita: User, ben: User
) -> None:
    flow = gated(four_eyes=True)
    advanced(flow)
    away(rita, ben)
    run = runs.advance(runs.start(flow.name, {}, by=ben).id)
    with pytest.raises(NotAReviewer, match="You started this run"):
        signed(run, ben)


def test_nobody_decides_for_a_person_whom_four_eyes_exclude(
    rita: User, ben: User
) -> None:
    flow = gated(four_eyes=True)
    advanced(flow)
    away(rita, ben)
    run = runs.advance(runs.start(flow.name, {}, by=rita).id)
    with pytest.raises(NotAReviewer, match="exclude rita, for whom you would decide"):
        signed(run, ben)
    assert not Decision.objects.exists()


def test_a_delegate_decides_for_the_one_of_two_whom_four_eyes_do_not_exclude(
    rita: User, ravi: User, ben: User
) -> None:
    flow = gated(four_eyes=True)
    advanced(flow)
    away(rita, ben)
    away(ravi, ben)
    run = runs.advance(runs.start(flow.name, {}, by=rita).id)
    signed(run, ben)
    assert Decision.objects.get().delegator == ravi


def test_nobody_approves_an_edit_for_its_author(rita: User, ben: User) -> None:
    run = advanced(gated(four_eyes=True))
    signed(run, rita, "edit", value={"amount": "1"})
    away(rita, ben)
    with pytest.raises(NotAReviewer):
        signed(run, ben)
    assert Decision.objects.count() == 1


def test_who_edited_for_another_does_not_approve_that_edit(
    rita: User, ravi: User, ben: User
) -> None:
    run = advanced(gated(four_eyes=True))
    away(rita, ben)
    away(ravi, ben)
    signed(run, ben, "edit", value={"amount": "1"})
    with pytest.raises(NotAReviewer):
        signed(run, ben)
    signed(run, rita)
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


# Nobody counts twice.


def test_who_decides_for_two_people_counts_once(
    rita: User, ravi: User, ben: User
) -> None:
    away(rita, ben)
    away(ravi, ben)
    run = advanced(gated(quorum=2))
    signed(run, ben)
    signed(run, ben)
    assert standing(run) == (ben.pk,)
    assert request(run).status == "open"
    assert verify_run(run.id) == []


def test_a_reviewer_who_decides_for_another_counts_once_and_by_their_own_right(
    rita: User, ravi: User
) -> None:
    away(rita, ravi)
    run = advanced(gated(quorum=2))
    signed(run, ravi)
    signed(run, ravi)
    assert standing(run) == (ravi.pk,)
    assert not Decision.objects.exclude(delegator=None).exists()
    assert request(run).status == "open"


def test_a_person_and_who_decided_for_them_count_once(rita: User, ben: User) -> None:
    away(rita, ben)
    run = advanced(gated(quorum=2))
    signed(run, ben)
    signed(run, rita)
    assert standing(run) == (rita.pk,)
    assert request(run).status == "open"
    assert verify_run(run.id) == []


def test_nobody_decides_for_who_has_decided_themselves(rita: User, ben: User) -> None:
    away(rita, ben)
    run = advanced(gated(quorum=2))
    signed(run, rita)
    with pytest.raises(NotAReviewer, match="have decided this already"):
        signed(run, ben)
    assert standing(run) == (rita.pk,)


def test_two_who_decide_for_one_count_once(rita: User, ben: User) -> None:
    zoe = UserFactory.create(username="zoe")
    away(rita, ben)
    away(rita, zoe)
    run = advanced(gated(quorum=2))
    signed(run, ben)
    with pytest.raises(NotAReviewer, match="have decided this already"):
        signed(run, zoe)
    assert standing(run) == (ben.pk,)


def test_an_edit_that_counts_for_nobody_uses_up_nobodys_right(
    rita: User, ben: User
) -> None:
    zoe = UserFactory.create(username="zoe")
    away(rita, ben)
    away(rita, zoe)
    run = advanced(gated(four_eyes=True))
    signed(run, ben, "edit", value={"amount": "1"})
    signed(run, zoe)
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


def test_who_decided_for_another_may_decide_again(rita: User, ben: User) -> None:
    away(rita, ben)
    run = advanced(gated(quorum=2, reject_quorum=2))
    signed(run, ben)
    signed(run, ben, "reject")
    assert standing(run) == (ben.pk,)
    assert Decision.objects.count() == 2


def test_two_rights_of_two_people_are_two_signatures(
    rita: User, ravi: User, ben: User
) -> None:
    away(rita, ben)
    run = advanced(gated(quorum=2))
    signed(run, ben)
    signed(run, ravi)
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


# What the other sees.


def test_the_inbox_of_the_other_has_what_waits_for_a_person(
    rita: User, ben: User
) -> None:
    run = advanced(gated())
    assert inbox.count_waiting(ben) == 0
    delegation = away(rita, ben)
    assert [row.run_id for row in inbox.waiting_for(ben)] == [run.id]
    assert inbox.count_waiting(ben) == 1
    assert permissions.may_see_run(ben, run)
    assert list(permissions.visible_runs(ben)) == [run]
    reviews.revoke_delegation(delegation.id, by=rita)
    assert inbox.count_waiting(ben) == 0
    assert not permissions.may_see_run(ben, run)


def statements(user: User) -> int:
    with CaptureQueriesContext(connection) as captured:
        list(inbox.waiting_for(User.objects.get(pk=user.pk)))
    return len(captured)


def test_who_decides_for_nobody_reads_as_often_as_before(rita: User) -> None:
    # The account, its groups and permissions, and the inbox.
    assert statements(rita) <= 5


def test_the_cost_of_an_inbox_does_not_grow_with_what_waits(
    rita: User, ben: User
) -> None:
    away(rita, ben)
    flow = gated()
    advanced(flow)
    first = statements(ben)
    for _ in range(3):
        runs.advance(runs.start(flow.name, {}).id)
    assert statements(ben) == first


# Making and revoking them.


def test_a_delegation_is_noted_in_the_audit_log(rita: User, ben: User) -> None:
    delegation = away(rita, ben)
    line = AuditLine.objects.get(kind="delegated")
    assert line.actor_name == "rita"
    assert line.facts["subject"] == "user:ben"
    reviews.revoke_delegation(delegation.id, by=rita)
    line = AuditLine.objects.get(kind="delegation_revoked")
    assert line.actor_name == "rita"
    # A second time changes nothing.
    reviews.revoke_delegation(delegation.id, by=rita)
    assert AuditLine.objects.filter(kind="delegation_revoked").count() == 1


def test_who_is_not_concerned_does_not_learn_of_it(
    rita: User, ravi: User, ben: User, people: cast.People
) -> None:
    delegation = away(rita, ben)
    with pytest.raises(UnknownThing):
        reviews.revoke_delegation(delegation.id, by=ravi)
    assert reviews.revoke_delegation(delegation.id, by=people.steward).revoked_at


def brought_back(delegation: Delegation) -> None:
    """Put the whole row back as it was before it was revoked, with its seal."""
    delegation.save()


def test_a_revoked_delegation_that_is_put_back_gives_no_right(
    rita: User, ben: User
) -> None:
    delegation = away(rita, ben)
    reviews.revoke_delegation(delegation.id, by=rita)
    brought_back(delegation)
    run = advanced(gated())
    with pytest.raises(NotAReviewer):
        signed(run, ben)
    assert not permissions.may_see_run(ben, run)
    with pytest.raises(TamperedRow, match="was revoked, as the audit log says"):
        reviews.revoke_delegation(delegation.id, by=rita)


def test_a_second_concurrent_delegation_between_the_same_people_is_refused(
    rita: User, ravi: User, ben: User
) -> None:
    first = away(rita, ben)
    with pytest.raises(InvalidValue, match="ben decides for you then already") as no:
        away(rita, ben)
    assert no.value.facts["delegation"] == str(first.id)
    # Other people, another time, and once the first is revoked.
    away(ravi, ben)
    begins = first.ends_at
    away(rita, ben, begins=begins, ends=begins + timedelta(days=1))
    reviews.revoke_delegation(first.id, by=rita)
    away(rita, ben, ends=begins)
    assert Delegation.objects.count() == 4


def test_who_passed_the_right_on_takes_back_what_the_other_ended(
    rita: User, ben: User
) -> None:
    delegation = away(rita, ben)
    ended = reviews.revoke_delegation(delegation.id, by=ben)
    taken_back = reviews.revoke_delegation(delegation.id, by=rita)
    assert taken_back.revoked_at == ended.revoked_at
    assert taken_back.revoked_by == rita
    # It is not less again.
    assert reviews.revoke_delegation(delegation.id, by=ben).revoked_by == rita
    assert AuditLine.objects.filter(kind="delegation_revoked").count() == 2


@pytest.mark.parametrize("by", ["delegate", "delegator"])
def test_both_sides_end_it(rita: User, ben: User, by: str) -> None:
    delegation = away(rita, ben)
    who = ben if by == "delegate" else rita
    assert reviews.revoke_delegation(delegation.id, by=who).revoked_by == who


def test_what_no_delegation_can_be_is_refused(rita: User, ben: User) -> None:
    now = timezone.now()
    for options in (
        {"ends": now - timedelta(days=1)},
        {"begins": now + timedelta(days=2), "ends": now + timedelta(days=1)},
        {"ends": now + timedelta(days=400)},
        {"reason": "x" * 1001},
    ):
        with pytest.raises(InvalidValue):
            away(rita, ben, **options)
    with pytest.raises(InvalidValue, match="for yourself"):
        away(rita, rita)
    User.objects.filter(pk=ben.pk).update(is_active=False)
    ben.refresh_from_db()
    with pytest.raises(InvalidValue, match="there is no user ben"):
        away(rita, ben)
    assert not Delegation.objects.exists()


def test_nobody_decides_for_too_many(ben: User) -> None:
    for _ in range(10):
        away(UserFactory.create(), ben)
    with pytest.raises(InvalidValue, match="for 10 others"):
        away(UserFactory.create(), ben)


def test_a_review_is_handed_to_who_decides_for_a_reviewer(
    rita: User, ben: User, people: cast.People
) -> None:
    run = advanced(gated(exclusive=True))
    with pytest.raises(InvalidValue):
        reviews.assign(request(run).id, to=ben, by=people.steward)
    away(rita, ben)
    reviews.assign(request(run).id, to=ben, by=people.steward)
    signed(run, ben)
    assert Decision.objects.get().delegator == rita


def test_a_role_that_a_person_has_besides_is_not_passed_on(
    people: cast.People, ben: User
) -> None:
    away(people.steward, ben)
    for right in permissions.RIGHTS:
        assert not permissions.may(User.objects.get(pk=ben.pk), right)
    assert Group.objects.filter(name="steward").exists()
