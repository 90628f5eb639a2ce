"""A run in the Django admin: in words, with what hangs on it, and links to all that can
be done with it.
"""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse

from approvals import admin
from approvals.models import ApprovalRequest, Decision
from checkpoints import retention
from checkpoints.admin.rows import MOST_COUNTED, CappedPaginator
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from tests.support import cast, claims
from tests.support.histories import long_run
from tests.support.page_people import claim_graph
from tests.support.statements import counted
from tests.support.stewards import browser_of, text

__all__ = ["claim_graph"]
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("claim_graph"),
]
RUNS = reverse("admin:checkpoints_run_changelist")


@pytest.fixture
def run(people: cast.People) -> Run:
    """A run that waits for a review."""
    return claims.paused("CLM-1", people.starter)


def page_of(browser: Client, run: Run) -> str:
    return text(browser.get(reverse("admin:checkpoints_run_change", args=[run.id])))


def tools(html: str) -> str:
    return html.split('class="object-tools"')[1].split("</ul>")[0]


def test_a_run_leads_to_all_that_a_steward_can_do_with_it(
    run: Run, people: cast.People
) -> None:
    shown = tools(page_of(browser_of(people.steward), run))
    ways = [
        reverse(name, args=[run.id]) for name in ("review", "run", "cancel", "erase")
    ]
    ways += [reverse(name, args=[run.head]) for name in ("go_on", "pin")]
    ways += [
        f"{reverse('compare')}?a=CLM-1",
        f"{reverse('admin:runs_act', args=['hold'])}?run={run.id}",
    ]
    assert [way for way in ways if f'href="{way}"' not in shown] == []


def test_a_run_shows_an_auditor_no_button_that_he_may_not_use(
    run: Run, people: cast.People
) -> None:
    shown = tools(page_of(browser_of(people.auditor), run))
    assert reverse("run", args=[run.id]) in shown
    for name in ("cancel", "erase"):
        assert reverse(name, args=[run.id]) not in shown


def test_a_run_shows_its_newest_checkpoints_writes_and_decisions_with_links_both_ways(
    run: Run, people: cast.People
) -> None:
    claims.decide_all(run, by=claims.member(people.reviewer, "reviewer"))
    runs.advance(run.id)
    html = page_of(browser_of(people.steward), run)
    point = Checkpoint.objects.filter(run=run).order_by("-seq").first()
    assert point is not None
    assert reverse("admin:checkpoints_checkpoint_change", args=[point.id]) in html
    assert f"{reverse('run', args=[run.id])}?at={point.seq}" in html
    decision = Decision.objects.filter(run=run.id).first()
    assert decision is not None
    assert reverse("admin:approvals_decision_change", args=[decision.id]) in html
    request = ApprovalRequest.objects.get(run=run)
    assert reverse("admin:approvals_approvalrequest_change", args=[request.id]) in html


def test_the_page_of_a_run_takes_as_many_statements_however_long_it_was(
    people: cast.People,
) -> None:
    browser = browser_of(people.steward)
    short = long_run("short", "ab")
    long = long_run("long", "abcdefghijklmnopqrstuvwxyz")
    page_of(browser, short)
    with counted() as few:
        page_of(browser, short)
    with counted() as many:
        html = page_of(browser, long)
    assert len(many) == len(few)
    assert html.split('data-test="points"')[1].split("</table>")[0].count("<tr>") == 21


def test_the_list_of_runs_takes_as_many_statements_for_many_and_reads_no_payload(
    people: cast.People,
) -> None:
    browser = browser_of(people.steward)
    long_run("short", "ab")
    browser.get(RUNS)
    with counted() as few:
        browser.get(RUNS)
    for number in range(4):
        long_run(f"graph-{number}", "ab")
    with counted() as many:
        browser.get(RUNS)
    assert len(many) == len(few)
    for column in ("input", "error", "progress"):
        assert not any(f'"checkpoints_run"."{column}"' in sql for sql in many)
    assert not any("DISTINCT" in sql and "checkpoints_run" in sql for sql in many)


def test_a_list_counts_no_more_rows_than_it_pages_through() -> None:
    paginator = CappedPaginator(Run.objects.all(), 50)
    with counted() as sent:
        assert paginator.count == 0
    assert f"LIMIT {MOST_COUNTED + 1}" in sent[0]


def test_the_key_of_a_run_is_found_as_a_whole(run: Run, people: cast.People) -> None:
    other = claims.paused("CLM-11", people.starter)
    browser = browser_of(people.steward)
    for words in ("CLM-1", str(run.id)):
        assert list(browser.get(RUNS, {"q": words}).context["cl"].queryset) == [run]
    assert list(browser.get(RUNS, {"q": "CLM-11"}).context["cl"].queryset) == [other]


