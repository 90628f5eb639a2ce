"""Taking a review: a courtesy, or a lock where its gate says so."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import inbox, reviews
from approvals.models import ApprovalRequest, Decision, RequestClaim
from approvals.people import claims
from checkpoints.models import AuditLine, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import (
    Claimed,
    Forbidden,
    InvalidValue,
    NotAReviewer,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from tests.support import cast, run_actions
from tests.support.confirmed_graphs import gated, items_of
from tests.support.run_actions import event_payloads, log, request
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


@pytest.fixture
def ravi(people: cast.People) -> User:
    return run_actions.reviewer(people.second_reviewer)


def expire(asked: ApprovalRequest) -> None:
    """Let the time of a claim be over, sealed as if it had been so from the start."""
    taken = RequestClaim.objects.get(request=asked)
    past = timezone.now() - timedelta(seconds=1)
    changed = sealed_rows.seal_again(taken, PLAIN, until=past)
    taken.save(update_fields=changed)


def last_line() -> AuditLine:
    return AuditLine.objects.order_by("-id")[0]


def test_who_takes_a_review_is_named_in_row_log_and_audit_log(rita: User) -> None:
    run = advanced(gated())
    taken = reviews.claim(request(run).id, by=rita)
    assert taken.by == rita
    assert taken.by_name == "rita"
    assert taken.until is None
    assert event_payloads(run, "request_claimed") == [{"request": str(request(run).id)}]
    line = last_line()
    assert line.kind == "request_claimed"
    assert line.actor_name == "rita"
    assert line.request == request(run).id
    assert verify_run(run.id) == []


def test_without_an_exclusive_gate_others_may_still_sign(
    rita: User, ravi: User
) -> None:
    run = advanced(gated())
    reviews.claim(request(run).id, by=rita)
    reviews.sign(run.id, items_of(run), by=ravi)
    assert Decision.objects.get().by == ravi
    assert runs.advance(run.id).status == "completed"
    assert verify_run(run.id) == []


@pytest.mark.parametrize("options", [{}, {"exclusive": True}])
def test_a_second_claim_is_refused_and_names_the_first(
    rita: User, ravi: User, options: dict[str, Any]
) -> None:
    run = advanced(gated(**options))
    taken = reviews.claim(request(run).id, by=rita)
    before = log(run)
    with pytest.raises(Claimed, match="taken by rita") as refused:
        reviews.claim(request(run).id, by=ravi)
    assert refused.value.facts["by"] == ["rita"]
    assert refused.value.facts["since"] == taken.at.isoformat()
    assert RequestClaim.objects.get().by == rita
    assert log(run) == before


def test_under_an_exclusive_gate_others_cannot_sign_as_long_as_it_lasts(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(exclusive=True))
    taken = reviews.claim(request(run).id, by=rita)
    assert taken.until == taken.at + timedelta(hours=1)
    with pytest.raises(Claimed, match="taken by rita") as refused:
        reviews.sign(run.id, items_of(run), by=ravi)
    assert refused.value.facts == {
        "by": ["rita"],
        "since": taken.at.isoformat(),
        "until": taken.until.isoformat(),
        "request": str(request(run).id),
    }
    assert not Decision.objects.exists()
    reviews.sign(run.id, items_of(run), by=rita)
    assert Decision.objects.get().by == rita
    assert verify_run(run.id) == []


def test_nobody_has_to_take_a_review_of_an_exclusive_gate_to_sign_it(
    rita: User,
) -> None:
    run = advanced(gated(exclusive=True))
    reviews.sign(run.id, items_of(run), by=rita)
    assert Decision.objects.get().by == rita


@pytest.mark.parametrize("how", ["released", "handed over", "over"])
def test_an_exclusive_claim_ends(rita: User, ravi: User, how: str) -> None:
    run = advanced(gated(exclusive=True, claim_for=timedelta(minutes=10)))
    open_request = request(run)
    taken = reviews.claim(open_request.id, by=rita)
    assert taken.until == taken.at + timedelta(minutes=10)
    if how == "released":
        reviews.release(open_request.id, by=rita)
    elif how == "handed over":
        reviews.assign(open_request.id, to=ravi, by=rita)
        with pytest.raises(Claimed, match="taken by ravi"):
            reviews.sign(run.id, items_of(run), by=rita)
    else:
        expire(open_request)
    reviews.sign(run.id, items_of(run), by=ravi)
    assert Decision.objects.get().by == ravi
    assert verify_run(run.id) == []


def test_a_claim_whose_time_is_over_can_be_taken_by_others(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(exclusive=True))
    reviews.claim(request(run).id, by=rita)
    expire(request(run))
    assert reviews.claim(request(run).id, by=ravi).by == ravi


def test_who_takes_a_review_again_keeps_it_for_longer(rita: User) -> None:
    run = advanced(gated(exclusive=True))
    first = reviews.claim(request(run).id, by=rita)
    again = reviews.claim(request(run).id, by=rita)
    assert again.at == first.at
    assert first.until is not None
    assert again.until is not None
    assert again.until > first.until


def test_signing_ends_the_claim_on_what_was_signed(rita: User, ravi: User) -> None:
    run = advanced(gated(quorum=2, exclusive=True))
    reviews.claim(request(run).id, by=rita)
    reviews.sign(run.id, items_of(run), by=rita)
    assert not RequestClaim.objects.exists()
    reviews.sign(run.id, items_of(run), by=ravi)
    assert runs.advance(run.id).status == "completed"


def test_who_may_not_decide_cannot_take_a_review(people: cast.People) -> None:
    run = advanced(gated())
    with pytest.raises(NotAReviewer):
        reviews.claim(request(run).id, by=people.nobody)
    assert not RequestClaim.objects.exists()
    assert last_line().kind == "refused_not_a_reviewer"
    assert last_line().actor_name == "nobody"


def test_whom_four_eyes_exclude_cannot_take_a_review(rita: User) -> None:
    flow = gated(four_eyes=True)
    advanced(flow)
    run = runs.advance(runs.start(flow.name, {}, by=rita).id)
    with pytest.raises(NotAReviewer, match="You started this run"):
        reviews.claim(request(run).id, by=rita)


def test_nobody_takes_or_releases_what_is_closed(rita: User) -> None:
    run = advanced(gated())
    reviews.claim(request(run).id, by=rita)
    reviews.sign(run.id, items_of(run), by=rita)
    for act in (reviews.claim, reviews.release):
        with pytest.raises(WrongStatus):
            act(request(run).id, by=rita)


def test_nobody_takes_what_is_not_there(rita: User) -> None:
    with pytest.raises(UnknownThing):
        reviews.claim("00000000-0000-7000-8000-000000000000", by=rita)


def test_only_the_holder_and_stewards_release(
    rita: User, ravi: User, people: cast.People
) -> None:
    run = advanced(gated())
    with pytest.raises(WrongStatus, match="nobody has taken"):
        reviews.release(request(run).id, by=rita)
    reviews.claim(request(run).id, by=rita)
    with pytest.raises(Forbidden):
        reviews.release(request(run).id, by=ravi)
    assert last_line().kind == "refused_right"
    assert last_line().facts == {"right": "reassign"}
    reviews.release(request(run).id, by=people.steward)
    assert not RequestClaim.objects.exists()
    assert event_payloads(run, "request_released") == [
        {"request": str(request(run).id), "subject": "user:rita"}
    ]
    assert last_line().actor_name == "stella"
    assert verify_run(run.id) == []


def test_a_claim_that_was_put_into_the_database_is_refused(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(exclusive=True))
    reviews.claim(request(run).id, by=rita)
    RequestClaim.objects.update(by=ravi)
    with pytest.raises(TamperedRow):
        reviews.sign(run.id, items_of(run), by=ravi)
    assert last_line().kind == "refused_tampered"
    assert not Decision.objects.exists()


# Who holds a review and has nothing left to decide in it keeps nobody out.


def lost(rita: User, how: str) -> None:
    if how == "inactive":
        rita.is_active = False
        rita.save()
    else:
        rita.groups.clear()


@pytest.mark.parametrize("how", ["inactive", "left"])
def test_a_claim_of_who_may_not_decide_any_more_keeps_nobody_out(
    rita: User, ravi: User, how: str
) -> None:
    run = advanced(gated(exclusive=True))
    reviews.claim(request(run).id, by=rita)
    lost(rita, how)
    reviews.sign(run.id, items_of(run), by=ravi)
    assert Decision.objects.get().by == ravi


@pytest.mark.parametrize("how", ["inactive", "left"])
def test_others_take_what_is_held_by_who_may_not_decide_any_more(
    rita: User, ravi: User, how: str
) -> None:
    run = advanced(gated(exclusive=True))
    reviews.claim(request(run).id, by=rita)
    lost(rita, how)
    assert reviews.claim(request(run).id, by=ravi).by == ravi


def test_who_has_signed_all_that_is_open_cannot_take_it_again(
    rita: User, ravi: User, people: cast.People
) -> None:
    run = advanced(gated(quorum=2, exclusive=True))
    reviews.sign(run.id, items_of(run), by=rita)
    with pytest.raises(NotAReviewer, match="nothing left to decide"):
        reviews.claim(request(run).id, by=rita)
    with pytest.raises(InvalidValue, match="rita has nothing left to decide"):
        reviews.assign(request(run).id, to=rita, by=people.steward)
    assert reviews.claim(request(run).id, by=ravi).by == ravi


def test_who_edited_all_that_is_open_under_four_eyes_cannot_take_it(
    rita: User, ravi: User
) -> None:
    run = advanced(gated(four_eyes=True, exclusive=True))
    edit = items_of(run, "edit", value={"amount": "1"})
    reviews.sign(run.id, edit, by=rita)
    with pytest.raises(NotAReviewer, match="nothing left to decide"):
        reviews.claim(request(run).id, by=rita)
    # Once taken, a part that ends keeps nobody out either.
    reviews.claim(request(run).id, by=ravi)
    edit = items_of(run, "edit", value={"amount": "2"})
    reviews.sign(run.id, edit, by=ravi)
    reviews.sign(run.id, items_of(run), by=rita)
    assert runs.advance(run.id).status == "completed"


# Handing it to somebody.


def test_a_steward_hands_a_review_to_a_person_who_may_decide_it(
    rita: User, people: cast.People
) -> None:
    run = advanced(gated())
    handed = reviews.assign(request(run).id, to=rita, by=people.steward)
    assert handed.by == rita
    assert handed.assigned_by == people.steward
    (waiting,) = inbox.waiting_for(rita)
    taken = claims.shown_claim(waiting)
    assert taken is not None
    assert taken.assigned_name == "stella"
    assert event_payloads(run, "request_assigned") == [
        {"request": str(request(run).id), "subject": "user:rita"}
    ]
    assert last_line().kind == "request_assigned"
    assert last_line().facts["subject"] == "user:rita"
    assert verify_run(run.id) == []


def test_a_steward_hands_it_on_whoever_has_it(
    rita: User, ravi: User, people: cast.People
) -> None:
    run = advanced(gated(exclusive=True))
    reviews.claim(request(run).id, by=rita)
    assert reviews.assign(request(run).id, to=ravi, by=people.steward).by == ravi
    with pytest.raises(Claimed, match="taken by ravi"):
        reviews.sign(run.id, items_of(run), by=rita)


def test_nobody_is_handed_what_they_may_not_decide(
    rita: User, people: cast.People
) -> None:
    run = advanced(gated())
    with pytest.raises(InvalidValue, match="nobody is not one of its reviewers"):
        reviews.assign(request(run).id, to=people.nobody, by=people.steward)
    assert not RequestClaim.objects.exists()
    assert "request_assigned" not in log(run)


def test_nobody_is_handed_what_they_shaped(rita: User, people: cast.People) -> None:
    flow = gated(four_eyes=True)
    advanced(flow)
    run = runs.advance(runs.start(flow.name, {}, by=rita).id)
    with pytest.raises(InvalidValue, match="rita shaped what it is about"):
        reviews.assign(request(run).id, to=rita, by=people.steward)


def test_nobody_is_handed_a_review_whose_account_is_not_active(
    rita: User, people: cast.People
) -> None:
    run = advanced(gated())
    User.objects.filter(pk=rita.pk).update(is_active=False)
    rita.refresh_from_db()
    with pytest.raises(InvalidValue, match="rita"):
        reviews.assign(request(run).id, to=rita, by=people.steward)


@pytest.mark.parametrize("holds", ["nobody", "over", "other"])
def test_who_does_not_hold_a_review_cannot_hand_it_on(
    rita: User, ravi: User, holds: str
) -> None:
    run = advanced(gated(exclusive=True))
    if holds != "nobody":
        reviews.claim(request(run).id, by=rita)
    if holds == "over":
        expire(request(run))
    by = ravi if holds == "other" else rita
    with pytest.raises(Forbidden):
        reviews.assign(request(run).id, to=ravi, by=by)
    assert last_line().kind == "refused_right"


def test_the_inbox_changes_when_a_review_is_taken_and_given_back(
    rita: User, ravi: User
) -> None:
    run = advanced(gated())
    marks = [inbox.mark_of(ravi).mark]
    acts: list[Callable[..., Any]] = [reviews.claim, reviews.release]
    for act in acts:
        act(request(run).id, by=rita)
        marks.append(inbox.mark_of(ravi).mark)
    assert len(set(marks)) == 3


def test_a_run_in_which_nothing_is_taken_is_read_as_often_as_before(
    rita: User, django_assert_max_num_queries: Any
) -> None:
    run: Run = advanced(gated())
    reviews.sign(run.id, items_of(run), by=rita)
    run = advanced(gated())
    with django_assert_max_num_queries(60) as without:
        reviews.sign(run.id, items_of(run), by=rita)
    assert not [sql for sql in without if "DELETE" in sql["sql"]]
