"""Statements that are written at every superstep, built from the models' own fields without the ORM's compilers, which
would cost more than the commit; and what the ORM lacks: an UPDATE that returns columns. Used by leases, ledger, worker.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import JSONField, Model, Value
from django.db.models.sql import UpdateQuery
from django.utils import timezone

from checkpoints.db.clock import STANDS_FOR_NOW
from checkpoints.db.rows import AS_IT_IS, from_driver, json_to_driver, to_driver
from orchestrator.engine.frozen import frozen

Shared = tuple[tuple[str, str], ...]
"""Attributes of a row that equal a field of another one, and which."""
Statement = tuple[str, list[Any]]
"""A text and its parameters."""
Texts = tuple[tuple[str, str], ...]
"""Fields, and of each what stands behind its column: a value to assign, or a condition."""

_EXPRESSION = "resolve_expression"
_STANDS_FOR_NOW = str(STANDS_FOR_NOW.replace(tzinfo=None))
"""As it is among the parameters of SQLite, the one place where it is a parameter."""

MOST_ROWS = 500
"""Rows of one INSERT: SQLite takes some 32,000 parameters a statement."""


@frozen
class Update:
    """An UPDATE of the rows whose fields equal `where` (None: are null); `values` are as for `QuerySet.update`,
    expressions included.
    """

    model: type[Model]
    where: Mapping[str, Any]
    values: Mapping[str, Any]

    def sql(self, vendor: str, *, returning: tuple[str, ...] = (), met: Texts = ()) -> Statement:
        """The statement, of those that also meet `met`. Names come from the models; every value is a parameter."""
        as_it_is = AS_IT_IS[vendor]
        texts: list[tuple[str, str]] = []
        params: list[Any] = []
        for name, value in self.values.items():
            if value is None:
                texts.append((name, "NULL"))
                continue
            if type(value) in as_it_is:
                texts.append((name, "%s"))
                params.append(value)
                continue
            text, more = assignment_sql(self.model, name, value, vendor)
            texts.append((name, text))
            params += more
        for value in self.where.values():
            if value is not None:
                params.append(value if type(value) in as_it_is else to_driver(value, vendor))
        where = [(name, "IS NULL" if value is None else "= %s") for name, value in self.where.items()]
        return update_sql(self.model, tuple(texts), (*met, *where), returning), params


def update_returning(
    model: type[Model], where: Mapping[str, Any], returning: Sequence[str], **values: Any
) -> list[Sequence[Any]]:
    """Execute an `Update`. Returns the named fields of the updated rows as they are now; no row means that the
    condition did not hold.
    """
    now = connections[DEFAULT_DB_ALIAS]
    with now.cursor() as cursor:
        cursor.execute(*Update(model, where, values).sql(now.vendor, returning=tuple(returning)))
        return from_driver(model, returning, cursor.fetchall(), now.vendor)


def insert_rows(model: type[Model], rows: Sequence[Model]) -> None:
    """Insert new rows as they are, all fields given: no defaults, no signals, no generated ids read back."""
    now = connections[DEFAULT_DB_ALIAS]
    with now.cursor() as cursor:
        for text, params in insert_statements(model, rows, now.vendor):
            cursor.execute(text, params)


def insert_while(
    row: Model,
    held: type[Model],
    where: Mapping[str, Any],
    *,
    lock: bool = True,
    using: BaseDatabaseWrapper | None = None,
) -> bool:
    """Insert a new row if there is one of `held` whose fields equal `where`, which stays so until the transaction ends:
    on PostgreSQL that row is locked against changes, without `lock` it is not; on SQLite whoever inserts is the only
    one who writes. One statement, on the connection `using` where one is given. False: there is none, and nothing was
    inserted.
    """
    now, model = using or connections[DEFAULT_DB_ALIAS], type(row)
    params = params_of(model, [row], now.vendor) + [to_driver(value, now.vendor) for value in where.values()]
    with now.cursor() as cursor:
        cursor.execute(_insert_while_sql(model, held, tuple(where), now.vendor, lock), params)
        return bool(cursor.rowcount)


@lru_cache(maxsize=500)
def _insert_while_sql(model: type[Model], held: type[Model], names: tuple[str, ...], vendor: str, lock: bool) -> str:
    # In a SELECT nothing but a cast tells the type of a parameter.
    places = [f"%s::{one.cast}" if vendor == "postgresql" else "%s" for one in columns_of(model)]
    met = " AND ".join(f"{column(held, name)} = %s" for name in names)
    locked = " FOR SHARE" if lock and vendor == "postgresql" else ""
    into = f"INSERT INTO {quoted(model._meta.db_table)} ({names_of(model)})"
    return f"{into} SELECT {', '.join(places)} FROM {quoted(held._meta.db_table)} WHERE {met}{locked}"  # noqa: S608


def insert_statements(model: type[Model], rows: Sequence[Model], vendor: str) -> list[Statement]:
    parts = [rows[begin : begin + MOST_ROWS] for begin in range(0, len(rows), MOST_ROWS)]
    return [(_insert_sql(model, len(part)), params_of(model, part, vendor)) for part in parts]


@frozen
class _Column:
    """A column that an INSERT gives: its name, its attribute on a row, its type for a cast, how a value is adapted."""

    name: str
    attname: str
    cast: str
    adapt: Callable[[Any, str], Any]


@cache
def columns_of(model: type[Model], shared: Shared = ()) -> tuple[_Column, ...]:
    """The columns that an INSERT gives, but for those that come from the fence."""
    fields: list[Any] = [f for f in model._meta.concrete_fields if not f.generated and not _auto(f)]
    return tuple(
        _Column(f.column, f.attname, cast(model, f.name), json_to_driver if isinstance(f, JSONField) else to_driver)
        for f in fields
        if f.attname not in dict(shared)
    )


def cast(model: type[Model], name: str) -> str:
    """The type for a cast, without a length: a cast to a length would cut silently, where an insert refuses."""
    field = field_of(model, name)
    kind = field.rel_db_type(connection) if field.is_relation else field.db_type(connection)
    return str(kind).partition("(")[0]


@cache
def names_of(model: type[Model], shared: Shared = ()) -> str:
    """The columns of an INSERT, those that come from the fence last."""
    own = [quoted(column.name) for column in columns_of(model, shared)]
    return ", ".join([*own, *(column(model, attname.removesuffix("_id")) for attname, _ in shared)])


@lru_cache(maxsize=500)
def _insert_sql(model: type[Model], rows: int) -> str:
    values = values_sql(rows, ["%s"] * len(columns_of(model)))
    return f"INSERT INTO {quoted(model._meta.db_table)} ({names_of(model)}) VALUES {values}"  # noqa: S608


def values_sql(rows: int, places: Sequence[str]) -> str:
    """The rows of a VALUES list, of such places of parameters each."""
    return ", ".join([f"({', '.join(places)})"] * rows)


@lru_cache(maxsize=500)
def update_sql(model: type[Model], sets: Texts, where: Texts, returning: tuple[str, ...] = (), given: str = "") -> str:
    """The text of an UPDATE, which may take values from a relation."""
    assigned = ", ".join(f"{column(model, name)} = {text}" for name, text in sets)
    met = " AND ".join(f"{column(model, name)} {text}" for name, text in where)
    source = f" FROM {given}" if given else ""
    told = f" RETURNING {', '.join(column(model, name) for name in returning)}" if returning else ""
    return f"UPDATE {quoted(model._meta.db_table)} SET {assigned}{source} WHERE {met}{told}"  # noqa: S608


def column(model: type[Model], name: str) -> str:
    return quoted(field_of(model, name).column)


@cache
def quoted(name: str) -> str:
    return connection.ops.quote_name(name)


def params_of(model: type[Model], rows: Sequence[Model], vendor: str, shared: Shared = ()) -> list[Any]:
    """The parameters of an INSERT: the rows' values as they are, but for the columns whose kind needs adapting."""
    values, special = values_of(model, vendor, shared)
    params: list[Any] = []
    for row in rows:
        given = list(values(row))
        for at, adapt in special:
            if adapt is not to_driver or type(given[at]) is not str:
                given[at] = adapt(given[at], vendor)
        params += given
    return params


