"""What a person who sees all runs reads costs no more because of the runs that the page
does not show: lists, counts, searches, pages of one run, the admin, probes and
retention.
"""

import os
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from checkpoints.db import counts
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData, reference_graph
from orchestrator.views import runs as runs_page
from tests.support.read_growth import Reads, grown_reads
from tests.support.rows import a_worker

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(3600),
]
FEW = int(os.environ.get("COUNTERSIGN_SIZE", "400"))
MANY = 10 * FEW
SMALL = "small"
"""A graph with a few runs of its own, whatever is added beside them."""
RUNS = 6


@pytest.fixture(autouse=True)
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that are reached before runs are added."""
    monkeypatch.setattr(counts, "MOST_COUNTED", 20)
    # The runs that are copied were started within the hour.
    monkeypatch.setattr(runs_page, "CLOCKS_DIFFER", timedelta(0))


def test_no_read_costs_more_beside_ten_times_as_many_runs() -> None:
    data = ReferenceData()
    list(data.grow(FEW))
    reviewer = User.objects.get(username=reference_data.REVIEWER)
    _make_small_runs(reviewer)
    overseer = User.objects.create_superuser("overseer")
    reads = {
        **_comparisons(overseer, reviewer),
        **_queue(overseer),
        **_lists(overseer),
    }
    assert grown_reads(data, reads, many=MANY) == {}


def _make_small_runs(reviewer: User) -> None:
    """Start the runs of the small graph, which this reviewer may see, and a fork of the
    first.
    """
    registry.replace(reference_graph(SMALL))
    reviewer.groups.add(Group.objects.create(name=SMALL))
    for number in range(RUNS):
        run = runs.start(SMALL, {}, key=_key(number))
        runs.advance(run.id)
    first = Run.objects.get(key=_key(0))
    assert first.head is not None
    runs.fork(first.head, key="small-fork", by=reviewer)


def _key(number: int) -> str:
    return f"{SMALL}-{number}"


def _pages(user: User, addresses: dict[str, str]) -> Reads:
    """Return functions that open these pages, by what they show."""
    client = Client()
    client.force_login(user)
    return {name: _opens(client, address) for name, address in addresses.items()}


def _opens(client: Client, address: str) -> Callable[[], None]:
    def open_page() -> None:
        response = client.get(address, secure=True)
        assert response.status_code == 200, (address, response.status_code)

    return open_page


def _comparisons(overseer: User, reviewer: User) -> Reads:
    """A run beside its fork, for who sees all and for who sees a share of all runs."""
    fork = "small-fork"
    pages = {
        "comparison": f"/compare/?a={_key(0)}&b={fork}",
        "choice to compare with": f"/compare/?a={fork}",
        "lineage": f"/runs/{fork}/?tab=lineage",
        "history": f"/runs/{fork}/?path=steps",
    }
    answers = {
        "lineage by API": f"/api/v1/runs/{fork}/lineage/",
        "comparison by API": f"/api/v1/runs/{_key(0)}/align/?with={fork}",
        "history by API": f"/api/v1/runs/{fork}/history/?path=steps",
    }
    # A page has a number in its bar, which is measured with the inbox.
    of_reviewer = {f"{name}, reviewer": answer for name, answer in answers.items()}
    return {**_pages(overseer, pages | answers), **_pages(reviewer, of_reviewer)}


def _queue(overseer: User) -> Reads:
    """The page of workers and of the queue, and the probe that says the same. A worker
    lives that has registered nothing.
    """
    a_worker()
    return _pages(overseer, {"workers": "/workers/", "probe": "/readyz"})


def _lists(overseer: User) -> Reads:
    """The list of runs, each of its tabs, and the number of newer runs."""
    newest = Run.objects.get(key=_key(RUNS - 1)).id
    addresses = {}
    for tab in ("", *(name for name, _, _ in runs_page.TABS)):
        addresses[f"runs, tab {tab}"] = f"/runs/?status={tab}"
        addresses[f"news, tab {tab}"] = f"/runs/-/news/?status={tab}&since={newest}"
    addresses |= {
        "runs of a graph": f"/runs/?graph={SMALL}",
        "runs of a graph, tab stopped": f"/runs/?graph={SMALL}&status=stopped",
        "runs of this hour": "/runs/?started=hour",
        "runs of this month": "/runs/?started=month",
        "runs with metadata": "/runs/?metadata.team=claims",
        "rows of the list": f"/runs/-/rows/?id={newest}",
        "runs by API": "/api/v1/runs/",
        "runs of a graph by API": f"/api/v1/runs/?graph={SMALL}",
        "failed runs by API": "/api/v1/runs/?status=failed",
    }
    return _pages(overseer, addresses)
