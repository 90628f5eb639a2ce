"""The search of the list of runs, a stretch at a time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from checkpoints.models import Run
from orchestrator.views import run_search
from orchestrator.views import runs as runs_page
from tests.support.cast import People
from tests.support.rows import a_run

Browse = Callable[[User], Client]
RUNS = 12


@pytest.fixture(autouse=True)
def short_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search looks through five runs."""
    monkeypatch.setattr(run_search, "STRETCH", 5)


@pytest.fixture
def made(people: People) -> list[Run]:
    """Runs of one minute after another, the newest first; each third is labelled."""
    now = timezone.now()
    rows = []
    for number in range(RUNS):
        label = "a rare label" if number % 3 == 2 else "another"
        at = now - timedelta(minutes=number)
        rows.append(a_run(key=f"key-{number:02}", label=label, created_at=at))
    return rows


def _pages(client: Client, **query: str) -> list[list[str]]:
    """Return the keys on each page of a search, until there is no older one."""
    pages = []
    page = client.get(reverse("runs"), query)
    while True:
        pages.append([run.key for run in page.context["rows"]])
        if not page.context["older"]:
            return pages
        page = client.get(f"{reverse('runs')}?{page.context['older']}")


def test_a_search_goes_on_page_by_page_until_all_runs_were_searched(
    made: list[Run], people: People, browse: Browse
) -> None:
    pages = _pages(browse(people.auditor), q="rare")
    assert pages == [["key-02"], ["key-05", "key-08"], ["key-11"]]


def test_runs_that_are_named_far_behind_do_not_hide_what_lies_between(
    people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_page, "PAGE", 2)
    now = timezone.now()
    for number in range(RUNS):
        columns: dict[str, Any] = {"key": f"key-{number:02}", "label": "another"}
        if number in (1, 7):
            columns["label"] = "it has abc in it"
        if number in (9, 10):
            columns["id"] = UUID(f"abc{number:029}")
        a_run(created_at=now - timedelta(minutes=number), **columns)
    pages = _pages(browse(people.auditor), q="abc")
    keys = {key for page in pages for key in page}
    assert keys == {"key-01", "key-07", "key-09", "key-10"}


def test_runs_of_one_moment_are_searched_together(
    people: People, browse: Browse
) -> None:
    at = timezone.now()
    for number in range(RUNS):
        a_run(key=f"key-{number}", label="rare", created_at=at)
    first, further = _pages(browse(people.auditor), q="rare")
    assert len(first) == RUNS
    assert further == []


def test_a_search_ends_where_it_has_found_as_many_as_it_may(
    made: list[Run], people: People, browse: Browse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_search, "MOST_FOUND", 2)
    pages = _pages(browse(people.auditor), q="key-")
    assert sum(pages, []) == [run.key for run in made]


def test_a_key_or_an_id_is_found_wherever_it_is(
    made: list[Run], people: People, browse: Browse
) -> None:
    oldest = made[-1]
    for words in (oldest.key, str(oldest.id)):
        page = browse(people.auditor).get(reverse("runs"), {"q": words})
        assert list(page.context["rows"]) == [oldest]


def test_a_run_that_one_may_not_see_is_not_found_by_its_key(
    made: list[Run], people: People, browse: Browse
) -> None:
    page = browse(people.nobody).get(reverse("runs"), {"q": made[-1].key})
    assert list(page.context["rows"]) == []


def test_the_page_says_that_it_has_not_searched_all(
    made: list[Run], people: People, browse: Browse
) -> None:
    client = browse(people.auditor)
    some = client.get(reverse("runs"), {"q": "rare"}).content.decode()
    assert "Searched 5 runs; “Older” goes on" in some
    none = client.get(reverse("runs"), {"q": "nowhere"}).content.decode()
    assert "No run matches yet" in none
    assert "Search older runs" in none
    all_runs = client.get(reverse("runs")).content.decode()
    assert "Searched" not in all_runs
