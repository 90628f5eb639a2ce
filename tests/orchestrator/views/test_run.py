"""The list of runs and the run page: what is shown, to whom, and in how many queries."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import Receipt
from checkpoints.models import AuditLine, Checkpoint, Run
from orchestrator import runs
from tests.support import claims
from tests.support.cast import People, named
from tests.support.forging import tamper
from tests.support.rows import a_checkpoint, a_run, an_event, sealed

Browse = Callable[[User], Client]


def test_a_run_is_found_by_id_and_by_key(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    assert client.get(reverse("run", args=[run.id])).status_code == 200
    assert client.get(reverse("run", args=["CLM-1"])).status_code == 200


def test_a_run_one_may_not_see_is_not_there(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.nobody)
    for name in ("run", "settle", "review"):
        assert client.get(reverse(name, args=[run.id])).status_code == 404
    assert client.post(reverse("resume", args=[run.id])).status_code == 404


def test_without_signing_in_every_page_leads_to_the_door(run: Run) -> None:
    for url in (
        "/",
        "/runs/",
        "/reviews/",
        "/graphs/",
        "/workers/",
        reverse("run", args=[run.id]),
    ):
        answer = Client().get(url)
        assert answer.status_code == 302
        assert answer.url.startswith("/login/")


def test_the_reviewer_is_offered_the_review_and_others_are_told_who(
    run: Run, people: People, browse: Browse
) -> None:
    url = reverse("run", args=[run.id])
    assert b"Review 3 writes" in browse(people.reviewer).get(url).content
    other = browse(people.starter).get(url).content
    assert b"Review 3 writes" not in other
    assert b"waits for reviewer" in other


def test_away_from_the_head_the_page_says_that_it_shows_the_past(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    assert b"You are looking at the past." not in client.get(url).content
    page = client.get(url, {"at": "1"})
    assert b"You are looking at the past." in page.content
    assert page.context["page"]["at"].seq == 1


@pytest.mark.parametrize("at", ["99", "-1", "x", "0x1"])
def test_a_checkpoint_that_is_not_there_is_404(
    at: str, run: Run, people: People, browse: Browse
) -> None:
    assert (
        browse(people.starter)
        .get(reverse("run", args=[run.id]), {"at": at})
        .status_code
        == 404
    )


def test_the_picture_says_in_words_what_it_draws(
    run: Run, people: People, browse: Browse
) -> None:
    page = browse(people.starter).get(reverse("run", args=[run.id])).context["page"]
    assert "Completed: read." in page["picture"].text
    assert "Here: propose." in page["picture"].text
    assert "Later: pay, refuse." in page["picture"].text


def test_a_failed_run_says_why_and_is_resumed_by_who_may(
    claim_graph: None, people: People, browse: Browse
) -> None:
    claims.BROKEN.add("read")
    failed = claims.paused("CLM-5", people.starter)
    assert failed.status == "failed"
    url = reverse("run", args=[failed.id])
    html = browse(people.starter).get(url).content.decode()
    assert "the register does not answer" in html
    assert "Resume this run" in html
    claims.BROKEN.clear()
    browse(people.starter).post(reverse("resume", args=[failed.id]))
    assert runs.advance(failed.id).status == "paused"


def test_who_may_not_steer_reads_a_sentence_and_is_refused(
    claim_graph: None, people: People, browse: Browse
) -> None:
    claims.BROKEN.add("read")
    failed = claims.paused("CLM-6", people.starter)
    client = browse(people.auditor)
    html = client.get(reverse("run", args=[failed.id])).content.decode()
    assert "Somebody with the right to steer runs can resume it." in html
    assert "Resume this run" not in html
    assert client.post(reverse("resume", args=[failed.id])).status_code == 403
    assert Run.objects.get(id=failed.id).status == "failed"
    assert AuditLine.objects.filter(
        kind="refused_resume", actor=people.auditor
    ).exists()


def test_resuming_a_paused_run_changes_nothing_and_says_so(
    run: Run, people: People, browse: Browse
) -> None:
    page = browse(people.starter).post(reverse("resume", args=[run.id]), follow=True)
    assert b"Not resumed" in page.content
    assert Run.objects.get(id=run.id).status == "paused"


def test_whoever_had_to_sign_in_before_he_resumed_reads_on_the_run_that_nothing_was_done(
    claim_graph: None, people: People, client: Client
) -> None:
    claims.BROKEN.add("read")
    failed = claims.paused("CLM-7", people.starter)
    claims.BROKEN.clear()
    door = client.post(reverse("resume", args=[failed.id]))
    client.force_login(people.starter)
    page = client.get(parse_qs(urlsplit(door.url).query)["next"][0], follow=True)
    assert page.redirect_chain == [(reverse("run", args=[failed.id]), 302)]
    assert "Nothing was resumed: your choice did not arrive." in page.content.decode()
    assert Run.objects.get(id=failed.id).status == "failed"


def test_a_run_of_a_graph_that_is_not_here_still_opens(
    people: People, browse: Browse
) -> None:
    gone = a_run(graph="gone", fingerprint="f" * 64, status="incompatible")
    a_checkpoint(gone, 0, frontier={"waiting": {}})
    html = browse(people.auditor).get(reverse("run", args=[gone.id])).content.decode()
    assert "cannot be drawn here" in html
    assert "not registered here" in html


def test_a_checkpoint_whose_frontier_says_nothing_is_shown_as_one_from_which_nothing_goes_on(
    run: Run, people: People, browse: Browse
) -> None:
    a_checkpoint(run, run.head_seq + 1, frontier={})
    page = browse(people.starter).get(reverse("run", args=[run.id]))
    assert page.status_code == 200


def test_the_run_page_costs_the_same_with_ten_times_the_checkpoints(
    run: Run, people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    counts = []
    for first, last in ((2, 4), (4, 40)):
        frontier = {
            "waiting": {},
            "tokens": {},
            "errors": {},
            "visits": {},
            "sends": [],
            "rejected": False,
        }
        for seq in range(first + 1, last + 1):
            a_checkpoint(run, seq, frontier={**frontier, "visited": [], "written": []})
        with django_assert_max_num_queries(12) as seen:
            assert client.get(url).status_code == 200
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def test_a_run_that_has_ended_leads_to_what_was_decided_and_to_its_receipts(
    run: Run, people: People, browse: Browse
) -> None:
    claims.decide_all(run, by=named(people.reviewer, "Rita Lund"))
    assert runs.advance(run.id).status == "completed"
    receipt = reverse("receipt", args=[Receipt.objects.get().id])
    seen = {
        person: browse(person).get(reverse("run", args=[run.id])).content.decode()
        for person in (people.reviewer, people.auditor, people.starter)
    }
    assert [reverse("review", args=[run.id]) in html for html in seen.values()] == [
        True,
        True,
        True,
    ]
    # A receipt is for who signed, and for the auditor.
    assert [receipt in html for html in seen.values()] == [True, True, False]
    assert "Receipt of Rita Lund" in seen[people.auditor]


def test_who_acted_is_called_by_name_in_the_log(
    run: Run, people: People, browse: Browse
) -> None:
    claims.decide_all(run, by=named(people.reviewer, "Rita Lund"))
    html = (
        browse(people.starter)
        .get(reverse("run", args=[run.id]), {"tab": "events"})
        .content.decode()
    )
    assert "decision signed by Rita Lund" in html
    assert "by rita" not in html


def test_who_cancelled_it_is_called_by_name(
    run: Run, people: People, browse: Browse
) -> None:
    runs.cancel(run.id, by=named(people.starter, "Olive Hart"), reason="not wanted")
    html = browse(people.starter).get(reverse("run", args=[run.id])).content.decode()
    assert "by Olive Hart.</strong>" in html


def test_rows_that_were_changed_are_marked_on_the_page(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    assert 'data-test="tampered"' not in client.get(url).content.decode()
    line = an_event(run, run.event_seq + 1, type="checkpoint_saved")
    tamper(line, type="run_completed")
    sealed(run, event_seq=line.seq)
    assert client.get(url).content.decode().count('data-test="tampered"') == 1
    tamper(Checkpoint.objects.filter(run=run.id).order_by("seq")[0], took_ms=999)
    assert client.get(url).content.decode().count('data-test="tampered"') == 2
