"""The parts of a run's page: what changed, what is pending, and every tab."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from checkpoints.models import Run
from tests.support.cast import People

Browse = Callable[[User], Client]


def test_what_changed_names_path_and_node(run: Run, people: People, browse: Browse) -> None:
    html = browse(people.starter).get(reverse("run", args=[run.id]), {"at": "1"}).content.decode()
    assert "claim CLM-1" in html
    assert '<td class="who">read</td>' in html


@pytest.mark.parametrize("tab", ["changed", "state", "writes", "results", "memory", "events", "nonsense"])
def test_every_tab_opens(tab: str, run: Run, people: People, browse: Browse) -> None:
    page = browse(people.starter).get(reverse("run", args=[run.id]), {"tab": tab})
    assert page.status_code == 200


def test_pending_writes_are_those_held_at_that_checkpoint(run: Run, people: People, browse: Browse) -> None:
    client = browse(people.starter)
    url = reverse("run", args=[run.id])
    assert len(client.get(url, {"tab": "writes"}).context["page"]["detail"]["rows"]) == 3
    assert client.get(url, {"tab": "writes", "at": "1"}).context["page"]["detail"]["rows"] == []