def test_nothing_in_the_admin_decides_a_review(run: Run, people: cast.People) -> None:
    browser = browser_of(people.steward)
    answer: Any = browser.post(
        RUNS, {"action": "open_reviews", "_selected_action": [str(run.id)]}
    )
    assert answer.status_code == 302
    assert answer.url == reverse("review", args=[run.id])
    assert (
        browser.post(
            f"{reverse('admin:runs_act', args=['review'])}?run={run.id}"
        ).status_code
        == 422
    )
    assert not Decision.objects.exists()


def test_a_checkpoint_leads_to_its_run_and_to_what_can_be_done_from_there(
    run: Run, people: cast.People
) -> None:
    point = Checkpoint.objects.get(run=run, seq=1)
    html = text(
        browser_of(people.steward).get(
            reverse("admin:checkpoints_checkpoint_change", args=[point.id])
        )
    )
    ways = [
        f"{reverse('run', args=[run.id])}?at=1",
        reverse("go_on", args=[point.id]),
        reverse("pin", args=[point.id]),
    ]
    assert [way for way in ways if f'href="{way}"' not in tools(html)] == []
    assert reverse("admin:checkpoints_run_change", args=[run.id]) in html
    assert "CLM-1:at-1" in html


def test_a_checkpoint_says_who_pinned_it_and_why(run: Run, people: cast.People) -> None:
    point = Checkpoint.objects.get(run=run, seq=1)
    retention.pin(point.id, by=people.steward, reason="the auditors look at it")
    html = text(
        browser_of(people.steward).get(
            reverse("admin:checkpoints_checkpoint_change", args=[point.id])
        )
    )
    assert "the auditors look at it" in html


def test_the_list_of_checkpoints_takes_as_many_statements_for_many(
    people: cast.People,
) -> None:
    browser = browser_of(people.steward)
    address = reverse("admin:checkpoints_checkpoint_changelist")
    long_run("short", "ab")
    browser.get(address)
    with counted() as few:
        browser.get(address)
    long_run("long", "abcdefgh")
    with counted() as many:
        browser.get(address)
    assert len(many) == len(few)
    assert not any('"checkpoints_checkpoint"."change"' in sql for sql in many)


def test_a_request_leads_to_its_review_and_its_run(
    run: Run, people: cast.People
) -> None:
    request = ApprovalRequest.objects.get(run=run)
    html = text(
        browser_of(people.steward).get(
            reverse("admin:approvals_approvalrequest_change", args=[request.id])
        )
    )
    assert f'href="{reverse("review", args=[run.id])}"' in tools(html)
    assert reverse("admin:checkpoints_run_change", args=[run.id]) in html


def test_requests_of_several_runs_lead_to_a_page_of_their_reviews(
    run: Run, people: cast.People
) -> None:
    other = claims.paused("CLM-2", people.starter)
    browser = browser_of(people.steward)
    address = reverse("admin:approvals_approvalrequest_changelist")
    chosen = [str(row.id) for row in ApprovalRequest.objects.all()]
    page = text(
        browser.post(
            address, {"action": "open_reviews", "_selected_action": chosen}, follow=True
        )
    )
    assert all(
        reverse("review", args=[each_run.id]) in page for each_run in (run, other)
    )


def test_a_run_with_many_requests_hides_no_other_run(
    run: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "MOST", 2)
    other = claims.paused("CLM-2", people.starter)
    request = ApprovalRequest.objects.get(run=other)
    for ordinal in range(1, 4):
        request.pk = None
        request.id = uuid4()
        request.ordinal = ordinal
        request.save(force_insert=True)
    chosen = [str(row.id) for row in ApprovalRequest.objects.all()]
    answer = browser_of(people.steward).post(
        reverse("admin:approvals_approvalrequest_changelist"),
        {"action": "open_reviews", "_selected_action": chosen},
    )
    assert answer["Location"].endswith(f"/review/?run={other.id}&run={run.id}")


def test_the_console_leads_staff_to_the_row_of_a_run_and_nobody_else(
    run: Run, people: cast.People
) -> None:
    address = reverse("admin:checkpoints_run_change", args=[run.id])
    page = reverse("run", args=[run.id])
    assert f'href="{address}"' in text(browser_of(people.steward).get(page))
    olive = Client()
    olive.force_login(people.starter)
    assert address not in text(olive.get(page))
