"""A filter by words looks through a stretch of the inbox at a time, and misses nothing."""

from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals import inbox
from approvals.models import ApprovalRequest, RequestClaim
from approvals.views import inbox as inbox_page
from approvals.views import inbox_search
from checkpoints.ledger.pending_writes import StoredBase
from tests.support.cast import People
from tests.support.rows import START, a_decision, a_request, a_run, a_write

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

    last = _pages(client, q="nobody")[-1]
    assert "No review matches this filter." in last.content.decode()


@pytest.mark.parametrize("seed", range(4))
def test_what_leaves_the_inbox_meanwhile_lets_a_search_skip_nothing(
    people: People, browse: Callable[[User], Client], seed: int
) -> None:
    random = Random(seed)
    for _ in range(4 * STRETCH):
        # Several of one deadline and of one moment, in which the id decides.
        hours = random.choice([None, 1, 2])
        deadline = None if hours is None else START + timedelta(hours=hours)
        moment = START + timedelta(minutes=random.randint(0, 2))
        label = random.choice(["Nora Field", "Owen Hill"])
        a_request(a_run(label=label), "user:rita", opened_at=moment, deadline=deadline)
    waiting = inbox.waiting_for(people.reviewer)
    expected = [row.id for row in waiting if row.run.label == "Nora Field"]

    client = browse(people.reviewer)
    shown = []
    onward = "q=nora"
    while onward:
        page = client.get(f"{reverse('inbox')}?{onward}")
        onward = page.context["more"]
        ids = [row.id for row in page.context["rows"]]
        # All that the page shows is signed, and is in the inbox no more.
        ApprovalRequest.objects.filter(id__in=ids).update(status="settled")
        shown += ids
    assert shown == expected


@pytest.mark.parametrize("folder", ["signed", "decided"])
def test_a_search_goes_on_behind_the_last_row_of_each_folder(
    people: People, browse: Callable[[User], Client], folder: str
) -> None:
    run = a_run(label="Nora Field")
    for seq in range(2 * STRETCH):
        moment = START + timedelta(minutes=seq // 2)
        request = a_request(run, "user:rita", opened_at=moment)
        base = StoredBase("", {}, bound=True)
        write = a_write(request, seq, channel="payout", value=1, base=base)
        a_decision(write, request, by=people.reviewer, verdict="approve", seq=seq)
    if folder == "decided":
        ApprovalRequest.objects.update(status="applied")
    signed = inbox.signed_by(people.reviewer, is_open=folder == "signed")

    shown = []
    for page in _pages(browse(people.reviewer), q="nora", folder=folder):
        shown += [row.id for row in page.context["rows"]]
    assert shown == [request.id for request in signed]
    assert len(shown) == 2 * STRETCH


@pytest.mark.parametrize(
    "after",
    [
        "x",
        "~",
        "~2026-11-22T14:00:00~01890000-0000-7000-8000-000000000000",
        "~2026-11-22T14:00:00+00:00~x",
        "x~2026-11-22T14:00:00+00:00~01890000-0000-7000-8000-000000000000",
        "0001-01-01T00:00:00+14:00~",
    ],
)
def test_no_search_begins_behind_what_is_no_place(
    people: People, browse: Callable[[User], Client], after: str
) -> None:
    page = browse(people.reviewer).get(reverse("inbox"), {"q": "a", "after": after})
    assert page.status_code == 400
    assert "names no review" in page.content.decode()


def _claimed(request: ApprovalRequest, by: User, until: Any = None) -> None:
    RequestClaim.objects.create(
        request=request, by=by, by_name=by.username, at=START, until=until
    )


def test_a_folder_is_narrowed_to_what_nobody_oneself_or_others_have_taken(
    people: People, browse: Callable[[User], Client]
) -> None:
    requests = [a_request(a_run(), "user:rita") for _ in range(2 * STRETCH)]
    later = timezone.now() + timedelta(hours=1)
    _claimed(requests[1], people.reviewer)
    _claimed(requests[7], people.reviewer, until=later)
    _claimed(requests[4], people.second_reviewer)
    # A claim whose time is over is nobody's.
    _claimed(requests[8], people.second_reviewer, until=START)
    client = browse(people.reviewer)
    expected = {
        "me": {requests[1].id, requests[7].id},
        "others": {requests[4].id},
        "nobody": {
            request.id
            for number, request in enumerate(requests)
            if number not in (1, 4, 7)
        },
        "": {request.id for request in requests},
        "nonsense": {request.id for request in requests},
    }
    for taken, ids in expected.items():
        pages = _pages(client, folder="mine", taken=taken)
        listed = [row.id for page in pages for row in page.context["rows"]]
        assert set(listed) == ids, taken
        assert len(listed) == len(ids)


@pytest.mark.parametrize("folder", ["decided", "expired"])
def test_nobody_has_taken_what_is_not_open(
    people: People, browse: Callable[[User], Client], folder: str
) -> None:
    request = a_request(a_run(), "user:rita")
    base = StoredBase("", {}, bound=True)
    write = a_write(request, 0, channel="payout", value=1, base=base)
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    status = "applied" if folder == "decided" else "expired"
    ApprovalRequest.objects.filter(id=request.id).update(status=status)
    _claimed(request, people.reviewer)
    for taken, number in {"": 1, "nobody": 1, "me": 0, "others": 0}.items():
        (page,) = _pages(browse(people.reviewer), folder=folder, taken=taken)
        assert len(page.context["rows"]) == number, taken


def test_words_and_who_has_taken_it_narrow_a_folder_together(
    people: People, browse: Callable[[User], Client]
) -> None:
    first, _, third = (
        a_request(a_run(label=label), "user:rita") for label in ("Nora", "Nora", "Ines")
    )
    _claimed(first, people.reviewer)
    _claimed(third, people.reviewer)
    page = browse(people.reviewer).get(reverse("inbox"), {"q": "Nora", "taken": "me"})
    assert [row.id for row in page.context["rows"]] == [first.id]
    html = page.content.decode()
    # The links of the filter keep the words, and the search keeps the filter.
    assert 'href="?folder=mine&amp;q=Nora&amp;taken=others"' in html
    assert '<input type="hidden" name="taken" value="me">' in html
