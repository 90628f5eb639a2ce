"""The page that re-opens a review."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import ApprovalRequest
from checkpoints.models import AuditLine, Run
from orchestrator.engine import registry
from orchestrator.runs.reopenings import reopen
from tests.support import run_actions
from tests.support.cast import People
from tests.support.deadlines import gated, paused_run
from tests.support.reopening import reopen_between_reads

Browse = Callable[[User], Client]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    waiting = paused_run(deadline=None)
    registry.replace(gated("with-deadline", deadline=None, quorum=2))
    return waiting


def address(run: Run) -> str:
    request = ApprovalRequest.objects.get(run=run, status="open")
    return reverse("reopen", args=[run.id, request.id])


def test_a_steward_reads_what_would_change_and_re_opens_it(
    people: People, browse: Browse, run: Run
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    run_actions.sign(run, rita, ["approve", None])
    stella = browse(people.steward)
    review = stella.get(reverse("review", args=[run.id])).content.decode()
    assert address(run) in review
    page = stella.get(address(run)).content.decode()
    assert "signatures needed: 1 became 2" in page
    assert "What 1 person has decided" in page
    before = address(run)
    assert stella.post(before, {"reason": " "}).status_code == 422
    answer = stella.post(before, {"reason": "stricter now"})
    assert answer["Location"] == reverse("review", args=[run.id])
    assert address(run) != before
    assert "It cannot be re-opened." in stella.get(before).content.decode()


def test_others_may_look_and_not_re_open(
    people: People, browse: Browse, run: Run
) -> None:
    rita = browse(run_actions.reviewer(people.reviewer))
    review = rita.get(reverse("review", args=[run.id])).content.decode()
    assert address(run) not in review
    assert "You may look, but not re-open." in rita.get(address(run)).content.decode()
    assert rita.post(address(run), {"reason": "I want to"}).status_code == 403
    assert AuditLine.objects.filter(kind="refused_right").count() == 1
    assert ApprovalRequest.objects.filter(run=run).count() == 1


def test_who_may_not_see_the_run_finds_no_page(
    people: People, browse: Browse, run: Run
) -> None:
    assert browse(people.nobody).get(address(run)).status_code == 404


def test_a_request_of_another_run_is_not_found(
    people: People, browse: Browse, run: Run
) -> None:
    other: Any = paused_run("other", deadline=None)
    request = ApprovalRequest.objects.get(run=other)
    at_run = reverse("reopen", args=[run.id, request.id])
    assert browse(people.steward).get(at_run).status_code == 404


def test_pages_show_what_was_re_opened_once_as_it_is_asked_now(
    people: People, browse: Browse, run: Run
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    old = ApprovalRequest.objects.get(run=run)
    reopen(old.id, by=people.steward, reason="stricter now")
    client = browse(rita)
    # As a page does that was open before.
    review = client.get(reverse("review", args=[run.id]), {"seen": str(old.id)})
    page = review.content.decode()
    assert "Withdrawn." not in page
    assert str(ApprovalRequest.objects.get(run=run, status="open").id) in page
    writes = client.get(reverse("run", args=[run.id]), {"tab": "writes"})
    tag = '<span class="tag">withdrawn</span>'
    assert tag not in writes.content.decode()


@pytest.mark.parametrize("name", ["review", "draft", "seen"])
def test_a_review_that_is_re_opened_while_it_is_read_shows_what_is_asked_now(
    monkeypatch: pytest.MonkeyPatch,
    people: People,
    browse: Browse,
    run: Run,
    name: str,
) -> None:
    rita = browse(run_actions.reviewer(people.reviewer))
    first = run_actions.pending(run)[0]
    opened = reopen_between_reads(monkeypatch, run, by=people.steward)
    place = reverse(name, args=[run.id])
    if name == "review":
        page = rita.get(place)
        assert str(opened[0].id) in page.content.decode()
    else:
        posted = {"seen": f"{first.write}.1", "key": "k", "number": "1"}
        page = rita.post(place, posted)
    assert page.status_code < 400, page.content.decode()
    assert len(opened) == 1
