"""A person who keeps filters on two pages at the same moment has no more than anybody."""

import random
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals.models import SavedFilter
from approvals.views.people.saved_filters import MOST
from tests.races.meeting import TRIALS, meet
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)


def _page_of(person: User) -> Client:
    client = Client()
    client.force_login(person)
    return client


def test_two_pages_at_once_keep_no_more_than_so_many(people: People) -> None:
    rita = people.reviewer
    pages = [_page_of(rita), _page_of(rita)]
    chance = random.Random(13)
    for number in range(MOST - 1):
        SavedFilter.objects.create(user=rita, name=f"filter {number}", query="q=Nora")

    def keep(page: Client, name: str) -> None:
        page.post(reverse("saved_filters"), {"act": "keep", "name": name, "q": "Ines"})

    for _ in range(TRIALS):
        acts = [
            partial(keep, page, f"late {place}") for place, page in enumerate(pages)
        ]
        meet(chance, *acts)
        assert SavedFilter.objects.count() == MOST
        SavedFilter.objects.filter(name__startswith="late").delete()
