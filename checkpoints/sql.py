"""Statements that are written at every superstep, built from the models' own fields without the ORM's compilers, which
would cost more than the commit; and what the ORM lacks: an UPDATE that returns columns. Used by leases, ledger, worker.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection
from django.db.models import Model
from django.db.models.sql import UpdateQuery

MOST_ROWS = 500
"""Rows of one INSERT: SQLite takes some 32,000 parameters a statement."""


def update_returning(
    model: type[Model], where: Mapping[str, Any], returning: Sequence[str], **values: Any
) -> list[tuple[Any, ...]]:
    """Update the rows whose fields equal `where`, and give the named fields of those updated, as they are now.

    `values` are as for `QuerySet.update`, expressions included. No row means that the condition did not hold.
    """
    quote, table = connection.ops.quote_name, connection.ops.quote_name(model._meta.db_table)
    assigned = {name: _assigned(model, name, value) for name, value in values.items()}
    sets = ", ".join(f"{quote(_field(model, name).column)} = {sql}" for name, (sql, _) in assigned.items())
    wheres = " AND ".join(f"{quote(_field(model, name).column)} = %s" for name in where)
    columns = ", ".join(quote(_field(model, name).column) for name in returning)
    params = [param for _, given in assigned.values() for param in given]
    params += [_field(model, name).get_db_prep_value(value, connection) for name, value in where.items()]
    with connection.cursor() as cursor:
        # Names come from the models; every value is a parameter.
        cursor.execute(f"UPDATE {table} SET {sets} WHERE {wheres} RETURNING {columns}", params)  # noqa: S608
        return [_converted(model, returning, row) for row in cursor.fetchall()]


def insert(model: type[Model], rows: Sequence[Model]) -> None:
    """Insert new rows as they are, all fields given: no defaults, no signals, no generated ids read back."""
    fields: list[Any] = [field for field in model._meta.concrete_fields if not field.generated and not _auto(field)]
    names = ", ".join(connection.ops.quote_name(field.column) for field in fields)
    one = f"({', '.join(['%s'] * len(fields))})"
    table = connection.ops.quote_name(model._meta.db_table)
    for begin in range(0, len(rows), MOST_ROWS):
        some = rows[begin : begin + MOST_ROWS]
        params = [f.get_db_prep_save(getattr(row, f.attname), connection) for row in some for f in fields]
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES {', '.join([one] * len(some))}", params)  # noqa: S608


def _auto(field: Any) -> bool:
    """Whether the database makes the value."""
    return bool(getattr(field, "db_returning", False) and field.primary_key)


def _field(model: type[Model], name: str) -> Any:
    return model._meta.get_field(name)


def _assigned(model: type[Model], name: str, value: Any) -> tuple[str, Sequence[Any]]:
    """The right side of an assignment and its parameters."""
    if not hasattr(value, "resolve_expression"):
        return "%s", [_field(model, name).get_db_prep_save(value, connection)]
    query = UpdateQuery(model)
    compiler: Any = query.get_compiler(connection=connection)
    sql, params = compiler.compile(value.resolve_expression(query, allow_joins=False, for_save=True))
    return sql, list(params)


def _converted(model: type[Model], names: Sequence[str], row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_python(_field(model, name), value) for name, value in zip(names, row, strict=True))


def _python(field: Any, value: Any) -> Any:
    """What the ORM would give for a stored value: UUIDs and times are text on SQLite, binary is a memoryview on
    PostgreSQL.
    """
    column = field.get_col(field.model._meta.db_table)
    for convert in connection.ops.get_db_converters(column) + field.get_db_converters(connection):
        value = convert(value, column, connection)
    return bytes(value) if isinstance(value, memoryview) else value
