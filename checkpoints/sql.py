"""Statements that are written at every superstep, built from the models' own fields without the ORM's compilers, which
would cost more than the commit; and what the ORM lacks: an UPDATE that returns columns. Used by leases, ledger, worker.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

import orjson
from django.db import connection
from django.db.models import JSONField, Model
from django.db.models.sql import UpdateQuery

MOST_ROWS = 500
"""Rows of one INSERT: SQLite takes some 32,000 parameters a statement."""


@dataclass(frozen=True, slots=True)
class Update:
    """An UPDATE of the rows whose fields equal `where`; `values` are as for `QuerySet.update`, expressions included."""

    model: type[Model]
    where: Mapping[str, Any]
    returning: Sequence[str]
    values: Mapping[str, Any]

    def sql(self) -> tuple[str, list[Any]]:
        """Names come from the models; every value is a parameter."""
        quote, vendor = connection.ops.quote_name, connection.vendor
        assigned = {name: _assigned(self.model, name, value) for name, value in self.values.items()}
        sets = ", ".join(f"{quote(_field(self.model, name).column)} = {sql}" for name, (sql, _) in assigned.items())
        wheres = " AND ".join(f"{quote(_field(self.model, name).column)} = %s" for name in self.where)
        columns = ", ".join(quote(_field(self.model, name).column) for name in self.returning)
        params = [param for _, given in assigned.values() for param in given]
        params += [_plain(value, vendor) for value in self.where.values()]
        table = quote(self.model._meta.db_table)
        return f"UPDATE {table} SET {sets} WHERE {wheres} RETURNING {columns}", params  # noqa: S608

    def converted(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """The returned rows as the ORM would give them."""
        return [_converted(self.model, self.returning, row) for row in rows]


def update_returning(
    model: type[Model], where: Mapping[str, Any], returning: Sequence[str], **values: Any
) -> list[tuple[Any, ...]]:
    """Do an `Update`, and give the named fields of the updated rows as they are now. No row means that the condition
    did not hold.
    """
    update = Update(model, where, returning, values)
    with connection.cursor() as cursor:
        cursor.execute(*update.sql())
        return update.converted(cursor.fetchall())


def insert(model: type[Model], rows: Sequence[Model]) -> None:
    """Insert new rows as they are, all fields given: no defaults, no signals, no generated ids read back."""
    for begin in range(0, len(rows), MOST_ROWS):
        some = rows[begin : begin + MOST_ROWS]
        with connection.cursor() as cursor:
            cursor.execute(_insert_sql(model, len(some), connection.vendor), _params(model, some))


def fenced(
    fence: Update, rows: Sequence[tuple[type[Model], Sequence[Model]]], *, gone: Model | None = None
) -> list[tuple[Any, ...]]:
    """The update; and where it met a row, these inserts, after `gone` is deleted. Gives what `update_returning` gives.

    PostgreSQL does it in one statement, so outside of a transaction it is one round trip and one commit; elsewhere the
    caller has a transaction open, and ends it where nothing is returned.
    """
    if connection.vendor == "postgresql" and sum(len(some) for _, some in rows) <= MOST_ROWS:
        return _in_one_statement(fence, rows, gone)
    met = update_returning(fence.model, fence.where, fence.returning, **fence.values)
    if met:
        if gone is not None:
            type(gone)._base_manager.filter(pk=gone.pk).delete()
        for model, some in rows:
            insert(model, some)
    return met


def _in_one_statement(
    fence: Update, rows: Sequence[tuple[type[Model], Sequence[Model]]], gone: Model | None
) -> list[tuple[Any, ...]]:
    quote = connection.ops.quote_name
    sql, params = fence.sql()
    parts = [f"fence AS ({sql})"]
    # Parts of one statement run in no given order; to read what `gone` returns is to wait for it.
    after = "fence"
    if gone is not None:
        table = quote(gone._meta.db_table)
        parts.append(f"gone AS (DELETE FROM {table} USING fence WHERE {table}.id = %s RETURNING 1)")  # noqa: S608
        params.append(gone.pk)
        after = "fence CROSS JOIN (SELECT count(*) FROM gone) AS waited"
    for n, (model, some) in enumerate(rows):
        if some:
            values = _values_sql(model, len(some))
            into = f"INSERT INTO {quote(model._meta.db_table)} ({_names(model)})"
            parts.append(f"rows{n} AS ({into} SELECT given.* FROM (VALUES {values}) AS given CROSS JOIN {after})")  # noqa: S608
            params += _params(model, some)
    columns = ", ".join(quote(_field(fence.model, name).column) for name in fence.returning)
    with connection.cursor() as cursor:
        cursor.execute(f"WITH {', '.join(parts)} SELECT {columns} FROM fence", params)  # noqa: S608
        return fence.converted(cursor.fetchall())


@dataclass(frozen=True, slots=True)
class _Column:
    """A column that an INSERT gives: its name, its attribute on a row, its type for a cast, how a value is adapted."""

    name: str
    attname: str
    cast: str
    adapt: Callable[[Any, str], Any]


@cache
def _columns(model: type[Model]) -> tuple[_Column, ...]:
    fields: list[Any] = [f for f in model._meta.concrete_fields if not f.generated and not _auto(f)]
    return tuple(_Column(f.column, f.attname, _cast(f), _json if isinstance(f, JSONField) else _plain) for f in fields)


def _cast(field: Any) -> str:
    """The type for a cast, without a length: a cast to a length would cut silently, where an insert refuses."""
    kind = field.rel_db_type(connection) if field.is_relation else field.db_type(connection)
    return str(kind).partition("(")[0]


@cache
def _names(model: type[Model]) -> str:
    return ", ".join(connection.ops.quote_name(column.name) for column in _columns(model))


@cache
def _insert_sql(model: type[Model], rows: int, vendor: str) -> str:
    table = connection.ops.quote_name(model._meta.db_table)
    one = f"({', '.join(['%s'] * len(_columns(model)))})"
    return f"INSERT INTO {table} ({_names(model)}) VALUES {', '.join([one] * rows)}"  # noqa: S608


@cache
def _values_sql(model: type[Model], rows: int) -> str:
    """Rows of a VALUES list with casts: in a SELECT nothing else tells the types of parameters."""
    one = f"({', '.join(f'%s::{column.cast}' for column in _columns(model))})"
    return ", ".join([one] * rows)


def _params(model: type[Model], rows: Sequence[Model]) -> list[Any]:
    vendor, columns = connection.vendor, _columns(model)
    return [column.adapt(getattr(row, column.attname), vendor) for row in rows for column in columns]


def _plain(value: Any, vendor: str) -> Any:
    """A value as the driver takes it. SQLite keeps ids as hex and times as text, like the ORM."""
    kind = type(value)
    if kind is UUID:
        return value.hex if vendor == "sqlite" else value
    if kind is datetime:
        return str(value.astimezone(UTC).replace(tzinfo=None)) if vendor == "sqlite" else value
    # Members of text enumerations: a driver may take them by name.
    return str.__str__(value) if kind is not str and isinstance(value, str) else value


def _json(value: Any, vendor: str) -> Any:
    return None if value is None else orjson.dumps(value).decode()


def _auto(field: Any) -> bool:
    """Whether the database makes the value."""
    return bool(getattr(field, "db_returning", False) and field.primary_key)


def _field(model: type[Model], name: str) -> Any:
    return model._meta.get_field(name)


def _assigned(model: type[Model], name: str, value: Any) -> tuple[str, Sequence[Any]]:
    """The right side of an assignment and its parameters."""
    if not hasattr(value, "resolve_expression"):
        adapt = _json if isinstance(_field(model, name), JSONField) else _plain
        return "%s", [adapt(value, connection.vendor)]
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
