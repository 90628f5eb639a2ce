"""No read costs more because of rows that it does not touch: each is counted beside few
runs of others and beside ten times as many.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from checkpoints.queue import leases
from checkpoints.queue.due_runs import Claimable
from orchestrator.management import reference_data
from orchestrator.management.reference_data import ReferenceData
from tests.support.read_costs import ReadCost, cost_of

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.timeout(3600),
]
FEW = int(os.environ.get("COUNTERSIGN_SIZE", "400"))
MANY = 10 * FEW
MOST_GROWTH = 1.3
"""What a deeper index and other pages of a table may add."""
SLACK = {"rows": 30, "buffers": 30, "steps": 500}
"""What a figure may grow by however small it was."""


class Reads:
    """The reads that are measured, by name."""

    def __init__(self) -> None:
        self.reviewer = User.objects.get(username=reference_data.REVIEWER)
        self.overseer = User.objects.create_user("overseer")
        rights = Permission.objects.filter(codename="view_run")
        self.overseer.user_permissions.add(*rights)
        self.clients = {}
        for user in (self.reviewer, self.overseer):
            self.clients[user] = Client()
            self.clients[user].force_login(user)

    def all(self) -> dict[str, Callable[[], Any]]:
        return {
            "claim of an idle worker": self.claim,
            "API runs": lambda: self.page(self.overseer, "/api/v1/runs/"),
        }

    def claim(self) -> None:
        """Look for work as a process that knows one graph, of which nothing is due."""
        only = Claimable(frozenset({"no such fingerprint"}), frozenset({"measured"}))
        assert leases.claim(worker=None, limit=1, only=only) == []

    def page(self, user: User, address: str) -> None:
        response = self.clients[user].get(address)
        assert response.status_code == 200, (address, response.status_code)


def test_no_read_costs_more_beside_ten_times_as_many_runs() -> None:
    data = ReferenceData()
    list(data.grow(FEW))
    reads = Reads()
    few = _costs(reads)
    list(data.grow(MANY))
    many = _costs(reads)
    grown = {}
    for name, cost in many.items():
        for figure, value in cost.reads.items():
            before = few[name].reads[figure]
            if value > before * MOST_GROWTH + SLACK[figure]:
                grown[f"{figure} of {name}"] = (before, value)
    assert grown == {}


def _costs(reads: Reads) -> dict[str, ReadCost]:
    costs = {}
    for name, act in reads.all().items():
        # Permissions, content types and texts of queries are kept after the first time.
        act()
        costs[name] = cost_of(act)
        print(f"{name}: {costs[name]}")
    return costs
