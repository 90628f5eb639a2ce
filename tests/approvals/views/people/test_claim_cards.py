"""Claims on the pages of a review and in inboxes, with plain forms."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals import reviews
from approvals.models import Decision, RequestClaim
from checkpoints.models import Run
from tests.support import claims
from tests.support.cast import People, named
from tests.support.review_forms import choose
from tests.support.run_actions import request

Browse = Callable[[User], Client]


@pytest.fixture
def exclusive(claim_graph: None, people: People) -> Iterator[Run]:
    """Olive's run at an exclusive gate."""
    with claims.registered(claims.graph_of("locked", exclusive=True)):
        yield claims.paused("CLM-2", people.starter, graph="locked")


def post(browse: Browse, user: User, run: Run, **posted: Any) -> Any:
    fields = {"request": str(request(run).id), **posted}
    return browse(user).post(reverse("claim", args=[run.id]), fields, follow=True)


def page_of(browse: Browse, user: User, run: Run) -> Any:
    return browse(user).get(reverse("review", args=[run.id]))


def test_a_reviewer_takes_a_review_and_gives_it_back_with_plain_forms(
    run: Run, people: People, browse: Browse
) -> None:
    html = page_of(browse, people.reviewer, run).content.decode()
    assert "Nobody has taken this review." in html
    assert "Take this review" in html
    answer = post(browse, people.reviewer, run, act="claim").content.decode()
    assert "You have taken this review." in answer
    assert "Taken by you since" in answer
    assert "Others may still sign." in answer
    answer = post(browse, people.reviewer, run, act="release").content.decode()
    assert "The review is given back." in answer
    assert not RequestClaim.objects.exists()


def test_others_read_who_has_it_on_the_review_and_in_their_inbox(
    run: Run, people: People, browse: Browse
) -> None:
    named(people.reviewer, "Rita Rivers")
    reviews.claim(request(run).id, by=people.reviewer)
    html = page_of(browse, people.second_reviewer, run).content.decode()
    assert "Taken by Rita Rivers since" in html
    assert "Take this review" not in html
    inbox = browse(people.second_reviewer).get(reverse("inbox")).content.decode()
    assert "taken by Rita Rivers" in inbox
    own = browse(people.reviewer).get(reverse("inbox")).content.decode()
    assert "taken by you" in own


def test_a_steward_hands_a_review_over_on_its_page(
    run: Run, people: People, browse: Browse
) -> None:
    html = page_of(browse, people.steward, run).content.decode()
    assert "Hand over" in html
    people.second_reviewer  # noqa: B018 (makes the account)
    answer = post(browse, people.steward, run, act="assign", to="ravi")
    assert "The review is handed to ravi." in answer.content.decode()
    inbox = browse(people.second_reviewer).get(reverse("inbox")).content.decode()
    assert "handed to you" in inbox
    refused = post(browse, people.steward, run, act="assign", to="olive")
    assert "olive may not decide this review" in refused.content.decode()
    unknown = post(
        browse, people.steward, run, act="assign", to="zoe", comment="Ask <Marta>."
    )
    html = unknown.content.decode()
    assert "there is no user zoe" in html
    assert "Your comment was not saved: “Ask &lt;Marta&gt;.”" in html


def test_an_exclusive_claim_takes_the_form_from_others(
    exclusive: Run, people: People, browse: Browse
) -> None:
    page = page_of(browse, people.second_reviewer, exclusive)
    posted = choose(page, payout="approve", letter="approve", count="approve")
    reviews.claim(request(exclusive).id, by=people.reviewer)
    html = page_of(browse, people.second_reviewer, exclusive).content.decode()
    assert "Nobody else can sign until then." in html
    assert 'id="review"' not in html
    # The page that was open before is refused, and says by whom.
    answer = browse(people.second_reviewer).post(
        reverse("sign", args=[exclusive.id]), posted
    )
    assert answer.status_code == 409
    assert "aken by rita since" in answer.content.decode()
    assert not Decision.objects.exists()


def test_who_is_kept_out_by_a_claim_reads_so_once_and_by_name(
    exclusive: Run, people: People, browse: Browse
) -> None:
    named(people.reviewer, "Rita Rivers")
    reviews.claim(request(exclusive).id, by=people.reviewer)
    html = page_of(browse, people.second_reviewer, exclusive).content.decode()
    assert html.count("Nobody else can sign until then.") == 1
    assert "Taken by Rita Rivers since" in html
    assert "Taken by rita" not in html
    # What the claim does not say stays.
    html = page_of(browse, people.starter, exclusive).content.decode()
    assert "Taken by Rita Rivers since" in html
    assert "You are not one of its reviewers." in html


@pytest.mark.parametrize("posted", [{"act": "steal"}, {"act": "claim", "request": "x"}])
def test_nonsense_changes_nothing(
    run: Run, people: People, browse: Browse, posted: dict[str, str]
) -> None:
    answer = post(browse, people.reviewer, run, **posted)
    assert "Nothing was changed" in answer.content.decode()
    assert not RequestClaim.objects.exists()


def test_a_request_of_another_run_is_unknown_here(
    run: Run, people: People, browse: Browse
) -> None:
    other = claims.paused("CLM-3", people.starter)
    answer = browse(people.reviewer).post(
        reverse("claim", args=[run.id]),
        {"request": str(request(other).id), "act": "claim"},
        follow=True,
    )
    assert "Nothing was changed" in answer.content.decode()
    assert not RequestClaim.objects.exists()


def test_a_stranger_gets_no_page(run: Run, people: People, browse: Browse) -> None:
    answer = post(browse, people.nobody, run, act="claim")
    assert answer.status_code == 404


def test_who_lost_sight_of_what_they_took_gives_it_back(
    run: Run, people: People, browse: Browse
) -> None:
    reviews.claim(request(run).id, by=people.reviewer)
    people.reviewer.groups.clear()
    assert page_of(browse, people.reviewer, run).status_code == 404
    answer = post(browse, people.reviewer, run, act="release")
    assert "The review is given back." in answer.content.decode()
    assert not RequestClaim.objects.exists()
    assert post(browse, people.reviewer, run, act="release").status_code == 404


def test_a_claim_of_who_may_not_decide_any_more_leaves_others_the_form(
    exclusive: Run, people: People, browse: Browse
) -> None:
    reviews.claim(request(exclusive).id, by=people.reviewer)
    people.reviewer.groups.clear()
    html = page_of(browse, people.second_reviewer, exclusive).content.decode()
    assert "Nobody else can sign" not in html
    assert 'id="review"' in html
