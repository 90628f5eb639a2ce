"""Rows changed for a test: as the product might have written them, so sealed anew, or
by hand, as an intruder would.
"""

from typing import Any

from django.db import connection
from django.db.models import Model

from approvals import append_only
from checkpoints.models import Run
from checkpoints.sealing import sealed_rows


def rewrite(row: Model, **values: Any) -> None:
    """The row with other values, sealed as if it had been written so. Payloads are
    given packed, plain.
    """
    run = Run.objects.get(id=getattr(row, "run_id", None) or getattr(row, "run", None))
    names = sealed_rows.seal_again(row, sealed_rows.protection_of(run), **values)
    type(row)._base_manager.filter(pk=row.pk).update(
        **{name: getattr(row, name) for name in names}
    )


def reseal(row: Model, **values: Any) -> None:
    """A row of the installation with other values, sealed as if it had been written so."""
    for name, value in values.items():
        setattr(row, name, value)
    sealed_rows.seal(row, sealed_rows.PLAIN)
    tamper(row, **values, seal=row.seal, seal_key=row.seal_key)  # type: ignore[attr-defined]


def tamper(row: Model, **values: Any) -> None:
    """Other values in a row's columns, written past everything that watches over them."""
    with append_only.triggers_lifted():
        type(row)._base_manager.filter(pk=row.pk).update(**values)


def remove(row: Model) -> None:
    """Delete a row by SQL, past the triggers."""
    table = connection.ops.quote_name(row._meta.db_table)
    pk = row._meta.pk.get_db_prep_value(row.pk, connection)  # type: ignore[union-attr]
    with append_only.triggers_lifted(), connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {table} WHERE id = %s", [pk])  # noqa: S608
