"""The page that cancels a run, and what the run's page says of it; jobs on the page of
the workers.
"""

from collections.abc import Callable

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.models import AuditLine, Job, Run
from checkpoints.queue import jobs, leases
from orchestrator.jobs import kinds
from tests.support.cast import People

Browse = Callable[[User], Client]


def url(run: Run) -> str:
    return reverse("cancel", args=[run.id])


def test_the_page_says_what_cancelling_means_before_it_is_done(
    run: Run, people: People, browse: Browse
) -> None:
    html = browse(people.starter).get(url(run)).content.decode()
    assert "that wait" in html
    assert "withdrawn" in html
    assert "cannot be resumed" in html
    assert (
        f'href="{url(run)}"'
        in browse(people.starter).get(reverse("run", args=[run.id])).content.decode()
    )


def test_a_run_is_cancelled_with_a_reason_which_its_page_shows(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    assert client.post(url(run), {"reason": "twice <the> same"}).url == reverse(
        "run", args=[run.id]
    )
    html = client.get(reverse("run", args=[run.id])).content.decode()
    assert "Cancelled" in html
    assert f"by {people.starter.username}" in html
    assert "twice &lt;the&gt; same" in html
    assert f'href="{url(run)}"' not in html
    assert "nothing to cancel" in client.get(url(run)).content.decode()


def test_without_a_reason_nothing_is_cancelled(
    run: Run, people: People, browse: Browse
) -> None:
    answer = browse(people.starter).post(url(run), {"reason": "  "})
    assert answer.status_code == 422
    assert "Say why" in answer.content.decode()
    assert Run.objects.get(id=run.id).status == "paused"


def test_who_may_not_steer_may_look_and_not_cancel(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.reviewer)
    assert "<form" not in client.get(url(run)).content.decode().split("<main")[1]
    answer = client.post(url(run), {"reason": "because"})
    assert answer.status_code == 403
    assert Run.objects.get(id=run.id).status == "paused"
    assert AuditLine.objects.filter(kind="refused_cancel", run=run.id).exists()
    assert (
        f'href="{url(run)}"'
        not in client.get(reverse("run", args=[run.id])).content.decode()
    )
    assert browse(people.nobody).get(url(run)).status_code == 404


def test_a_run_that_a_worker_has_is_said_to_be_in_hand_and_then_being_cancelled(
    run: Run, people: People, browse: Browse
) -> None:
    Run.objects.filter(id=run.id).update(status="queued")
    claim = leases.claim_one(run.id)
    assert claim is not None
    client = browse(people.starter)
    assert "A worker has it in hand" in client.get(url(run)).content.decode()
    client.post(url(run), {"reason": "stop"})
    assert Run.objects.get(id=run.id).status == "running"
    assert (
        "Being cancelled" in client.get(reverse("run", args=[run.id])).content.decode()
    )


def test_the_workers_page_lists_jobs_with_their_progress(
    people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    assert ">Jobs<" not in client.get(reverse("workers")).content.decode()
    begun = jobs.add_job("rotate_keys")
    lease = jobs.begin_job(begun, jobs.claim_one(begun) or 0)
    assert lease is not None
    jobs.report(lease, jobs.Step(1250, 5000, "runs"))
    kinds.advance(jobs.add_job("brew_coffee"))
    html = client.get(reverse("workers")).content.decode()
    assert 'max="5000" value="1250"' in html
    assert "unknown_kind" in html
    assert "this worker knows no job" not in html
    assert Job.objects.count() == 2


def test_a_run_that_begins_later_says_when(
    run: Run, people: People, browse: Browse
) -> None:
    Run.objects.filter(id=run.id).update(status="queued", due_at="2999-01-01T00:00Z")
    assert (
        "begins "
        in browse(people.starter).get(reverse("run", args=[run.id])).content.decode()
    )


def test_the_review_of_a_cancelled_run_stays_readable_says_who_cancelled_and_takes_no_decision(
    run: Run, people: People, browse: Browse
) -> None:
    review = reverse("review", args=[run.id])
    assert "/sign/" in browse(people.reviewer).get(review).content.decode()
    browse(people.starter).post(url(run), {"reason": "stop"})
    html = browse(people.reviewer).get(review).content.decode()
    assert f"by {people.starter.username}. None of these writes will happen." in html
    assert "/sign/" not in html
    assert "Pay" in html
