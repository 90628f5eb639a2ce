"""Drafts: what was chosen stays through reload, log-out and a lost session. Nobody else
sees it; it decides nothing.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals import reviews
from approvals.drafts import drafts_of
from approvals.models import Decision, Draft
from checkpoints.models import Run
from orchestrator import runs
from tests.support import cast, claims
from tests.support.cast import People
from tests.support.review_forms import choose, form_of, slip_of
from tests.support.run_actions import pending

Browse = Callable[[User], Client]


def review(browse: Browse, user: User, run: Run) -> Any:
    page = browse(user).get(reverse("review", args=[run.id]))
    assert page.status_code == 200
    return page


def posted_by(page: Any, user: User, **verdicts: str) -> dict[str, Any]:
    shown = page.context["page"]
    return {**choose(page, **verdicts), "number": str(shown.number), "by": str(user.pk)}


def keep(browse: Browse, user: User, run: Run, **verdicts: str) -> dict[str, Any]:
    """Choose on a page that is opened now, and keep it by the button."""
    posted = posted_by(review(browse, user, run), user, **verdicts)
    answer = browse(user).post(reverse("draft", args=[run.id]), posted)
    assert answer.status_code == 302
    assert answer.url == reverse("review", args=[run.id])
    return posted


def test_what_was_chosen_is_there_again_whenever_one_comes_back(
    run: Run, people: People, browse: Browse
) -> None:
    posted = posted_by(
        review(browse, people.reviewer, run),
        people.reviewer,
        payout="edit",
        letter="reject",
    )
    payout = slip_of(review(browse, people.reviewer, run), "payout")
    posted[f"e-{payout.write}.amount"] = "9.75"
    browse(people.reviewer).post(reverse("draft", args=[run.id]), posted)
    page = review(browse, people.reviewer, run)
    assert [slip.chosen for slip in page.context["page"].slips] == [
        "edit",
        "reject",
        "",
    ]
    amount = next(
        c for c in slip_of(page, "payout").control.walk() if c.path == "amount"
    )
    assert amount.value == "9.75"
    assert slip_of(page, "letter").reason == "because"
    assert not Decision.objects.exists()
    assert runs.advance(run.id).status == "paused"


@pytest.mark.parametrize("instead", ["reject", "approve", ""])
@pytest.mark.parametrize(
    ("channel", "field", "text"),
    [("payout", ".amount", "9.75"), ("count", "", "three")],
)
def test_what_was_typed_stays_when_another_verdict_is_chosen_and_one_comes_back(
    channel: str,
    field: str,
    text: str,
    instead: str,
    run: Run,
    people: People,
    browse: Browse,
) -> None:
    posted = posted_by(
        review(browse, people.reviewer, run), people.reviewer, **{channel: "edit"}
    )
    write = slip_of(review(browse, people.reviewer, run), channel).write
    posted[f"e-{write}{field}"] = text
    browse(people.reviewer).post(reverse("draft", args=[run.id]), posted)
    posted |= {
        f"v-{write}": instead,
        f"r-{write}": "",
        "number": str(int(posted["number"]) + 1),
    }
    browse(people.reviewer).post(reverse("draft", args=[run.id]), posted)
    slip = slip_of(review(browse, people.reviewer, run), channel)
    (typed,) = (
        control.value
        for control in slip.control.walk()
        if control.name == f"e-{write}{field}"
    )
    assert slip.chosen == instead
    assert typed == text
    assert slip.errors == []


def test_an_edit_form_that_nobody_touched_is_not_kept(
    run: Run, people: People, browse: Browse
) -> None:
    keep(browse, people.reviewer, run, payout="approve", count="edit")
    kept = {
        draft.verdict: dict(draft.fields)
        for draft in drafts_of(people.reviewer, run).values()
    }
    assert kept["approve"] == {}
    assert kept["edit"] != {}


def test_an_edit_that_cannot_be_read_is_kept_as_it_was_typed(
    run: Run, people: People, browse: Browse
) -> None:
    posted = posted_by(
        review(browse, people.reviewer, run), people.reviewer, count="edit"
    )
    posted[f"e-{slip_of(review(browse, people.reviewer, run), 'count').write}"] = (
        "three"
    )
    browse(people.reviewer).post(reverse("draft", args=[run.id]), posted)
    slip = slip_of(review(browse, people.reviewer, run), "count")
    assert slip.chosen == "edit"
    assert slip.control.value == "three"
    assert "whole number" in slip.errors[0]


def test_nobody_but_the_person_sees_a_draft(
    run: Run, people: People, browse: Browse
) -> None:
    keep(browse, people.reviewer, run, payout="approve")
    assert review(browse, people.second_reviewer, run).context["page"].undecided == 3
    assert Draft.objects.get().by == people.reviewer


def test_who_may_not_decide_keeps_nothing(
    run: Run, people: People, browse: Browse
) -> None:
    posted = posted_by(
        review(browse, people.reviewer, run), people.reviewer, payout="approve"
    )
    browse(people.starter).post(reverse("draft", args=[run.id]), posted)
    assert (
        browse(people.nobody).post(reverse("draft", args=[run.id]), posted).status_code
        == 404
    )
    assert not Draft.objects.exists()


def test_signing_removes_ones_drafts_and_settling_everybodys(
    run: Run, people: People, browse: Browse
) -> None:
    keep(browse, people.second_reviewer, run, payout="reject", letter="approve")
    posted = keep(
        browse, people.reviewer, run, payout="approve", letter="edit", count="approve"
    )
    only = {name: one for name, one in posted.items() if not name.startswith("v-")}
    payout = slip_of(review(browse, people.reviewer, run), "payout")
    browse(people.reviewer).post(
        reverse("sign", args=[run.id]), {**only, f"v-{payout.write}": "approve"}
    )
    assert Decision.objects.count() == 1
    left = {
        (draft.by.username, str(draft.write) == payout.write)
        for draft in Draft.objects.select_related("by")
    }
    assert left == {("rita", False), ("ravi", False)}


def test_a_draft_of_a_revision_that_moved_is_told_and_never_applied(
    people: People, browse: Browse, claim_graph: None
) -> None:
    with claims.registered(claims.graph_of(quorum=2)):
        run = claims.paused("CLM-5", people.starter)
        keep(browse, people.reviewer, run, payout="approve", letter="approve")
        row = pending(run)[0]
        edit = {"write": str(row.write), "hash": row.hash, "verdict": "edit"}
        value = {"amount": "1", "account": "x"}
        reviews.sign(run.id, [{**edit, "value": value}], by=people.second_reviewer)
        page = review(browse, people.reviewer, run)
        assert [slip.chosen for slip in page.context["page"].slips] == [
            "",
            "approve",
            "",
        ]
        html = page.content.decode()
        assert html.count("This changed while you decided.") == 1
        assert "You had chosen Approve for the version before." in html


def test_what_was_chosen_for_a_revision_that_has_moved_is_not_kept(
    run: Run, people: People, browse: Browse
) -> None:
    posted = posted_by(
        review(browse, people.reviewer, run),
        people.reviewer,
        payout="approve",
        count="approve",
    )
    posted[f"h-{slip_of(review(browse, people.reviewer, run), 'payout').write}"] = (
        "0" * 64
    )
    headers = {"X-Fragment": "1"}
    answer = browse(people.reviewer).post(
        reverse("draft", args=[run.id]), posted, headers=headers
    )
    answer_page = review(browse, people.reviewer, run)
    assert (
        f'data-moved="{slip_of(answer_page, "payout").write}"'
        in answer.content.decode()
    )
    assert [str(draft.write) for draft in Draft.objects.all()] == [
        slip_of(answer_page, "count").write
    ]


def test_an_older_page_never_replaces_newer_choices(
    run: Run, people: People, browse: Browse
) -> None:
    old = posted_by(
        review(browse, people.reviewer, run), people.reviewer, payout="reject"
    )
    keep(browse, people.reviewer, run, payout="approve")
    script = browse(people.reviewer).post(
        reverse("draft", args=[run.id]), old, headers={"X-Fragment": "1"}
    )
    assert script.status_code == 409
    button = browse(people.reviewer).post(reverse("draft", args=[run.id]), old)
    assert button.status_code == 409
    assert b"another page of yours has newer choices" in button.content
    assert slip_of(button, "payout").chosen == "reject", (
        "what this page chose is still on it"
    )
    assert slip_of(review(browse, people.reviewer, run), "payout").chosen == "approve"


def test_undoing_a_choice_removes_its_draft(
    run: Run, people: People, browse: Browse
) -> None:
    keep(browse, people.reviewer, run, payout="approve")
    page = review(browse, people.reviewer, run)
    none = {**form_of(page), "number": str(page.context["page"].number)}
    browse(people.reviewer).post(reverse("draft", args=[run.id]), none)
    assert not Draft.objects.exists()


@pytest.mark.parametrize("name", ["sign", "draft"])
def test_a_session_that_ends_while_deciding_leads_back_to_the_review_with_every_choice(
    name: str, run: Run, people: People, browse: Browse
) -> None:
    posted = posted_by(
        review(browse, people.reviewer, run),
        people.reviewer,
        payout="edit",
        letter="reject",
    )
    posted[
        f"e-{slip_of(review(browse, people.reviewer, run), 'payout').write}.amount"
    ] = "9.75"
    client = Client()
    door = client.post(reverse(name, args=[run.id]), posted)
    assert door.status_code == 401
    assert b"Not signed: your session has ended." in door.content
    carried = fields_of(door)
    wrong = client.post(
        reverse("login"), {**login(people.reviewer, run, "wrong"), **carried}
    )
    assert fields_of(wrong) == {**carried, "review": [str(run.id)]}, (
        "a mistyped password loses nothing"
    )
    back = client.post(reverse("login"), {**login(people.reviewer, run), **carried})
    assert back.status_code == 302
    assert back.url == reverse("review", args=[run.id])
    page = client.get(back.url)
    assert [slip.chosen for slip in page.context["page"].slips] == [
        "edit",
        "reject",
        "",
    ]
    assert not Decision.objects.exists()


def fields_of(door: Any) -> dict[str, list[str]]:
    """The hidden fields of a sign-in form."""
    collected: dict[str, list[str]] = {}
    for name, value in door.context["carried"]:
        collected.setdefault(name, []).append(value)
    return collected


def login(user: User, run: Run, password: str = cast.PASSWORD) -> dict[str, str]:
    return {
        "username": user.username,
        "password": password,
        "next": reverse("review", args=[run.id]),
        "review": str(run.id),
    }


def test_what_one_person_chose_is_not_kept_for_another_who_signs_in_there(
    run: Run, people: People, browse: Browse
) -> None:
    posted = posted_by(
        review(browse, people.reviewer, run), people.reviewer, payout="approve"
    )
    client = Client()
    carried = fields_of(client.post(reverse("sign", args=[run.id]), posted))
    client.post(reverse("login"), {**login(people.second_reviewer, run), **carried})
    assert not Draft.objects.exists()


@pytest.mark.parametrize("name", ["sign", "draft"])
def test_opening_the_address_that_a_review_posts_to_shows_the_review(
    name: str, run: Run, browse: Browse
) -> None:
    answer = Client().get(reverse(name, args=[run.id]))
    assert answer.status_code == 302
    assert answer.url == reverse("review", args=[run.id])


def test_a_script_whose_session_has_ended_is_told_so(run: Run) -> None:
    assert (
        Client()
        .post(reverse("draft", args=[run.id]), {}, headers={"X-Fragment": "1"})
        .status_code
        == 401
    )
