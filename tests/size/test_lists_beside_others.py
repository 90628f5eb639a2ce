"""What a person who sees all runs reads costs no more because of the runs that the page
does not show: lists, counts, searches, pages of one run, the admin, probes and
retention.
"""

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone
from django.utils.http import urlencode

from checkpoints.admin import rows
from checkpoints.db import counts
from checkpoints.models import RetentionPolicy, Run
from checkpoints.retention import dry_runs
from orchestrator import runs
from orchestrator.engine import registry
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData, reference_graph
from orchestrator.views import graphs, run_details, run_search
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
    # Few, because those of a stretch lie on more pages where there are more runs.
    monkeypatch.setattr(run_search, "STRETCH", 40)
    monkeypatch.setattr(run_search, "MOST_FOUND", 15)
    monkeypatch.setattr(run_search, "MOST_NAMED", 4)
    # More than a page of the admin, which would list them all otherwise.
    monkeypatch.setattr(rows, "MOST_COUNTED", 120)
    # The runs that are copied were started within the hour.
    monkeypatch.setattr(runs_page, "CLOCKS_DIFFER", timedelta(0))
    monkeypatch.setattr(graphs, "MOST_OF_DAY", 4)


@pytest.fixture
def data() -> ReferenceData:
    """The reference data of few runs, beside those of the small graph."""
    data = ReferenceData()
    list(data.grow(FEW))
    _make_small_runs(User.objects.get(username=reference_data.REVIEWER))
    return data


@pytest.fixture
def overseer() -> User:
    return User.objects.create_superuser("overseer")


def test_no_page_costs_more_beside_ten_times_as_many_runs(
    data: ReferenceData, overseer: User
) -> None:
    reads = {
        **_comparisons(overseer, User.objects.get(username=reference_data.REVIEWER)),
        **_queue(overseer),
        **_lists(overseer),
        **_searches(overseer),
        **_pages_of_runs(overseer),
    }
    assert grown_reads(data, reads, many=MANY) == {}


def test_nothing_of_the_admin_or_retention_costs_more_beside_ten_times_as_many_runs(
    data: ReferenceData, overseer: User
) -> None:
    reads = {**_admin(overseer), **_retention()}
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
        "runs of a graph, tab review": f"/runs/?graph={SMALL}&status=review",
        "runs of this hour": "/runs/?started=hour",
        "runs of this month": "/runs/?started=month",
        "runs with metadata": "/runs/?metadata.team=claims",
        "rows of the list": f"/runs/-/rows/?id={newest}",
        "runs by API": "/api/v1/runs/",
        "runs of a graph by API": f"/api/v1/runs/?graph={SMALL}",
        "failed runs by API": "/api/v1/runs/?status=failed",
        "requests by API": "/api/v1/requests/",
        "requests of a graph by API": f"/api/v1/requests/?graph={SMALL}",
    }
    return _pages(overseer, addresses)


def _searches(overseer: User) -> Reads:
    """Searches of runs for what one, many or no run has, and the page behind them."""
    oldest = Run.objects.order_by("created_at")[0]
    position = f"{(timezone.now() - timedelta(days=1)).isoformat()}~{oldest.id}"
    addresses = {
        "search for a key": f"/runs/?q={_key(1)}",
        "search for an old key": f"/runs/?q={oldest.key}",
        "search for an id": f"/runs/?q={oldest.id}",
        "search for nothing": "/runs/?q=k-1234",
        "search for many": f"/runs/?q={reference_data.PREFIX}",
        "search for many digits": "/runs/?q=01",
        "search in a graph": f"/runs/?q=k-1234&graph={SMALL}",
        "further search": "/runs/?" + urlencode({"q": "k-1234", "before": position}),
        "further page": "/runs/?" + urlencode({"before": position}),
    }
    return _pages(overseer, addresses)


def _pages_of_runs(overseer: User) -> Reads:
    """Return what one run, its checkpoints, its log and the audit log show, and the
    lists of what there is beside runs.
    """
    run = Run.objects.get(key=_key(0))
    checkpoint = f"/api/v1/checkpoints/{run.head}"
    addresses = {
        "audit": "/audit/",
        "audit of a graph": f"/audit/?graph={SMALL}",
        "pin": f"/checkpoints/{run.head}/pin/",
        "export": f"/runs/{run.id}/export/",
        "erasure": f"/runs/{run.id}/erase/",
        "graphs": "/graphs/",
        "graph": f"/graphs/{SMALL}/",
        "figures": "/figures/",
        "run by API": f"/api/v1/runs/{run.id}/",
        "checkpoints by API": f"/api/v1/runs/{run.id}/checkpoints/",
        "events by API": f"/api/v1/runs/{run.id}/events/",
        "checkpoint by API": f"{checkpoint}/",
        "state by API": f"{checkpoint}/state/",
        "diff by API": f"{checkpoint}/diff/",
        "decisions by API": f"/api/v1/runs/{run.id}/decisions/",
        "audit by API": "/api/v1/audit/",
    }
    for tab in run_details.TABS:
        addresses[f"run, tab {tab}"] = f"/runs/{run.id}/?tab={tab}"
    return _pages(overseer, addresses)


def _admin(overseer: User) -> Reads:
    """Lists of the admin, which count up to a limit of their own."""
    run = Run.objects.get(key=_key(0))
    runs_list = "/admin/checkpoints/run/"
    requests_list = "/admin/approvals/approvalrequest/"
    addresses = {
        "admin": "/admin/",
        "runs in the admin": runs_list,
        "runs of a graph in the admin": f"{runs_list}?graph={SMALL}",
        "failed runs in the admin": f"{runs_list}?status__exact=failed",
        "search in the admin": f"{runs_list}?q={run.key}",
        "run in the admin": f"{runs_list}{run.id}/change/",
        "requests in the admin": requests_list,
        "requests of a graph in the admin": f"{requests_list}?graph={SMALL}",
        "requests of a run in the admin": f"{requests_list}?q={run.key}",
        "decisions in the admin": "/admin/approvals/decision/",
        "receipts in the admin": "/admin/approvals/receipt/",
        "checkpoints in the admin": "/admin/checkpoints/checkpoint/",
        "events in the admin": "/admin/checkpoints/runevent/",
        "writes in the admin": "/admin/checkpoints/pendingwrite/",
    }
    return _pages(overseer, addresses)


def _retention() -> Reads:
    """Dry runs of a policy of the small graph: by number, by age, of whole runs."""
    ages = {"paused": 0, "failed": 0, "completed": 0}
    policies = {
        "number": RetentionPolicy(graph=SMALL, keep_last=1),
        "age": RetentionPolicy(graph=SMALL, max_age_days=ages),
        "whole runs": RetentionPolicy(
            graph=SMALL, remove_runs_after_days={"completed": 0, "failed": 0}
        ),
    }
    reads = {}
    for name, policy in policies.items():
        reads[f"dry run, {name}"] = partial(dry_runs.dry_run, policy)
    return reads
