"""W8 through the public API: reads beside many runs of others, and supersteps beside an
open gate.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import reverse

from approvals.views.inbox import inbox_page
from bench import graphs
from bench.contenders.here import milliseconds
from checkpoints.queue import leases
from checkpoints.queue.due_runs import Claimable
from orchestrator import runs
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData
from orchestrator.views.runs import runs_page

OVERSEER = "overseer"
_data: list[ReferenceData] = []


def w8_fill(count: int) -> dict[str, Any]:
    """Add runs of others until there are so many."""
    if not _data:
        _data.append(ReferenceData())
        user = get_user_model().objects.create_user(OVERSEER)
        user.user_permissions.add(*Permission.objects.filter(codename="view_run"))
    for _ in _data[0].grow(count):
        pass
    return {}


def w8() -> dict[str, Any]:
    """Milliseconds of a claim that finds nothing, of the inbox of a reviewer of three
    graphs, and of the list of all runs.
    """
    return {
        "claim_ms": milliseconds(_claim_nothing),
        "inbox_ms": milliseconds(
            lambda: _view(inbox_page, "inbox", reference_data.REVIEWER)
        ),
        "list_ms": milliseconds(lambda: _view(runs_page, "runs", OVERSEER)),
    }


def _claim_nothing() -> None:
    only = Claimable(frozenset({"no such fingerprint"}), frozenset({"measured"}))
    assert leases.claim(worker=None, limit=1, only=only) == []


def _view(
    page: Callable[[HttpRequest], HttpResponse], address: str, person: str
) -> None:
    request = RequestFactory().get(reverse(address))
    # The permissions are read anew for each request, as they are in a server.
    request.user = get_user_model().objects.get(username=person)
    assert page(request).status_code == 200


def w8_step(steps: int, proposals: int) -> dict[str, Any]:
    """Milliseconds of a superstep while so many writes wait for a decision; none: of a
    graph without a gate.
    """
    get_user_model().objects.get_or_create(username="reviewer")
    at: list[float] = []
    graphs.watch.step = lambda number: at.append(1000 * time.perf_counter())
    if proposals:
        run = runs.start("bench_w8", {"steps": steps, "proposals": proposals})
    else:
        run = runs.start("bench_w1", {"steps": steps})
    run = runs.advance(run.id)
    assert run.status == ("paused" if proposals else "completed"), run.status
    assert len(at) == steps, "a step was lost or worked on twice"
    # The requests are made in the first superstep.
    return {"step_ms": median(after - before for before, after in pairwise(at[2:]))}
