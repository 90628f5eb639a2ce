"""Standing policies on pages, with plain forms: made beside a review, listed, revoked."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags
from pydantic import BaseModel

from approvals import permissions, reviews
from approvals.models import ApprovalRequest, StandingPolicy
from approvals.views.people.claim_cards import _may_allow
from checkpoints.models import AuditLine, Run
from orchestrator.engine import END, START, Gate, Graph
from tests.support import cast, run_actions
from tests.support.cast import PASSWORD
from tests.support.run_actions import sign
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import Order, advanced
from tests.support.standing_policies import permitting, policy_of, waiting
from tests.support.statements import counted

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> Any:
    return run_actions.reviewer(people.reviewer)


def in_days(days: float) -> str:
    return f"{timezone.localtime() + timedelta(days=days):%Y-%m-%dT%H:%M}"


def address(run: Run) -> str:
    request = ApprovalRequest.objects.get(run=run.id)
    return reverse("standing_policy_new", args=[request.id])


def post(browse: Browse, user: User, run: Run, **posted: str) -> Any:
    fields = {
        "channel_1": "total",
        "path_1": "value",
        "most_1": "10",
        "most_uses": "3",
        "ends": in_days(2),
        "password": PASSWORD,
        **posted,
    }
    return browse(user).post(address(run), fields, follow=True)


def test_a_reviewer_makes_one_beside_a_review_and_revokes_it(
    rita: Any, browse: Browse
) -> None:
    run = waiting()
    review = browse(rita).get(reverse("review", args=[run.id])).content.decode()
    assert f'href="{address(run)}"' in review
    form = browse(rita).get(address(run)).content.decode()
    assert 'name="path_1" value="value"' in form
    assert 'value="4"' in form, "the total that is proposed"
    answer = post(browse, rita, run, reason="Small <ones>")
    text = " ".join(strip_tags(answer.content.decode()).split())
    assert "it signs by itself from then on" in text
    assert "Policy 1 of rita at review of permitting, total: value up to 10," in text
    assert "0 of 3 used. Small &lt;ones&gt;" in text
    made = StandingPolicy.objects.get()
    assert (made.by, made.limits, made.most_uses) == (
        rita,
        {"total": {"value": "10"}},
        3,
    )

    signed = advanced(permitting())
    page = browse(rita).get(reverse("standing_policies")).content.decode()
    assert "1 of 3 used" in page
    review = browse(rita).get(reverse("review", args=[signed.id])).content.decode()
    assert "Policy 1 of rita" in strip_tags(review)
    revoked = browse(rita).post(
        reverse("standing_policy_revoke", args=[made.id]), follow=True
    )
    assert "it can no longer sign" in revoked.content.decode()
    made.refresh_from_db()
    assert made.revoked_by == rita


def test_a_receipt_says_which_policy_signed_beside_it(
    rita: Any, people: cast.People, browse: Browse
) -> None:
    policy_of(waiting(), rita)
    run = advanced(permitting(quorum=2))
    reto = run_actions.reviewer(people.steward)
    receipt = run_actions.sign(run, reto, ["approve"])
    page = browse(reto).get(reverse("receipt", args=[receipt.id])).content.decode()
    assert "Policy 1 of rita (total: value up to 10, until " in page
    assert ") approved 1 write at" in page
    left = advanced(permitting(total=11))
    receipt = run_actions.sign(left, reto, ["approve"])
    page = browse(reto).get(reverse("receipt", args=[receipt.id])).content.decode()
    assert "Standing policies left 1 write to people" in page
    assert "it is beyond the limits of a standing policy" in page


@pytest.mark.parametrize("password", ["", "not the right words"])
def test_without_the_password_none_is_made(
    rita: Any, browse: Browse, password: str
) -> None:
    answer = post(browse, rita, waiting(), password=password)
    assert "that is not your password" in answer.content.decode()
    assert not StandingPolicy.objects.exists()
    assert AuditLine.objects.filter(kind="refused_confirmation").count() == 1


@pytest.mark.parametrize(
    "posted",
    [
        {"ends": ""},
        {"ends": "soon"},
        {"ends": "2020-01-01"},
        {"ends": "9999-12-31"},
        {"most_uses": ""},
        {"most_uses": "-1"},
        {"most_uses": "99999999999"},
        {"most_1": "many"},
        {"path_1": "a..b"},
        {"most_1": ""},
        {"path_1": "\x00"},
        {"reason": "\x00"},
    ],
)
def test_nonsense_changes_nothing(
    rita: Any, browse: Browse, posted: dict[str, str]
) -> None:
    answer = post(browse, rita, waiting(), **posted)
    assert "Nothing was changed" in answer.content.decode()
    assert not StandingPolicy.objects.exists()


def test_who_is_no_reviewer_makes_none_and_who_sees_nothing_finds_none(
    rita: Any, people: cast.People, browse: Browse
) -> None:
    run = waiting()
    answer = post(browse, people.auditor, run)
    assert "only a reviewer of it" in answer.content.decode()
    assert browse(people.nobody).get(address(run)).status_code == 404
    assert post(browse, people.nobody, run).status_code == 404
    assert not StandingPolicy.objects.exists()
    policy = policy_of(run, rita)
    other = browse(people.second_reviewer)
    assert "permitting" not in other.get(reverse("standing_policies")).content.decode()
    other.post(reverse("standing_policy_revoke", args=[policy.id]))
    policy.refresh_from_db()
    assert policy.revoked_at is None
    steward = browse(people.steward)
    assert "permitting" in steward.get(reverse("standing_policies")).content.decode()


def test_the_api_lists_shows_and_revokes_what_is_ones_own(
    rita: Any, people: cast.People, browse: Browse
) -> None:
    policy = policy_of(waiting(), rita)
    client = browse(rita)
    root = "/api/v1/standing-policies/"
    [listed] = client.get(root).json()["results"]
    assert listed == client.get(f"{root}{policy.id}/").json()
    assert (listed["by"], listed["number"], listed["uses"]) == ("rita", 1, 0)
    assert listed["limits"] == {"total": {"value": "10"}}
    other = browse(people.second_reviewer)
    assert other.get(root).json()["results"] == []
    assert other.get(f"{root}{policy.id}/").status_code == 404
    revoke = f"{root}{policy.id}/revoke/"
    as_json: dict[str, Any] = {"data": {}, "content_type": "application/json"}
    assert other.post(revoke, **as_json).status_code == 404
    answer = browse(people.steward).post(revoke, **as_json)
    assert answer.json()["revoked_at"]


def test_a_refused_form_keeps_what_was_typed(rita: Any, browse: Browse) -> None:
    ends = in_days(3)
    typed = {"most_1": "2", "most_uses": "7", "ends": ends, "reason": "Small ones"}
    answer = post(browse, rita, waiting(), password="wrong", **typed)
    page = answer.content.decode()
    for value in typed.values():
        assert f'value="{value}"' in page
    assert 'value="4"' not in page, "the total that is proposed"
    ticked = post(browse, rita, waiting(), password="wrong", unlimited_1="total")
    assert "checked" in ticked.content.decode()


class ProposedPaper(BaseModel):
    paper: Any = None


def waiting_with(paper: Any) -> Run:
    """A run that waits at a gate which permits standing policies, with this proposal."""
    flow = Graph("papers", input=Order, state=ProposedPaper)

    @flow.node(effect="human", gate=Gate(reviewers=["group:claims"], standing=True))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"paper": paper}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    return advanced(flow)


def test_what_has_no_number_is_signed_only_where_its_box_is_ticked(
    rita: Any, browse: Browse
) -> None:
    proposed = {"texts": ["a"], "list": [1], "of.two": 1, "below": -1}
    run = waiting_with(proposed)
    form = browse(rita).get(address(run)).content.decode()
    assert "texts, numbers in lists and what lies deeper may be" in form
    assert 'name="path_1" value="below"' in form
    assert "path_2" not in form
    assert 'value="-1"' not in form
    assert 'name="unlimited_1"' in form
    post(browse, rita, run, most_1="")
    assert not StandingPolicy.objects.exists()
    post(browse, rita, run, most_1="", unlimited_1="paper")
    assert StandingPolicy.objects.get().limits == {"paper": {}}


def test_numbers_beyond_those_with_a_field_are_said(rita: Any, browse: Browse) -> None:
    run = waiting_with({f"n{number}": number for number in range(13)})
    form = browse(rita).get(address(run)).content.decode()
    assert 'name="path_12"' in form
    assert "path_13" not in form
    assert "get no limit here" in form


def test_limits_of_an_encrypted_run_are_not_filled_in(
    rita: Any, browse: Browse, settings: Any
) -> None:
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, **ONE_KEY}
    flow = permitting("sealed-limits")
    flow.encrypted = True
    run = advanced(flow)
    form = browse(rita).get(address(run)).content.decode()
    assert 'name="path_1" value="value"' in form
    assert 'value="4"' not in form
    assert "its limits are stored readable" in form


def test_the_api_says_that_a_row_was_put_back(rita: Any, browse: Browse) -> None:
    run = waiting()
    policy = policy_of(run, rita)
    policy_of(run, rita)
    reviews.revoke_standing_policy(policy.id, by=rita)
    policy.save(force_update=True)
    client = browse(rita)
    root = "/api/v1/standing-policies/"
    newer, older = client.get(root).json()["results"]
    assert newer["fault"] is None
    assert older["fault"]["code"] == "tampered_row"
    assert client.get(f"{root}{policy.id}/").json()["fault"] == older["fault"]


def test_the_api_says_which_policy_signed_within_which_limits(
    rita: Any, browse: Browse
) -> None:
    policy = policy_of(waiting(), rita)
    run = advanced(permitting(quorum=2))
    sign(run, rita, ["approve"])
    address_of_run = f"/api/v1/runs/{run.id}/decisions/"
    decisions = browse(rita).get(address_of_run).json()["results"]
    by_name = {decision["by"]: decision["standing"] for decision in decisions}
    assert by_name["rita"] == {}
    standing = by_name["policy 1"]
    assert standing["id"] == str(policy.id)
    assert standing["limits"] == {"total": {"value": "10"}}
    assert standing["ends"] == policy.ends_at.isoformat()


def test_a_review_of_many_requests_reads_the_groups_of_its_reader_once(
    rita: Any,
) -> None:
    request = ApprovalRequest.objects.get(run=waiting().id)
    with permissions.remembering_principals():
        permissions.principals_of(rita)
        with counted() as sent:
            assert _may_allow(rita, request)
    assert sent == []
