"""What a reviewer reads costs the same however many requests wait for others, and
however many wait for the reviewer beyond a page.
"""

import os
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from approvals import folders, inbox
from approvals.models import ApprovalRequest, Draft
from approvals.views import inbox as inbox_page
from approvals.views import inbox_search
from checkpoints.db import counts
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData
from orchestrator.views import run_search
from orchestrator.views import runs as runs_page
from tests.support.read_costs import cost_of
from tests.support.read_growth import grown_reads

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(3600),
]
# With fewer of them PostgreSQL rightly reads a table whole, which costs less than an index.
SIZES = {"postgresql": "4000", "sqlite": "800"}
FEW = int(os.environ.get("COUNTERSIGN_SIZE", SIZES[connection.vendor]))
MANY = 10 * FEW
SHORT = 2
"""Rows of a page, and the highest count, so that few runs have more than that."""
GRAPH = reference_data.graph_names()[0]
"""A graph of the reviewer's, which has a twentieth of all runs."""
OF_API = f"/api/v1/runs/?page_size={SHORT}"
REQUESTS = "/api/v1/requests/"
RUNS_OF_API = {
    "API runs of a graph": f"{OF_API}&graph={GRAPH}",
    "API runs of a status": f"{OF_API}&status=completed",
    "API runs of statuses": f"{OF_API}&status=failed,paused&graph={GRAPH}",
    "API runs of no status": f"{OF_API}&status=failed",
}
REQUESTS_OF_API = {
    "API requests": f"{REQUESTS}?page_size={SHORT}",
    "API requests of a graph": f"{REQUESTS}?page_size={SHORT}&graph={GRAPH}",
    "API requests that wait": f"{REQUESTS}?waiting=me&page_size={SHORT}",
}
RUNS_OF_LIST = {
    "runs": "/runs/",
    "runs, tab review": "/runs/?status=review",
    "runs, tab not started": "/runs/?status=unstarted",
    "runs, tab completed": "/runs/?status=completed",
    "runs, tab stopped": "/runs/?status=stopped",
    "search of runs": "/runs/?q=k-1234",
}
LISTS_OF_GRAPH = {
    "runs of a graph": f"/runs/?graph={GRAPH}",
    "runs of a graph, tab review": f"/runs/?status=review&graph={GRAPH}",
    "API requests of a graph that wait": (
        f"{REQUESTS}?waiting=me&page_size={SHORT}&graph={GRAPH}"
    ),
}


class Reads:
    """The reads of the reviewer of some of the graphs."""

    def __init__(self) -> None:
        self.user = User.objects.get(username=reference_data.REVIEWER)
        self.client = Client()
        self.client.force_login(self.user)
        first = inbox.waiting_for(self.user)[0]
        self.run = first.run_id
        self.request = first.id
        first_page = self.page(f"/api/v1/runs/?page_size={SHORT}").json()
        self.later = first_page["next"]
        first_page = self.page(f"{REQUESTS}?page_size={SHORT}").json()
        self.later_requests = first_page["next"]
        first_search = self.page("/reviews/?q=k-1234").context
        self.later_search = f"/reviews/?{first_search['more']}"

    def page(self, address: str) -> Any:
        response = self.client.get(address, secure=True)
        assert response.status_code == 200, (address, response.status_code)
        return response


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_page, "PAGE", SHORT)
    monkeypatch.setattr(inbox, "MANY", SHORT)
    monkeypatch.setattr(inbox, "NEWEST", SHORT)
    monkeypatch.setattr(runs_page, "PAGE", SHORT)
    monkeypatch.setattr(counts, "MOST_COUNTED", SHORT)
    monkeypatch.setattr(run_search, "STRETCH", SHORT)
    monkeypatch.setattr(inbox_search, "STRETCH", SHORT)


def test_no_read_of_a_reviewer_costs_more_beside_ten_times_as_many_runs(
    short: None,
) -> None:
    data = ReferenceData()
    list(data.grow(FEW))
    reads = Reads()
    assert ApprovalRequest.objects.filter(status="open").count() > SHORT
    assert folders.drafted_by(reads.user).count() > SHORT
    assert folders.expired_for(reads.user).count() > SHORT
    by_name = {
        "review page": lambda: reads.page(f"/reviews/{reads.run}/"),
        "inbox": lambda: reads.page("/reviews/"),
        "inbox, second page": lambda: reads.page("/reviews/?page=2"),
        "inbox, with words": lambda: reads.page("/reviews/?q=k-1234"),
        "inbox, with many words": lambda: reads.page("/reviews/?q=reference"),
        "inbox, further search": lambda: reads.page(reads.later_search),
        "inbox, decided with words": lambda: reads.page(
            "/reviews/?folder=decided&q=k-1234"
        ),
        "inbox, signed": lambda: reads.page("/reviews/?folder=signed"),
        "inbox, decided": lambda: reads.page("/reviews/?folder=decided"),
        "inbox, came back": lambda: reads.page("/reviews/?folder=back"),
        "inbox, drafts": lambda: reads.page("/reviews/?folder=drafts"),
        "inbox, expired": lambda: reads.page("/reviews/?folder=expired"),
        "API runs": lambda: reads.page(f"/api/v1/runs/?page_size={SHORT}"),
        "API runs, a later page": lambda: reads.page(reads.later),
        "API requests, a later page": lambda: reads.page(reads.later_requests),
        "API requests of a run": lambda: reads.page(f"{REQUESTS}?run={reads.run}"),
        "API requests of a run that wait": lambda: reads.page(
            f"{REQUESTS}?waiting=me&run={reads.run}"
        ),
        "API request": lambda: reads.page(f"{REQUESTS}{reads.request}/"),
        "row of an inbox": lambda: reads.page(f"/reviews/-/rows/?id={reads.request}"),
        "mark of an inbox": lambda: inbox.mark_of(reads.user),
        "mark of all inboxes": inbox.mark_of_all,
    }
    lists = RUNS_OF_API | RUNS_OF_LIST | REQUESTS_OF_API | LISTS_OF_GRAPH
    for name, address in lists.items():
        by_name[name] = partial(reads.page, address)
    drafts = Draft.objects.filter(by=reads.user).count()
    assert grown_reads(data, by_name, many=MANY) == {}
    assert Draft.objects.filter(by=reads.user).count() > 5 * drafts


MOST_STATEMENTS = {
    "/reviews/": 6,
    "/reviews/?folder=drafts": 6,
    "/reviews/?folder=back": 6,
    "/reviews/?folder=signed": 6,
    "/reviews/?folder=decided": 6,
    "/reviews/?folder=expired": 6,
    "/reviews/{run}/": 9,
    "/runs/{run}/": 7,
    "/runs/{run}/?at=1": 7,
}
"""Of an inbox, a review and the page of a run: with three for who one is, and with what
the bar says.
"""


def test_an_inbox_a_review_a_run_and_their_bar_take_few_statements() -> None:
    data = ReferenceData()
    list(data.grow(FEW))
    reads = Reads()
    for page, most in MOST_STATEMENTS.items():
        address = page.format(run=reads.run)
        reads.page(address)
        cost = cost_of(partial(reads.page, address))
        assert cost.statements <= most, address
