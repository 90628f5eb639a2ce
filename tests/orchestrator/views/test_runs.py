"""The list of runs: what is shown, to whom, and in how many queries."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.models import Run
from tests.support import claims
from tests.support.cast import People
from tests.support.rows import a_run

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


def test_a_run_that_failed_says_why_in_the_list(claim_graph: None, people: People, browse: Browse) -> None:
    claims.BROKEN.add("read")
    failed = claims.paused("CLM-1", people.starter)
    assert failed.status == "failed"
    html = browse(people.starter).get(reverse("runs")).content.decode()
    assert "RuntimeError: the register does not answer" in html
    assert "node failed" not in html


def test_the_reasons_of_many_failed_runs_cost_no_further_query(
    claim_graph: None, people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    claims.BROKEN.add("read")
    client, counts = browse(people.starter), []
    for more in (1, 5):
        for number in range(more):
            claims.paused(f"CLM-{more}-{number}", people.starter)
        with django_assert_max_num_queries(20) as seen:
            client.get(reverse("runs"))
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]
