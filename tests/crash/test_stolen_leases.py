"""A worker loses its lease before each of its statements, and continues: the database
keeps nothing of what it then writes, except late results.
"""

import itertools
import re
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F

from checkpoints.core.status import Status
from checkpoints.models import LateResult, MemoryTrace, Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.execution import loop
from tests.crash import graphs
from tests.crash.abort import Watch, until_threads_rest, watching
from tests.races.meeting import Thread
from tests.support import cast, run_actions
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
APPS = ("checkpoints", "approvals", "orchestrator", "demo_claims")
FAR = "2100-01-01T00:00Z"
SLICES = {
    "effects": ("c_effects", ""),
    "atomic": ("c_atomic", ""),
    "memory of each mode": ("c_memory", ""),
    "memory that is read live": ("c_remembering", ""),
    "a report": ("c_reporting", ""),
    "a failure": ("c_failure", ""),
    "a gate": ("c_gate", ""),
    "a settlement": ("c_gate", "sign"),
    "memory behind a gate": ("c_memory", "sign"),
}
"""A graph, and whether people sign before the slice."""
INSERTED = {
    *(
        "checkpoints_checkpoint",
        "checkpoints_runevent",
        "checkpoints_taskresult",
        "checkpoints_pendingwrite",
    ),
    *(
        "checkpoints_memoryrecord",
        "checkpoints_memorylanding",
        "checkpoints_memorytrace",
    ),
    *("approvals_approvalrequest", "approvals_requestreviewer"),
    "demo_claims_claimcase",  # a node's own work, in the transaction of its result
}
"""Tables into which slices insert. Each is under a fence; `checkpoints_lateresult` is
the one that is not.
"""


class Thief(Watch):
    """Lets somebody else have the run before the n-th statement that stands outside a
    transaction (None: counts).
    """

    def __init__(self, run: Run, at: int | None = None) -> None:
        self.run = run
        self.at = at
        self.seen = 0
        self.before_it: dict[str, Any] = {}
        self.where = ""
        self._lock = threading.Lock()
        self._me = threading.local()

    def before(self, link: BaseDatabaseWrapper, sql: str) -> None:
        inside = link.in_atomic_block or (
            link.vendor == "sqlite"
            and link.connection
            and link.connection.in_transaction
        )
        if inside or getattr(self._me, "steals", False):
            return
        with self._lock:
            self.seen += 1
            if self.seen - 1 != self.at:
                return
            self.where = sql[:80]
            Thread(self._steal).outcome()

    def _steal(self) -> None:
        self._me.steals = True
        taken = {
            "status": Status.RUNNING,
            "epoch": F("epoch") + 1,
            "lease_until": FAR,
            "leased_by": uuid4(),
        }
        Run.objects.filter(id=self.run.id).update(**taken)
        self.before_it = contents()


def contents() -> dict[str, Any]:
    """All rows of all our tables but late results. When the thread of an attempt ended
    is evidence too, and is sealed with its row.
    """
    collected = {}
    evidence = {"checkpoints_taskresult": {"thread_ended_at", "seal", "seal_key"}}
    for model in apps.get_models():
        if model._meta.app_label in APPS and model is not LateResult:
            rows = model._base_manager.order_by("pk").values()
            left_out = evidence.get(model._meta.db_table, set())
            collected[model._meta.db_table] = [
                {k: v for k, v in row.items() if k not in left_out} for row in rows
            ]
    return collected


def started(name: str, folder: Path, by: Any) -> Run:
    """A run that is ready for the slice."""
    graph, people = SLICES[name]
    graphs.fresh()
    MemoryTrace.objects.filter(namespace="sweep").delete()
    run = runs.start(graph, {"folder": str(folder)})
    if people:
        run_actions.sign_open(runs.advance(run.id), by, "approve")
    return run


def worked_on(run: Run, watch: Watch) -> None:
    """One slice of it."""
    claim = leases.claim_one(run.id)
    others = set(threading.enumerate())
    assert claim is not None
    with watching(watch):
        loop.run_slice(claim.id, claim.epoch)
        until_threads_rest(others)
    connection.close_if_unusable_or_obsolete()


@pytest.mark.parametrize("name", SLICES)
def test_whoever_lost_the_lease_leaves_nothing_but_late_results(
    name: str, tmp_path: Path, people: cast.People, quick: None
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    worked_on(started(name, tmp_path, rita), Watch())  # what a process does only once
    for at in itertools.count():
        thief = Thief(run := started(name, tmp_path, rita), at)
        worked_on(run, thief)
        if not thief.before_it:
            break
        after = contents()
        changed = {
            table for table, rows in after.items() if rows != thief.before_it[table]
        }
        assert changed == set(), (at, thief.where)
    print(f"{name}: its lease was stolen before each of {thief.seen} statements")
    assert thief.seen > 1


def test_a_slice_inserts_into_these_tables_and_no_others(
    tmp_path: Path, people: cast.People, quick: None
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    sent = list[str]()
    for name in SLICES:
        run = started(name, tmp_path, rita)
        claim = leases.claim_one(run.id)
        assert claim is not None
        with counted() as statements:
            loop.run_slice(claim.id, claim.epoch)
        sent += statements
    assert {
        table for sql in sent for table in re.findall(r'INSERT INTO "(\w+)"', sql)
    } == INSERTED
