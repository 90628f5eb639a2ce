"""The list of runs: what is shown, to whom, and in how many queries."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints import timeline
from checkpoints.db import counts
from checkpoints.models import Run
from orchestrator import runs
from tests.support import claims
from tests.support.cast import People
from tests.support.paid_claims import paid
from tests.support.rows import a_run

Browse = Callable[[User], Client]


def test_the_list_shows_status_label_and_tape(
    run: Run, people: People, browse: Browse
) -> None:
    html = browse(people.starter).get(reverse("runs")).content.decode()
    assert "Claim CLM-1" in html
    assert "Needs review" in html
    assert 'class="blk human now"' in html


def test_tabs_count_and_filter_by_status(
    claim_graph: None, people: People, browse: Browse
) -> None:
    for status in ("failed", "unknown", "completed"):
        a_run(status=status, started_by=people.starter, label=f"the {status} one")
    page = browse(people.starter).get(reverse("runs"), {"status": "stopped"})
    assert {tab["label"]: tab["count"] for tab in page.context["tabs"]}["Stopped"] == 2
    assert {str(run) for run in page.context["rows"]} == {
        "the failed one",
        "the unknown one",
    }


@pytest.mark.parametrize("words", ["CLM-77", "clm-7", "seventy"])
def test_the_filter_finds_keys_by_their_beginning_and_labels_by_any_part(
    words: str, people: People, browse: Browse
) -> None:
    a_run(key="CLM-77", label="Number seventy seven")
    a_run(key="CLM-88", label="Another")
    page = browse(people.auditor).get(reverse("runs"), {"q": words})
    assert [run.key for run in page.context["rows"]] == ["CLM-77"]


def test_the_filter_finds_a_run_by_the_beginning_of_its_id(
    people: People, browse: Browse
) -> None:
    run = a_run(key="by-id")
    page = browse(people.auditor).get(reverse("runs"), {"q": str(run.id)[:13]})
    assert run in list(page.context["rows"])


def test_older_runs_are_reached_by_key_and_none_is_shown_twice(
    people: People, browse: Browse
) -> None:
    made = {a_run().id for _ in range(60)}
    client = browse(people.auditor)
    first = client.get(reverse("runs"))
    second = client.get(f"{reverse('runs')}?{first.context['older']}")
    seen = [run.id for page in (first, second) for run in page.context["rows"]]
    assert len(seen) == len(set(seen)) == 60
    assert set(seen) == made


def test_a_cursor_that_cannot_be_read_is_refused(
    people: People, browse: Browse
) -> None:
    page = browse(people.auditor).get(reverse("runs"), {"before": "yesterday~never"})
    assert page.status_code == 400
    assert "“before” names no run" in page.content.decode()


def test_showing_new_runs_keeps_the_filters(
    run: Run, people: People, browse: Browse
) -> None:
    page = browse(people.starter).get(
        reverse("runs"), {"status": "review", "graph": "page_claim", "q": "CLM"}
    )
    assert page.context["filters"] == "status=review&graph=page_claim&q=CLM"
    assert b'href="?status=review&amp;graph=page_claim&amp;q=CLM"' in page.content


def test_without_runs_the_page_says_what_a_run_is(
    people: People, browse: Browse
) -> None:
    html = browse(people.starter).get(reverse("runs")).content.decode()
    assert "No runs yet" in html
    assert f'href="{reverse("graphs")}"' in html


def test_rows_are_given_alone_and_only_those_one_may_see(
    run: Run, people: People, browse: Browse
) -> None:
    url = f"{reverse('run_rows')}?id={run.id}&id=nonsense"
    assert f"run-{run.id}" in browse(people.starter).get(url).content.decode()
    assert f"run-{run.id}" not in browse(people.nobody).get(url).content.decode()


def test_news_counts_what_is_newer_than_the_first_row(
    run: Run, people: People, browse: Browse
) -> None:
    client = browse(people.starter)
    url = f"{reverse('run_news')}?since={run.id}"
    assert client.get(url).json()["count"] == 0
    claims.paused("CLM-2", people.starter)
    assert client.get(url).json() == {"count": 1, "text": "1 new run. Show them"}


def test_news_since_an_id_of_a_year_that_no_calendar_has_are_none(
    people: People, browse: Browse
) -> None:
    since = "ffffffff-ffff-7fff-bfff-ffffffffffff"
    answer = browse(people.starter).get(f"{reverse('run_news')}?since={since}")
    assert answer.status_code == 200
    assert answer.json()["count"] == 0


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


def test_paused_runs_cost_no_further_query(
    claim_graph: None,
    people: People,
    browse: Browse,
    django_assert_max_num_queries: Any,
) -> None:
    client = browse(people.starter)
    counts = []
    for more in (1, 5):
        for number in range(more):
            claims.paused(f"CLM-{more}-{number}", people.starter)
        with django_assert_max_num_queries(20) as seen:
            client.get(reverse("runs"))
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def test_a_run_that_failed_says_why_in_the_list(
    claim_graph: None, people: People, browse: Browse
) -> None:
    claims.BROKEN.add("read")
    failed = claims.paused("CLM-1", people.starter)
    assert failed.status == "failed"
    html = browse(people.starter).get(reverse("runs")).content.decode()
    assert "RuntimeError: the register does not answer" in html
    assert "node failed" not in html


def test_the_reasons_of_many_failed_runs_cost_no_further_query(
    claim_graph: None,
    people: People,
    browse: Browse,
    django_assert_max_num_queries: Any,
) -> None:
    claims.BROKEN.add("read")
    client = browse(people.starter)
    counts = []
    for more in (1, 5):
        for number in range(more):
            claims.paused(f"CLM-{more}-{number}", people.starter)
        with django_assert_max_num_queries(20) as seen:
            client.get(reverse("runs"))
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def listed(html: str, run: Run) -> str:
    """The row of one run in the list."""
    return html.partition(f'id="run-{run.id}"')[2].partition("</tr>")[0]


def tabs_of(page: Any) -> dict[str, int]:
    return {tab["label"]: tab["count"] for tab in page.context["tabs"]}


def test_a_fork_that_was_made_paused_reads_not_started_and_has_a_tab_of_its_own(
    people: People, browse: Browse
) -> None:
    run = paid("listed_unstarted", people)
    fork = runs.fork(f"{run.key}:at-1", start=False, by=people.starter)
    client = browse(people.starter)
    page = client.get(reverse("runs"))
    row = listed(page.content.decode(), fork)
    assert "Not started" in row
    assert "Needs review" not in row
    assert "waits for people" not in row
    assert tabs_of(page)["Not started"] == 1
    assert tabs_of(page)["Needs review"] == 0
    of_tab = {
        tab: client.get(reverse("runs"), {"status": tab}).context
        for tab in ("unstarted", "review")
    }
    assert [run.id for run in of_tab["unstarted"]["rows"]] == [fork.id]
    assert [run.id for run in of_tab["review"]["rows"]] == []
    assert [of_tab[tab]["total"] for tab in of_tab] == [1, 0]


def test_a_fork_that_was_made_paused_and_asks_people_needs_review(
    people: People, browse: Browse
) -> None:
    run = paid("listed_asks", people)
    fork = runs.fork(f"{run.key}:at-2", start=False, by=people.starter)
    page = browse(people.starter).get(reverse("runs"))
    assert "Needs review" in listed(page.content.decode(), fork)
    assert tabs_of(page)["Needs review"] == 1


def test_a_fork_of_a_fork_that_was_made_paused_reads_not_started_until_it_is_started(
    people: People, browse: Browse
) -> None:
    run = paid("listed_twice", people)
    fork = runs.fork(f"{run.key}:at-1", start=False, by=people.starter)
    forked = runs.fork(
        timeline.get_checkpoint(f"{fork.key}:at-0").id, start=False, by=people.starter
    )
    client = browse(people.starter)
    assert "Not started" in listed(client.get(reverse("runs")).content.decode(), forked)
    runs.resume(forked.id, by=people.starter)
    assert "Not started" not in listed(
        client.get(reverse("runs")).content.decode(), forked
    )


def test_a_run_that_stopped_before_an_effect_is_not_said_to_wait_for_a_review(
    people: People, browse: Browse
) -> None:
    run = paid("listed_yes", people)
    fork = runs.advance(runs.fork(f"{run.key}:at-3", by=people.starter).id)
    row = listed(browse(people.starter).get(reverse("runs")).content.decode(), fork)
    assert "Needs a yes" in row
    assert "Needs review" not in row


def test_the_list_says_where_a_fork_came_from_to_who_may_see_it(
    people: People, browse: Browse
) -> None:
    run = paid("listed_origin", people)
    fork = runs.fork(f"{run.key}:at-1", start=False, by=people.nobody)
    words = f"Fork of {run.key} at 1"
    assert words in listed(
        browse(people.starter).get(reverse("runs")).content.decode(), fork
    )
    row = listed(browse(people.nobody).get(reverse("runs")).content.decode(), fork)
    assert run.key not in row.replace(fork.key, "")
    assert "Fork" in row


def test_a_paused_run_says_how_much_it_asks_and_of_whom(
    run: Run, people: People, browse: Browse
) -> None:
    row = listed(browse(people.starter).get(reverse("runs")).content.decode(), run)
    assert "3 writes, reviewer" in row


def test_two_runs_of_one_label_can_be_told_apart(
    people: People, browse: Browse
) -> None:
    same = [a_run(key=key, label="Claim 7, fork") for key in ("one-7", "two-7")]
    html = browse(people.auditor).get(reverse("runs")).content.decode()
    for run in same:
        assert run.key in listed(html, run)


def test_runs_are_filtered_by_when_they_started(people: People, browse: Browse) -> None:
    old = a_run()
    new = a_run()
    for run, days in ((old, 3), (new, 0)):
        Run.objects.filter(id=run.id).update(
            created_at=timezone.now() - timedelta(days=days)
        )
    client = browse(people.auditor)
    shown = {
        span: client.get(reverse("runs"), {"started": span}).context["rows"]
        for span in ("day", "week", "never")
    }
    assert [run.id for run in shown["day"]] == [new.id]
    assert {run.id for run in shown["week"]} == {old.id, new.id}
    assert {run.id for run in shown["never"]} == {old.id, new.id}


def test_what_many_forks_and_paused_runs_say_costs_no_further_query(
    people: People, browse: Browse, django_assert_max_num_queries: Any
) -> None:
    run = paid("listed_many", people)
    client = browse(people.starter)
    counts = []
    for more in (1, 6):
        for _ in range(more):
            runs.fork(f"{run.key}:at-1", start=False, by=people.starter)
            runs.fork(f"{run.key}:at-2", start=False, by=people.starter)
        with django_assert_max_num_queries(20) as seen:
            client.get(reverse("runs"))
        counts.append(len(seen.captured_queries))
    assert counts[0] == counts[1]


def test_tabs_count_up_to_a_limit_and_say_that_there_are_more(
    people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "MOST_COUNTED", 3)
    for status, number in (("failed", 2), ("unknown", 3), ("completed", 5)):
        for _ in range(number):
            a_run(status=status)
    html = browse(people.auditor).get(reverse("runs")).content.decode()
    tabs = re.findall(r"(\w+) <span class=\"count\">([^<]*)</span>", html)
    shown = dict(tabs)
    assert shown["All"] == "3+"
    assert shown["Stopped"] == "3+"
    assert shown["Completed"] == "3+"
    assert shown["Running"] == "0"


def test_a_tab_of_several_statuses_is_in_the_order_of_time_on_all_pages(
    people: People, browse: Browse
) -> None:
    rows = []
    for number in range(60):
        status = ("failed", "unknown", "tampered")[number % 3]
        rows.append(a_run(status=status).id)
    client = browse(people.auditor)
    first = client.get(reverse("runs"), {"status": "stopped"})
    second = client.get(f"{reverse('runs')}?{first.context['older']}")
    seen = [run.id for page in (first, second) for run in page.context["rows"]]
    assert seen == rows[::-1]


@pytest.mark.parametrize("tab", ["", "review", "stopped"])
def test_news_of_a_tab_are_those_that_it_would_list(
    tab: str, people: People, browse: Browse
) -> None:
    now = timezone.now()
    since = a_run(status="failed", created_at=now)
    for status in ("failed", "unknown", "paused"):
        a_run(status=status, created_at=now)
    expected = {"": 3, "review": 1, "stopped": 2}
    query = {"since": str(since.id), "status": tab}
    answer = browse(people.auditor).get(reverse("run_news"), query)
    assert answer.json()["count"] == expected[tab]
