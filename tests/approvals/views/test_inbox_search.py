"""A filter by words looks through a stretch of the inbox at a time, and misses nothing."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals import inbox
from approvals.views import inbox as inbox_page
from approvals.views import inbox_search
from tests.support.cast import People
from tests.support.rows import a_request, a_run

pytestmark = pytest.mark.django_db
STRETCH = 5
PAGE = 3


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_search, "STRETCH", STRETCH)
    monkeypatch.setattr(inbox_page, "PAGE", PAGE)


def _pages(client: Client, **query: str) -> list[Any]:
    """Open a search and follow its links to the end."""
    pages = [client.get(reverse("inbox"), query)]
    while onward := pages[-1].context["more"]:
        assert f'href="?{onward}"'.replace("&", "&amp;") in pages[-1].content.decode()
        pages.append(client.get(f"{reverse('inbox')}?{onward}"))
    return pages


@pytest.mark.parametrize("seed", range(4))
def test_the_pages_of_a_search_have_each_match_once_in_the_order_of_the_inbox(
    people: People, browse: Callable[[User], Client], seed: int
) -> None:
    random = Random(seed)
    for number in range(random.randint(1, 20)):
        label = random.choice(["Nora Field", "Owen Hill"])
        a_request(a_run(label=f"{label} {number}"), "user:rita", "group:reviewer")
    expected = []
    for request in inbox.waiting_for(people.reviewer):
        if "Nora" in request.run.label:
            expected.append(request.id)

    shown = []
    for page in _pages(browse(people.reviewer), q="nora"):
        ids = [row.id for row in page.context["rows"]]
        assert len(ids) <= PAGE
        shown += ids
    assert shown == expected


def test_a_stretch_without_a_match_says_so_and_leads_on(
    people: People, browse: Callable[[User], Client]
) -> None:
    for number in range(2 * STRETCH):
        a_request(a_run(label=f"Owen Hill {number}"), "user:rita")
    a_request(a_run(label="Nora Field"), "user:rita")
    client = browse(people.reviewer)
    first, second, third = _pages(client, q="nora")
    for page in (first, second):
        assert page.context["rows"] == []
        assert "Search on" in page.content.decode()
    (row,) = third.context["rows"]
    assert row.run.label == "Nora Field"

    (page,) = _pages(client, q="nobody", searched=str(2 * STRETCH))
    assert "No review matches these words." in page.content.decode()


def test_no_search_begins_at_what_is_no_number(
    people: People, browse: Callable[[User], Client]
) -> None:
    page = browse(people.reviewer).get(reverse("inbox"), {"q": "a", "searched": "x"})
    assert page.status_code == 400
