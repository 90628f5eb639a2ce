"""The first page of the admin: what waits for a steward, then the rows."""

from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints import retention
from checkpoints.models import Job, Run
from orchestrator.jobs import kinds
from tests.support import cast, claims
from tests.support.histories import long_run, policy, pruned
from tests.support.page_people import claim_graph
from tests.support.statements import counted
from tests.support.stewards import browser_of, text

__all__ = ["claim_graph"]
pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("claim_graph"),
]
INDEX = reverse("admin:index")


@pytest.fixture
def stella(people: cast.People) -> Client:
    """The steward's browser."""
    return browser_of(people.steward)


def part(html: str, name: str, end: str) -> str:
    return " ".join(html.split(f'data-test="{name}"')[1].split(end)[0].split())


def test_the_index_leads_with_what_waits_and_then_the_rows(
    stella: Client, people: cast.People
) -> None:
    run = claims.paused("CLM-1", people.starter)
    Run.objects.filter(id=run.id).update(status="incompatible")
    html = text(stella.get(INDEX))
    waiting = part(html, "waiting", "</ul>")
    assert "<strong>1</strong> Incompatible runs" in waiting
    assert "<strong>0</strong> Failed runs" in waiting
    assert "Reviews waiting for you" in waiting
    assert (
        html.index('data-test="waiting"')
        < html.index("Rows, read only")
        < html.index("app-checkpoints")
    )


def test_the_index_counts_the_reviews_that_wait_for_whoever_looks(
    people: cast.People,
) -> None:
    claims.paused("CLM-1", people.starter)
    reviewer = browser_of(claims.member(people.reviewer, "reviewer"))
    assert "<strong>1</strong> Reviews waiting for you" in part(
        text(reviewer.get(INDEX)), "waiting", "</ul>"
    )


def test_the_index_says_what_is_kept_and_what_policies_did_and_do_next(
    stella: Client, people: cast.People
) -> None:
    run = long_run()
    retention.hold(run.id, "a court asked", by=people.steward)
    other = policy("other", keep_last=1)
    row = policy("long", keep_last=2)
    retention.confirm_policy(row, by=people.steward, confirmed=0)
    job = pruned(row)
    kinds.ensure_standing()
    html = text(stella.get(INDEX))
    assert "<strong>1</strong> Legal holds" in part(html, "keeping", "</ul>")
    policies = part(html, "policies", "</table>")
    assert reverse("admin:clean_up_job", args=[job.id]) in policies
    dry_run = reverse("admin:clean_up_dry_run", args=[other.pk])
    assert f'<a href="{dry_run}">Confirm the dry run of other</a>' in policies


def test_the_index_shows_storage_by_graph_and_age_as_it_was_measured_last(
    stella: Client,
) -> None:
    long_run()
    assert "Not measured yet." in text(stella.get(INDEX))
    kinds.ensure_standing()
    measured()
    long_run()
    storage = part(text(stella.get(INDEX)), "storage", "</table>")
    assert (
        '<th scope="row">long</th> <td class="num">1</td> <td class="num">9</td>'
        in storage
    )


def measured() -> None:
    """The standing job measures now."""
    job = Job.objects.get(kind="measure_storage")
    Job.objects.filter(id=job.id).update(due_at=timezone.now() - timedelta(seconds=1))
    kinds.advance(job.id)


def test_who_may_not_see_policies_sees_nothing_of_retention(
    people: cast.People,
) -> None:
    html = text(browser_of(people.reviewer).get(INDEX))
    assert 'data-test="keeping"' not in html
    assert "Failed runs" not in html


def test_the_index_takes_as_many_statements_whatever_there_is_and_reads_no_checkpoint(
    stella: Client, people: cast.People
) -> None:
    retention.confirm_policy(policy("a", keep_last=2), by=people.steward, confirmed=0)
    stella.get(INDEX)
    with counted() as few:
        stella.get(INDEX)
    for number in range(5):
        run = long_run(f"graph-{number}", "ab")
        retention.hold(run.id, "a court asked", by=people.steward)
        retention.confirm_policy(
            policy(f"graph-{number}", keep_last=9), by=people.steward, confirmed=0
        )
    with counted() as many:
        stella.get(INDEX)
    assert len(many) == len(few)
    assert not any("checkpoints_checkpoint" in sql for sql in many)
