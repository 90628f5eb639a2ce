"""A run with a row in every sealed table, and hands that change rows behind everybody's
back.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.db import connection
from django.db.models import Field, ForeignKey, JSONField, Model

from approvals import append_only
from checkpoints.journal import results as journal
from checkpoints.journal.results import Ending
from checkpoints.models import Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Task, registry
from tests.graphs_app.graphs import Ledger, Order, propose, refuse, release
from tests.support import run_actions
from tests.support.sealed_tables import run_sql


def encrypted_gated(**settings: Any) -> Graph:
    """`gated`, with all its values encrypted, registered as `secret`."""
    flow = Graph("secret", input=Order, state=Ledger, encrypted=True, **settings)
    flow.node(
        effect="human",
        gate=Gate(reviewers=["group:claims"], title="Pay {input.number}?"),
    )(propose)
    flow.node(effect="external", idempotent=True)(release)
    flow.node()(refuse)
    flow.edge(START, "propose")
    flow.edge("propose", "release", when=("approved", "partial"))
    flow.edge("propose", "refuse", when="rejected")
    flow.edge("release", END)
    flow.edge("refuse", END)
    registry.replace(flow)
    return flow


def a_full_run(folder: Path, reviewer: Any, *, graph: str = "gated") -> Run:
    """A run of `gated`: proposed, edited, signed, applied, paid; and a late result
    beside.
    """
    run = run_actions.start(graph, folder, by=reviewer)
    run_actions.sign(
        run,
        run_actions.reviewer(reviewer),
        [("edit", {"amount": "9"}), "reject", "approve", "approve"],
    )
    claim = leases.claim_one(run.id)
    assert claim is not None
    lease = leases.begin_lease(claim.id, claim.epoch)
    assert lease is not None
    journal.keep_late_results(
        lease, [Ending(Task("release", 1), 1, "done", {"writes": []})]
    )
    leases.give_back(lease.id, lease.epoch)
    return runs.advance(run.id)


@contextmanager
def behind_everybody() -> Iterator[None]:
    """Neither triggers nor foreign keys hold, as for whoever owns the database."""
    postgresql = connection.vendor == "postgresql"
    off = "SET session_replication_role = replica"
    on = "SET session_replication_role = origin"
    if not postgresql:
        off = "PRAGMA foreign_keys = OFF"
        on = "PRAGMA foreign_keys = ON"
    with append_only.triggers_lifted():
        run_sql(off)
        try:
            yield
        finally:
            run_sql(on)


def columns(model: type[Model]) -> list[Any]:
    """All columns of a table."""
    return list(model._meta.concrete_fields)


@contextmanager
def changed(row: Model, field: Any) -> Iterator[Any]:
    """One column of a row changed by SQL while the block runs. Gives its value now."""
    now = another(field, getattr(row, field.attname))
    with replaced(row, field, now):
        yield now


@contextmanager
def replaced(row: Model, field: Any, value: Any) -> Iterator[None]:
    """One column of a row holds this value while the block runs."""
    was = getattr(row, field.attname)
    pk: Any = row._meta.pk
    put(row, field, value)
    try:
        yield
    finally:
        put(row, field, was, pk=value if field is pk else None)


def put(row: Model, field: Any, value: Any, *, pk: Any = None) -> None:
    """Set one column of a row by SQL. `pk` is given where it is not the row's any more."""
    quote = connection.ops.quote_name
    key = row._meta.pk
    table, column, id_column = (
        quote(name) for name in (row._meta.db_table, field.column, str(key.column))
    )
    with behind_everybody():
        changed = run_sql(
            f"UPDATE {table} SET {column} = %s WHERE {id_column} = %s",
            field.get_db_prep_save(value, connection),
            key.get_db_prep_value(row.pk if pk is None else pk, connection),
        )
    assert changed == 1, f"{table}.{column}"


def remove(row: Model) -> None:
    """Delete one row by SQL."""
    quote = connection.ops.quote_name
    key = row._meta.pk
    table = quote(row._meta.db_table)
    id_column = quote(str(key.column))
    with behind_everybody():
        assert run_sql(
            f"DELETE FROM {table} WHERE {id_column} = %s",
            key.get_db_prep_value(row.pk, connection),
        )


def another(field: "Field[Any, Any]", value: Any) -> Any:
    """A value of the column's type that is not the one given."""
    if isinstance(field, ForeignKey):
        return _other_target(field, value)
    kind = field.get_internal_type()
    if isinstance(field, JSONField):
        return [*value, 1] if isinstance(value, list) else {**(value or {}), "more": 1}
    if kind == "UUIDField":
        return uuid4()
    if kind == "DateTimeField":
        return (
            value or datetime.fromisoformat("2026-01-01T00:00:00+00:00")
        ) + timedelta(seconds=1)
    if kind == "BooleanField":
        return not value
    if kind == "BinaryField":
        stored_bytes = bytes(value or b"")
        return (
            stored_bytes[:-1] + bytes([stored_bytes[-1] ^ 1])
            if stored_bytes
            else b"\x01null"
        )
    if isinstance(value, str):
        return (value[:-1] + ("x" if value[-1:] != "x" else "y")) if value else "x"
    return (value or 0) + 1000


def _other_target(field: "ForeignKey[Any, Any]", value: Any) -> Any:
    model: Any = field.related_model
    target = model._base_manager.exclude(pk=value).values_list("pk", flat=True).first()
    if target is None:
        assert field.null, f"there is no other {model.__name__} to point to"
    return target