@cache
def values_of(
    model: type[Model], vendor: str, shared: Shared
) -> tuple[Callable[[Model], tuple[Any, ...]], list[tuple[int, Callable[[Any, str], Any]]]]:
    """What reads all columns of a row, and which of them a driver does not take as they are."""
    columns = columns_of(model, shared)
    special = [(n, column.adapt) for n, column in enumerate(columns) if column.cast not in _TAKEN[vendor]]
    return attrgetter(*(column.attname for column in columns)), special


_WHOLE = ("integer", "smallint", "bigint", "integer unsigned", "smallint unsigned", "bigint unsigned")
_TAKEN = {
    "sqlite": frozenset({*_WHOLE, "bool", "BLOB"}),
    "postgresql": frozenset({*_WHOLE, "boolean", "bytea", "uuid", "timestamp with time zone"}),
}
"""Types of columns, by vendor, whose values a driver takes as they are. Text is not among them: it may come as a member
of an enumeration, which a driver may take by its name.
"""


def _auto(field: Any) -> bool:
    """Whether the database makes the value."""
    return bool(getattr(field, "db_returning", False) and field.primary_key)


@cache
def field_of(model: type[Model], name: str) -> Any:
    return model._meta.get_field(name)


def field_to_driver(model: type[Model], name: str, value: Any, vendor: str) -> Any:
    return json_to_driver(value, vendor) if isinstance(field_of(model, name), JSONField) else to_driver(value, vendor)


def assignment_sql(model: type[Model], name: str, value: Any, vendor: str) -> tuple[str, Sequence[Any]]:
    """The right side of an assignment to a field, an expression or a value, and its parameters."""
    given = value.value if type(value) is Value else value
    if not hasattr(given, _EXPRESSION):
        return "%s", [field_to_driver(model, name, given, vendor)]
    text, params = _computed(model, name, given)
    return text, [to_driver(timezone.now(), vendor) if one == _STANDS_FOR_NOW else one for one in params]


@lru_cache(maxsize=500)
def _computed(model: type[Model], name: str, value: Any) -> tuple[str, Sequence[Any]]:
    """An expression on the right side of an assignment to a field, and its parameters. Expressions are equal where all
    that they are made of is; the field keeps those apart whose values are equal and of another type (1 and True).
    """
    query = UpdateQuery(model)
    compiler: Any = query.get_compiler(connection=connection)
    sql, params = compiler.compile(value.resolve_expression(query, allow_joins=False, for_save=True))
    return sql, list(params)
