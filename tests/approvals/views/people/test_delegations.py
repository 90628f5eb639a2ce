"""Who decides in a person's place, on the page of their account, with plain forms."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import reviews
from approvals.models import Decision, Delegation, Receipt
from checkpoints.models import AuditLine, Run
from tests.support import claims
from tests.support.cast import PASSWORD, People, UserFactory, named
from tests.support.review_forms import choose

Browse = Callable[[User], Client]


@pytest.fixture
def ben(db: None) -> User:
    return named(UserFactory.create(username="ben"), "Ben Berg")


def in_a_day() -> str:
    return f"{timezone.localtime() + timedelta(days=1):%Y-%m-%dT%H:%M}"


def post(browse: Browse, user: User, **posted: str) -> Any:
    fields = {"password": PASSWORD, **posted}
    return browse(user).post(reverse("delegate"), fields, follow=True)


def test_a_person_lets_another_decide_and_ends_it_with_plain_forms(
    people: People,
    browse: Browse,
    ben: User,
) -> None:
    page = browse(people.reviewer).get(reverse("account")).content.decode()
    assert "Nobody decides for you" in page
    answer = post(browse, people.reviewer, to="ben", ends=in_a_day(), reason="Holiday")
    assert "ben decides in your place then." in answer.content.decode()
    delegation = Delegation.objects.get()
    assert delegation.delegator == people.reviewer
    assert delegation.reason == "Holiday"
    other = browse(ben).get(reverse("account")).content.decode()
    assert "You decide for <b>rita</b>" in other
    ended = browse(people.reviewer).post(
        reverse("delegation_revoke", args=[delegation.id]), follow=True
    )
    assert "nobody decides by it any more" in ended.content.decode()
    delegation.refresh_from_db()
    assert delegation.revoked_by == people.reviewer


@pytest.mark.parametrize("password", ["", "not the right words"])
def test_without_the_password_nobody_is_let_decide(
    people: People, browse: Browse, ben: User, password: str
) -> None:
    answer = post(browse, people.reviewer, to="ben", ends=in_a_day(), password=password)
    html = answer.content.decode()
    assert html.count("Nothing was changed") == 1
    assert "that is not your password" in html
    assert not Delegation.objects.exists()
    assert AuditLine.objects.filter(kind="refused_confirmation").count() == 1


@pytest.mark.parametrize(
    "posted",
    [
        {"to": "zoe"},
        {"to": "rita"},
        {"to": "\x00"},
        {"ends": ""},
        {"ends": "soon"},
        {"ends": "2020-01-01"},
        {"begins": "2026-13-01"},
        {"ends": "9999-12-31"},
        {"reason": "\x00"},
    ],
)
def test_nonsense_changes_nothing(
    people: People,
    browse: Browse,
    ben: User,
    posted: dict[str, str],
) -> None:
    fields = {"to": "ben", "ends": in_a_day(), **posted}
    answer = post(browse, people.reviewer, **fields)
    assert "Nothing was changed" in answer.content.decode()
    assert not Delegation.objects.exists()


def test_nobody_ends_what_does_not_concern_them(
    people: People,
    browse: Browse,
    ben: User,
) -> None:
    post(browse, people.reviewer, to="ben", ends=in_a_day())
    delegation = Delegation.objects.get()
    browse(people.second_reviewer).post(
        reverse("delegation_revoke", args=[delegation.id])
    )
    delegation.refresh_from_db()
    assert delegation.revoked_at is None


def test_the_other_finds_the_review_and_signs_it_for_them(
    run: Run,
    people: People,
    browse: Browse,
    ben: User,
) -> None:
    named(people.reviewer, "Rita Rivers")
    assert browse(ben).get(reverse("review", args=[run.id])).status_code == 404
    ends = timezone.now() + timedelta(days=1)
    reviews.delegate(to=ben, ends=ends, by=people.reviewer)
    inbox = browse(ben).get(reverse("inbox")).content.decode()
    assert "for Rita Rivers" in inbox
    page = browse(ben).get(reverse("review", args=[run.id]))
    assert "You decide for Rita Rivers." in page.content.decode()
    posted = choose(page, payout="approve", letter="approve", count="approve")
    answer = browse(ben).post(reverse("sign", args=[run.id]), posted, follow=True)
    html = answer.content.decode()
    assert Receipt.objects.get().by == ben
    assert html.count("for rita") == 3
    assert {row.delegator_name for row in Decision.objects.all()} == {"rita"}
    shown = browse(people.reviewer).get(reverse("review", args=[run.id]))
    assert "Ben Berg, for rita" in shown.content.decode()


def test_a_delegation_for_a_person_whom_four_eyes_exclude_shows_why_not(
    claim_graph: None,
    people: People,
    browse: Browse,
    ben: User,
) -> None:
    mine = claims.paused("CLM-9", people.reviewer, graph="four_eyes")
    ends = timezone.now() + timedelta(days=1)
    reviews.delegate(to=ben, ends=ends, by=people.reviewer)
    page = browse(ben).get(reverse("review", args=[mine.id])).content.decode()
    assert "Four eyes exclude rita, for whom you would decide." in page
    assert 'id="review"' not in page


def account_page(browse: Browse, user: User) -> str:
    return str(browse(user).get(reverse("account")).content.decode())


def test_a_delegation_that_was_put_back_is_marked_and_offers_no_end(
    people: People, browse: Browse, ben: User
) -> None:
    post(browse, people.reviewer, to="ben", ends=in_a_day())
    delegation = Delegation.objects.get()
    for person in (people.reviewer, ben):
        page = account_page(browse, person)
        assert "End it now" in page
        assert "Gives no right" not in page
    reviews.revoke_delegation(delegation.id, by=people.reviewer)
    assert "Gives no right" not in account_page(browse, people.reviewer)
    # The whole earlier row, with its seal.
    delegation.save()
    for person in (people.reviewer, ben):
        page = account_page(browse, person)
        assert "Gives no right" in page
        assert "End it now" not in page


def test_a_delegation_that_was_changed_in_the_database_is_marked(
    people: People, browse: Browse, ben: User
) -> None:
    post(browse, people.reviewer, to="ben", ends=in_a_day())
    Delegation.objects.update(ends_at=timezone.now() + timedelta(days=300))
    assert "Gives no right" in account_page(browse, ben)
