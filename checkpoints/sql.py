"""The one statement that Django's ORM lacks: a conditional UPDATE that returns columns. Used by leases and ledger."""

from typing import Any

from django.db import connection
from django.db.models import Model, QuerySet
from django.db.models.sql import UpdateQuery


def update_returning(rows: "QuerySet[Any]", returning: list[str], **values: Any) -> list[tuple[Any, ...]]:
    """Update the rows and give the named columns of those that were updated, as they are now. One statement.

    `values` are as for `QuerySet.update`, expressions included. No row means that the condition did not hold.
    """
    query: Any = rows.query.chain(UpdateQuery)
    query.add_update_values(values)
    sql, params = query.get_compiler(connection=connection).as_sql()
    with connection.cursor() as cursor:
        cursor.execute(f"{sql} RETURNING {_columns(rows.model, returning)}", params)
        return [_converted(rows.model, returning, row) for row in cursor.fetchall()]


def _columns(model: type[Model], names: list[str]) -> str:
    fields: list[Any] = [model._meta.get_field(name) for name in names]
    return ", ".join(connection.ops.quote_name(field.column) for field in fields)


def _converted(model: type[Model], names: list[str], row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_python(model._meta.get_field(name), value) for name, value in zip(names, row, strict=True))


def _python(field: Any, value: Any) -> Any:
    """What the ORM would give for a stored value: UUIDs and times are text on SQLite, binary is a memoryview on
    PostgreSQL.
    """
    column = field.get_col(field.model._meta.db_table)
    for convert in connection.ops.get_db_converters(column) + field.get_db_converters(connection):
        value = convert(value, column, connection)
    return bytes(value) if isinstance(value, memoryview) else value
