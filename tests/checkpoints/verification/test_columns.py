"""Every column of every sealed table changed by SQL, every row deleted, moved, copied:
verification names the row, and raises for no value that a column can hold.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import BinaryField, CharField, JSONField, Model, TextField

from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints.core import codec
from checkpoints.models import (
    Checkpoint,
    LateResult,
    PendingWrite,
    Run,
    RunEvent,
    TaskResult,
)
from checkpoints.sealing import run_row
from checkpoints.verification import NOT_VERIFIED, verify_run
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support import full_installation as full

pytestmark = pytest.mark.django_db(transaction=True)

NUMBERED = {"id"}
"""Numbers that the database gives: nothing refers to them."""
QUEUE = {
    "epoch",
    "lease_until",
    "leased_by",
    "wakes",
    "due_at",
    "priority",
    "claims_since_progress",
}
"""Where a run stands in the queue: claims, wakes and heartbeats change it without
touching what is sealed.
"""
SHOWN = {"at_node", "pending", "tape", "progress"}
"""What lists show of a run; nothing is decided on it, and the log says the same under
seal.
"""
UNSEEN: dict[type[Model], set[str]] = {
    Run: QUEUE | SHOWN,
    RunEvent: NUMBERED,
    Checkpoint: set(),
    PendingWrite: NUMBERED,
    TaskResult: NUMBERED,
    LateResult: NUMBERED,
    ApprovalRequest: set(),
    Decision: set(),
    Receipt: set(),
}
"""Columns whose change nobody is told of. docs/integrity.md says what each of them is
for.
"""


DEEP: Any = "x"
for _ in range(500):
    DEEP = [DEEP]
NONSENSE = ([1], {}, "x", "", DEEP, 10**30)
"""JSON that is another value than any column is written with."""
PACKED = (
    b"",
    *map(codec.pack, (b"[1]", b'"\\u0000"', b"[" * 500 + b"]" * 500, b"9" * 30)),
)
PACKED_AND_SEALED = (b"x", codec.pack(b"[" * 5000))


@pytest.fixture
def two_runs(tmp_path: Path, people: cast.People) -> tuple[Run, Run]:
    """The run that is changed, and one to which rows can be moved."""
    run_actions.start("beside", tmp_path)
    other = runs.start("slow", {}, by=people.second_reviewer)
    return full.a_full_run(tmp_path, people.reviewer), other


def _row(model: type[Model], run: Run) -> Any:
    if model is Run:
        return Run.objects.get(id=run.id)
    rows: Any = model._base_manager.filter(run=run.id).order_by("pk")
    if model is Checkpoint:
        rows = rows.order_by("seq")
    return list(rows)[len(rows) // 2]


@pytest.mark.parametrize("model", list(UNSEEN), ids=lambda model: model.__name__)
def test_every_changed_column_is_named(
    model: type[Model], two_runs: tuple[Run, Run]
) -> None:
    run, other = two_runs
    assert verify_run(run.id) == []
    row = _row(model, run)
    unseen = set()
    for field in full.columns(model):
        if model is Run and field.primary_key:
            continue  # its rows would be those of a run that is not there
        with full.changed(row, field):
            # Whatever the first does not name may be named by the run to which the row
            # moved.
            faults = itertools.chain.from_iterable(
                verify_run(each_run.id) for each_run in (run, other)
            )
            seen = any(fault.table == model._meta.db_table for fault in faults)
        if not seen:
            unseen.add(field.name)
        for value in _nonsense(model, field):
            _require_named(run, row, field, value)
    assert verify_run(run.id) == []
    assert unseen == UNSEEN[model]


def _nonsense(model: type[Model], field: Any) -> Iterator[Any]:
    """The values that nobody wrote which a column can hold: of JSON, of payloads, and
    of texts that no seal covers.
    """
    if isinstance(field, JSONField):
        yield from NONSENSE
        # The other database keeps no NUL.
        if connection.vendor == "sqlite":
            yield "\x00"
    elif isinstance(field, BinaryField):
        yield from PACKED if _is_unsealed(model, field) else PACKED_AND_SEALED
    elif isinstance(field, CharField | TextField) and _is_unsealed(model, field):
        yield from ("", "[1]")
        if connection.vendor == "sqlite":
            yield "\x00"


def _is_unsealed(model: type[Model], field: Any) -> bool:
    if model is Run:
        return field.attname not in run_row.SEALED
    sealed: Any = model
    return field.name in sealed.UNSEALED


def _require_named(run: Run, row: Any, field: Any, value: Any) -> None:
    was = getattr(row, field.attname)
    if isinstance(field, BinaryField):
        was = bytes(was or b"")
    is_same = was == value
    with full.replaced(row, field, value):
        faults = verify_run(run.id)
    what = (field.name, str(value)[:80])
    assert all(fault.code != NOT_VERIFIED for fault in faults), what
    if not is_same and field.name not in UNSEEN[type(row)]:
        assert faults, what
