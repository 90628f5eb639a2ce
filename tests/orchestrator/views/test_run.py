"""The list of runs and the run page: what is shown, to whom, and in how many queries."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.models import AuditLine, Run
from orchestrator import runs
from tests.support import claims
from tests.support.cast import People
from tests.support.rows import a_checkpoint, a_run

Browse = Callable[[User], Client]


def test_the_list_shows_status_label_and_tape(run: Run, people: People, browse: Browse) -> None:
    html = browse(people.starter).get(reverse("runs")).content.decode()
    assert "Claim CLM-1" in html
    assert "Needs review" in html
    assert 'class="blk human now"' in html


def test_tabs_count_and_filter_by_status(claim_graph: None, people: People, browse: Browse) -> None:
    for status in ("failed", "unknown", "completed"):
        a_run(status=status, started_by=people.starter, label=f"the {status} one")
    page = browse(people.starter).get(reverse("runs"), {"status": "stopped"})
    assert {tab["label"]: tab["count"] for tab in page.context["tabs"]}["Stopped"] == 2
    assert {str(run) for run in page.context["rows"]} == {"the failed one", "the unknown one"}


@pytest.mark.parametrize("words", ["CLM-77", "clm-7", "seventy"])
def test_the_filter_finds_keys_by_their_beginning_and_labels_by_any_part(
    words: str, people: People, browse: Browse
) -> None:
    a_run(key="CLM-77", label="Number seventy seven")
    a_run(key="CLM-88", label="Another")
    page = browse(people.auditor).get(reverse("runs"), {"q": words})
    assert [run.key for run in page.context["rows"]] == ["CLM-77"]


def test_the_filter_finds_a_run_by_the_beginning_of_its_id(people: People, browse: Browse) -> None:
    run = a_run(key="by-id")
    page = browse(people.auditor).get(reverse("runs"), {"q": str(run.id)[:13]})
    assert run in list(page.context["rows"])


def test_older_runs_are_reached_by_key_and_none_is_shown_twice(people: People, browse: Browse) -> None:
    made = {a_run().id for _ in range(60)}
    client = browse(people.auditor)
    first = client.get(reverse("runs"))
    second = client.get(f"{reverse('runs')}?{first.context['older']}")
    seen = [run.id for page in (first, second) for run in page.context["rows"]]
    assert len(seen) == len(set(seen)) == 60
    assert set(seen) == made


def test_a_cursor_that_cannot_be_read_shows_the_first_page(people: People, browse: Browse) -> None:
    a_run(key="only")
    page = browse(people.auditor).get(reverse("runs"), {"before": "yesterday~never"})
    assert [run.key for run in page.context["rows"]] == ["only"]


def test_showing_new_runs_keeps_the_filters(run: Run, people: People, browse: Browse) -> None:
    page = browse(people.starter).get(reverse("runs"), {"status": "review", "graph": "page_claim", "q": "CLM"})
    assert page.context["filters"] == "status=review&graph=page_claim&q=CLM"
    assert b'href="?status=review&amp;graph=page_claim&amp;q=CLM"' in page.content


def test_without_runs_the_page_says_what_a_run_is(people: People, browse: Browse) -> None:
    html = browse(people.starter).get(reverse("runs")).content.decode()
    assert "No runs yet" in html
    assert f'href="{reverse("graphs")}"' in html


def test_rows_are_given_alone_and_only_those_one_may_see(run: Run, people: People, browse: Browse) -> None:
    url = f"{reverse('run_rows')}?id={run.id}&id=nonsense"
    assert f"run-{run.id}" in browse(people.starter).get(url).content.decode()
    assert f"run-{run.id}" not in browse(people.nobody).get(url).content.decode()


def test_news_counts_what_is_newer_than_the_first_row(run: Run, people: People, browse: Browse) -> None:
    client = browse(people.starter)
    url = f"{reverse('run_news')}?since={run.id}"
    assert client.get(url).json()["count"] == 0
    claims.paused("CLM-2", people.starter)
    assert client.get(url).json() == {"count": 1, "text": "1 new run. Show them"}


def test_the_list_costs_the_same_with_ten_times_the_rows(
    people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    client = browse(people.auditor)
    counts = []
    for more in (4, 36):
        for _ in range(more):
            a_run(started_by=people.starter)
        with django_assert_max_num_queries(12) as seen:
            client.get(reverse("runs"))
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def test_a_run_is_found_by_id_and_by_key(run: Run, people: People, browse: Browse) -> None:
    client = browse(people.starter)
    assert client.get(reverse("run", args=[run.id])).status_code == 200
    assert client.get(reverse("run", args=["CLM-1"])).status_code == 200


def test_a_run_one_may_not_see_is_not_there(run: Run, people: People, browse: Browse) -> None:
    client = browse(people.nobody)
    for name in ("run", "settle", "review"):
        assert client.get(reverse(name, args=[run.id])).status_code == 404
    assert client.post(reverse("resume", args=[run.id])).status_code == 404


def test_without_signing_in_every_page_leads_to_the_door(run: Run) -> None:
    for url in ("/", "/runs/", "/reviews/", "/graphs/", "/workers/", reverse("run", args=[run.id])):
        answer = Client().get(url)
        assert answer.status_code == 302
        assert answer.url.startswith("/login/")


def test_the_reviewer_is_offered_the_review_and_others_are_told_who(run: Run, people: People, browse: Browse) -> None:
    url = reverse("run", args=[run.id])
    assert b"Review 3 writes" in browse(people.reviewer).get(url).content
    other = browse(people.starter).get(url).content
    assert b"Review 3 writes" not in other
    assert b"waits for reviewer" in other


def test_away_from_the_head_the_page_says_that_it_shows_the_past(run: Run, people: People, browse: Browse) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    assert b"You are looking at the past." not in client.get(url).content
    page = client.get(url, {"at": "1"})
    assert b"You are looking at the past." in page.content
    assert page.context["page"]["at"].seq == 1


@pytest.mark.parametrize("at", ["99", "-1", "x", "0x1"])
def test_a_checkpoint_that_is_not_there_is_404(at: str, run: Run, people: People, browse: Browse) -> None:
    assert browse(people.starter).get(reverse("run", args=[run.id]), {"at": at}).status_code == 404


def test_what_changed_names_path_and_node(run: Run, people: People, browse: Browse) -> None:
    html = browse(people.starter).get(reverse("run", args=[run.id]), {"at": "1"}).content.decode()
    assert "claim CLM-1" in html
    assert '<td class="who">read</td>' in html


def test_the_picture_says_in_words_what_it_draws(run: Run, people: People, browse: Browse) -> None:
    page = browse(people.starter).get(reverse("run", args=[run.id])).context["page"]
    assert "Completed: read." in page["picture"].text
    assert "Here: propose." in page["picture"].text
    assert "Later: pay, refuse." in page["picture"].text


@pytest.mark.parametrize("tab", ["changed", "state", "writes", "results", "events", "nonsense"])
def test_every_tab_opens(tab: str, run: Run, people: People, browse: Browse) -> None:
    page = browse(people.starter).get(reverse("run", args=[run.id]), {"tab": tab})
    assert page.status_code == 200


def test_pending_writes_are_those_held_at_that_checkpoint(run: Run, people: People, browse: Browse) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    assert len(client.get(url, {"tab": "writes"}).context["page"]["detail"]["rows"]) == 3
    assert client.get(url, {"tab": "writes", "at": "1"}).context["page"]["detail"]["rows"] == []


def test_a_failed_run_says_why_and_is_resumed_by_who_may(claim_graph: None, people: People, browse: Browse) -> None:
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


def test_who_may_not_steer_reads_a_sentence_and_is_refused(claim_graph: None, people: People, browse: Browse) -> None:
    claims.BROKEN.add("read")
    failed = claims.paused("CLM-6", people.starter)
    client = browse(people.auditor)
    html = client.get(reverse("run", args=[failed.id])).content.decode()
    assert "Somebody with the right to steer runs can resume it." in html
    assert "Resume this run" not in html
    assert client.post(reverse("resume", args=[failed.id])).status_code == 403
    assert Run.objects.get(id=failed.id).status == "failed"
    assert AuditLine.objects.filter(kind="refused_resume", actor=people.auditor).exists()


def test_resuming_a_paused_run_changes_nothing_and_says_so(run: Run, people: People, browse: Browse) -> None:
    page = browse(people.starter).post(reverse("resume", args=[run.id]), follow=True)
    assert b"Not resumed" in page.content
    assert Run.objects.get(id=run.id).status == "paused"


def test_a_run_of_a_graph_that_is_not_here_still_opens(people: People, browse: Browse) -> None:
    gone = a_run(graph="gone", fingerprint="f" * 64, status="incompatible")
    a_checkpoint(gone, 0, frontier={"waiting": {}})
    html = browse(people.auditor).get(reverse("run", args=[gone.id])).content.decode()
    assert "cannot be drawn here" in html
    assert "not registered here" in html


def test_the_run_page_costs_the_same_with_ten_times_the_checkpoints(
    run: Run, people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    counts = []
    for first, last in ((2, 4), (4, 40)):
        frontier = {"waiting": {}, "tokens": {}, "errors": {}, "visits": {}, "sends": [], "rejected": False}
        for seq in range(first + 1, last + 1):
            a_checkpoint(run, seq, frontier={**frontier, "visited": [], "written": []})
        with django_assert_max_num_queries(22) as seen:
            assert client.get(url).status_code == 200
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]
