"""No page is heavier than a phone can take: its bytes as they are sent, and its elements,
on the runs that are largest.
"""

import gzip
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from checkpoints.models import Checkpoint, Run
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800)]
MOST_BYTES = 40_000
"""Compressed."""
MOST_BYTES_OF_SMALL_REVIEW = 25_000
MOST_ELEMENTS = 2_500
STEPS = 400
"""The checkpoints of the long run here. They are shown in windows, so that more of them
are not more of a page.
"""


class Elements(HTMLParser):
    """Counts the elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.count += 1


def test_no_page_is_heavier_than_a_phone_can_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference_data, "LONG_RUN", STEPS)
    list(ReferenceData().grow(60))
    reference_data.make_large_runs()
    steward = User.objects.create_superuser("steward")
    reviewer = User.objects.get(username=reference_data.REVIEWER)
    lists = ["/", "/reviews/", "/runs/", "/audit/"]
    large_reviews = [f"/reviews/{run.id}/" for run in _newest_runs(2)]
    _assert_light(reviewer, [*lists, *large_reviews])
    shown_to_stewards = ["/graphs/", "/workers/", "/figures/", *_pages_of_newest_runs()]
    _assert_light(steward, [*lists, *shown_to_stewards])


def _newest_runs(number: int) -> list[Run]:
    return list(Run.objects.order_by("-created_at", "-id")[:number])


def _pages_of_newest_runs() -> list[str]:
    """Return the addresses of the newest runs and of their reviews, the large ones among
    them, and of going on from their newest checkpoints.
    """
    addresses = []
    for run in _newest_runs(6):
        addresses.append(f"/runs/{run.id}/")
        addresses.append(f"/reviews/{run.id}/")
        head = Checkpoint.objects.filter(run=run.id).latest("seq")
        addresses.append(f"/checkpoints/{head.id}/go-on/")
    return addresses


def _assert_light(user: User, addresses: list[str]) -> None:
    client = Client()
    client.force_login(user)
    for address in addresses:
        response = client.get(address, follow=True)
        assert response.status_code == 200, address
        body = b"".join(response)
        elements = Elements()
        elements.feed(body.decode())
        assert len(gzip.compress(body)) <= MOST_BYTES, address
        assert elements.count <= MOST_ELEMENTS, address


def test_a_review_of_five_writes_is_lighter_still() -> None:
    reference_data.register_graphs()
    name = reference_data.graph_names()[0]
    run = reference_data.started(name, proposals=5)
    client = Client()
    client.force_login(User.objects.create_superuser("steward"))
    response = client.get(f"/reviews/{run.id}/")
    assert response.status_code == 200
    assert len(gzip.compress(response.content)) <= MOST_BYTES_OF_SMALL_REVIEW
