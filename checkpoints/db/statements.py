"""Statements that are written at every superstep, built from the models' own fields
without the ORM's compilers, which would cost more than the commit; and what the ORM
lacks: an UPDATE that returns columns. Used by leases, ledger, worker.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import JSONField, Model, Value
from django.db.models.sql import UpdateQuery
from django.utils import timezone

from checkpoints.db.clock import STANDS_FOR_NOW
from checkpoints.db.rows import (
    AS_IT_IS,
    TEXTS,
    from_driver,
    json_to_driver,
    to_driver,
    to_driver_all,
)
from orchestrator.engine.frozen import frozen

Shared = tuple[tuple[str, str], ...]
"""Attributes of a row that equal a field of another one, and which."""
Statement = tuple[str, list[Any]]
"""A text and its parameters."""
Texts = tuple[tuple[str, str], ...]
"""Fields, each with the text after its column: a value to assign, or a condition."""

# The method by which Django distinguishes an expression from a value.
_EXPRESSION = "resolve_expression"
_STANDS_FOR_NOW = str(STANDS_FOR_NOW.replace(tzinfo=None))
"""Its form among the parameters of SQLite, the one database where it is a parameter."""

MOST_ROWS = 500
"""The most rows of one INSERT: SQLite takes some 32,000 parameters a statement."""


@frozen
class Update:
    """An UPDATE of the rows whose fields equal `where` (None: are null); `values` are
    as for `QuerySet.update`, expressions included.
    """

    model: type[Model]
    where: Mapping[str, Any]
    values: Mapping[str, Any]

    def sql(
        self, vendor: str, *, returning: tuple[str, ...] = (), met: Texts = ()
    ) -> Statement:
        """Return the statement, for rows that also meet `met`. Names come from the
        models; every value is a parameter.
        """
        as_it_is = AS_IT_IS[vendor]
        texts: list[tuple[str, str]] = []
        params: list[Any] = []
        # Most values are plain, and their text is known without a look at the field.
        for name, value in self.values.items():
            if value is None:
                texts.append((name, "NULL"))
                continue
            if type(value) in as_it_is:
                texts.append((name, "%s"))
                params.append(value)
                continue
            if type(value) in TEXTS:
                texts.append((name, "%s"))
                params.append(TEXTS[type(value)](value))
                continue
            text, value_params = assignment_sql(self.model, name, value, vendor)
            texts.append((name, text))
            params += value_params

        # The parameters stand in the order of the text: those of SET come first.
        where = []
        for name, value in self.where.items():
            if value is None:
                where.append((name, "IS NULL"))
                continue
            where.append((name, "= %s"))
            kind = type(value)
            if kind in as_it_is:
                params.append(value)
            elif kind in TEXTS:
                params.append(TEXTS[kind](value))
            else:
                params.append(to_driver(value, vendor))
        return update_sql(self.model, tuple(texts), (*met, *where), returning), params


def update_returning(
    model: type[Model],
    where: Mapping[str, Any],
    returning: Sequence[str],
    **values: Any,
) -> list[Sequence[Any]]:
    """Execute an `Update`. Returns the named fields of the updated rows as they are
    now; no row means that the condition did not hold.
    """
    database = connections[DEFAULT_DB_ALIAS]
    update = Update(model, where, values)
    text, params = update.sql(database.vendor, returning=tuple(returning))
    with database.cursor() as cursor:
        cursor.execute(text, params)
        return from_driver(model, returning, cursor.fetchall(), database.vendor)


def update_rows(model: type[Model], where: Mapping[str, Any], **values: Any) -> int:
    """Execute an `Update`. Returns how many rows it changed."""
    database = connections[DEFAULT_DB_ALIAS]
    text, params = Update(model, where, values).sql(database.vendor)
    with database.cursor() as cursor:
        cursor.execute(text, params)
        return int(cursor.rowcount)


def insert_rows(model: type[Model], rows: Sequence[Model]) -> None:
    """Insert new rows as they are, all fields given: no defaults, no signals, no
    generated ids read back.
    """
    database = connections[DEFAULT_DB_ALIAS]
    with database.cursor() as cursor:
        for text, params in insert_statements(model, rows, database.vendor):
            cursor.execute(text, params)


def copy_rows(model: type[Model], rows: Sequence[Model]) -> None:
    """Insert new rows as `insert_rows` does, thousands at once: on PostgreSQL by one
    COPY, since the parameters of so long an INSERT take the driver longer than the
    database.
    """
    database = connections[DEFAULT_DB_ALIAS]
    if database.vendor != "postgresql":
        insert_rows(model, rows)
        return
    table = quoted(model._meta.db_table)
    text = f"COPY {table} ({names_of(model)}) FROM STDIN"
    # Django has no COPY, and translates only the errors of statements that it sends.
    errors = database.wrap_database_errors
    with database.cursor() as cursor, errors, cursor.copy(text) as copy:
        for row in rows:
            copy.write_row(params_of(model, [row], database.vendor))


def insert_row(row: Model, *, unless: str = "") -> bool:
    """Insert a new row as `insert_rows` does. Values may be expressions, such as the
    moment of the statement; the row has what they were then. Returns False where
    another row has the same value of the unique field `unless`, and nothing was
    inserted.
    """
    database = connections[DEFAULT_DB_ALIAS]
    model = type(row)
    columns = columns_of(model)
    places = ["%s"] * len(columns)
    params: list[Any] = []
    expressed: list[str] = []
    for position, column in enumerate(columns):
        value = getattr(row, column.attname)
        if hasattr(value, _EXPRESSION):
            text, value_params = assignment_sql(
                model, column.attname, value, database.vendor
            )
            places[position] = text
            params += value_params
            expressed.append(column.attname)
        else:
            params.append(column.adapt(value, database.vendor))

    # Something is returned in any case: a row that was not inserted returns nothing.
    returned = tuple(expressed) or (model._meta.pk.attname,)
    text = _insert_row_sql(model, tuple(places), returned, unless)
    with database.cursor() as cursor:
        cursor.execute(text, params)
        records = from_driver(model, returned, cursor.fetchall(), database.vendor)
    for record in records:
        row.__dict__.update(zip(returned, record, strict=True))
    return bool(records)


@lru_cache(maxsize=500)
def _insert_row_sql(
    model: type[Model],
    places: tuple[str, ...],
    returned: tuple[str, ...],
    unless: str,
) -> str:
    table = quoted(model._meta.db_table)
    values = ", ".join(places)
    insert = f"INSERT INTO {table} ({names_of(model)}) VALUES ({values})"  # noqa: S608
    if unless:
        insert += f" ON CONFLICT ({column(model, unless)}) DO NOTHING"
    columns = ", ".join(column(model, name) for name in returned)
    return f"{insert} RETURNING {columns}"


def insert_while(
    row: Model,
    held: type[Model],
    where: Mapping[str, Any],
    *,
    lock: bool = True,
    using: BaseDatabaseWrapper | None = None,
) -> bool:
    """Insert a new row if there is one of `held` whose fields equal `where`, which
    stays so until the transaction ends: on PostgreSQL that row is locked against
    changes, without `lock` it is not; on SQLite the transaction that inserts is the
    only one that writes. One statement, on the connection `using` if one is given.
    Returns False if there is none, and nothing was inserted.
    """
    database = using or connections[DEFAULT_DB_ALIAS]
    vendor = database.vendor
    model = type(row)
    params = params_of(model, [row], vendor)
    params += to_driver_all(where.values(), vendor)
    text = _insert_while_sql(model, held, tuple(where), vendor, lock)
    with database.cursor() as cursor:
        cursor.execute(text, params)
        return bool(cursor.rowcount)


@lru_cache(maxsize=500)
def _insert_while_sql(
    model: type[Model],
    held: type[Model],
    names: tuple[str, ...],
    vendor: str,
    lock: bool,
) -> str:
    columns = columns_of(model)
    places = ["%s"] * len(columns)
    locked = ""
    if vendor == "postgresql":
        # In a SELECT nothing but a cast gives the type of a parameter.
        places = [f"%s::{column.cast}" for column in columns]
        locked = " FOR SHARE" if lock else ""
    met = " AND ".join(f"{column(held, name)} = %s" for name in names)
    return (
        f"INSERT INTO {quoted(model._meta.db_table)} ({names_of(model)}) "  # noqa: S608
        f"SELECT {', '.join(places)} FROM {quoted(held._meta.db_table)} "
        f"WHERE {met}{locked}"
    )


def insert_statements(
    model: type[Model], rows: Sequence[Model], vendor: str
) -> list[Statement]:
    """Return the statements that insert these rows, `MOST_ROWS` each."""
    batch = []
    for begin in range(0, len(rows), MOST_ROWS):
        part = rows[begin : begin + MOST_ROWS]
        params = params_of(model, part, vendor)
        batch.append((_insert_sql(model, len(part)), params))
    return batch


@frozen
class _Column:
    """A column that an INSERT sets: its name, its attribute on a row, its type for a
    cast, and the function that adapts a value.
    """

    name: str
    attname: str
    cast: str
    adapt: Callable[[Any, str], Any]


@cache
def columns_of(model: type[Model], shared: Shared = ()) -> tuple[_Column, ...]:
    """Return the columns that an INSERT sets, without those from the fence."""
    from_fence = dict(shared)
    fields: list[Any] = list(model._meta.concrete_fields)
    columns = []
    for field in fields:
        is_made_by_database = field.generated or _is_auto(field)
        if is_made_by_database or field.attname in from_fence:
            continue
        adapt = json_to_driver if isinstance(field, JSONField) else to_driver
        field_type = cast(model, field.name)
        columns.append(_Column(field.column, field.attname, field_type, adapt))
    return tuple(columns)


def cast(model: type[Model], name: str) -> str:
    """Return the type for a cast, without a length: a cast to a length would cut
    silently, where an insert refuses.
    """
    field = field_of(model, name)
    db_type = field.rel_db_type if field.is_relation else field.db_type
    return str(db_type(connection)).partition("(")[0]


@cache
def names_of(model: type[Model], shared: Shared = ()) -> str:
    """Return the columns of an INSERT, those that come from the fence last."""
    names = [quoted(column.name) for column in columns_of(model, shared)]
    for attname, _ in shared:
        names.append(column(model, attname.removesuffix("_id")))
    return ", ".join(names)


@lru_cache(maxsize=500)
def _insert_sql(model: type[Model], rows: int) -> str:
    values = values_sql(rows, ["%s"] * len(columns_of(model)))
    table = quoted(model._meta.db_table)
    return f"INSERT INTO {table} ({names_of(model)}) VALUES {values}"  # noqa: S608


def values_sql(rows: int, places: Sequence[str]) -> str:
    """Return the rows of a VALUES list, each with these places of parameters."""
    row = f"({', '.join(places)})"
    return ", ".join([row] * rows)


@lru_cache(maxsize=500)
def update_sql(
    model: type[Model],
    sets: Texts,
    where: Texts,
    returning: tuple[str, ...] = (),
    relation: str = "",
) -> str:
    """Return the text of an UPDATE, which may take values from a relation."""
    assigned = ", ".join(f"{column(model, name)} = {text}" for name, text in sets)
    met = " AND ".join(f"{column(model, name)} {text}" for name, text in where)
    source = f" FROM {relation}" if relation else ""
    table = quoted(model._meta.db_table)
    update = f"UPDATE {table} SET {assigned}{source} WHERE {met}"  # noqa: S608
    if not returning:
        return update
    columns = ", ".join(column(model, name) for name in returning)
    return f"{update} RETURNING {columns}"


def column(model: type[Model], name: str) -> str:
    return quoted(field_of(model, name).column)


@cache
def quoted(name: str) -> str:
    return connection.ops.quote_name(name)


def params_of(
    model: type[Model], rows: Sequence[Model], vendor: str, shared: Shared = ()
) -> list[Any]:
    """Return the parameters of an INSERT: the rows' values as they are, but for the
    columns whose type needs adapting.
    """
    read_values, to_adapt = values_of(model, vendor, shared)
    as_it_is = AS_IT_IS[vendor]
    params: list[Any] = []
    for row in rows:
        # A new row has all of its fields, and Django looks up the id of a related row
        # by its own function.
        values = list(read_values(row.__dict__))
        for position, adapt in to_adapt:
            value = values[position]
            kind = type(value)
            # Nearly all values are of such a type, and no function of ours is entered
            # for them.
            if adapt is to_driver and kind in as_it_is:
                continue
            if adapt is to_driver and kind in TEXTS:
                values[position] = TEXTS[kind](value)
            else:
                values[position] = adapt(value, vendor)
        params += values
    return params


@cache
def values_of(
    model: type[Model], vendor: str, shared: Shared
) -> tuple[
    Callable[[dict[str, Any]], tuple[Any, ...]],
    list[tuple[int, Callable[[Any, str], Any]]],
]:
    """Return the function that reads all columns of a row's `__dict__`, and the positions of those
    that a driver does not take as they are, with the function that adapts their values.
    """
    columns = columns_of(model, shared)
    to_adapt = []
    for position, column in enumerate(columns):
        if column.cast not in _TAKEN[vendor]:
            to_adapt.append((position, column.adapt))
    read_fields = itemgetter(*(column.attname for column in columns))
    return read_fields, to_adapt


_WHOLE = (
    "integer",
    "smallint",
    "bigint",
    "integer unsigned",
    "smallint unsigned",
    "bigint unsigned",
)
_TAKEN = {
    "sqlite": frozenset({*_WHOLE, "bool", "BLOB"}),
    "postgresql": frozenset(
        {*_WHOLE, "boolean", "bytea", "uuid", "timestamp with time zone"}
    ),
}
"""Types of columns, by vendor, whose values a driver takes as they are. Text is not
among them: it may come as a member of an enumeration, which a driver may take by its
name.
"""


def _is_auto(field: Any) -> bool:
    """Return whether the database makes the value."""
    return bool(getattr(field, "db_returning", False) and field.primary_key)


@cache
def field_of(model: type[Model], name: str) -> Any:
    return model._meta.get_field(name)


def field_to_driver(model: type[Model], name: str, value: Any, vendor: str) -> Any:
    if isinstance(field_of(model, name), JSONField):
        return json_to_driver(value, vendor)
    return to_driver(value, vendor)


def assignment_sql(
    model: type[Model], name: str, value: Any, vendor: str
) -> tuple[str, Sequence[Any]]:
    """Return the right side of an assignment to a field, an expression or a value, and
    its parameters.
    """
    # A wrapped value is taken out, for compiling it would cost more than the statement.
    if type(value) is Value:
        value = value.value
    if not hasattr(value, _EXPRESSION):
        return "%s", [field_to_driver(model, name, value, vendor)]
    text, compiled_params = _compiled(model, name, value)
    params = []
    for param in compiled_params:
        # The compiled text is kept, the moment is that of the statement.
        if param == _STANDS_FOR_NOW:
            param = to_driver(timezone.now(), vendor)
        params.append(param)
    return text, params


@lru_cache(maxsize=500)
def _compiled(model: type[Model], name: str, value: Any) -> tuple[str, Sequence[Any]]:
    """Return the text of an expression that is assigned to a field, and its parameters.
    Expressions are equal where all their parts are; the field keeps those apart whose
    values are equal and of another type (1 and True).
    """
    query = UpdateQuery(model)
    compiler: Any = query.get_compiler(connection=connection)
    sql, params = compiler.compile(
        value.resolve_expression(query, allow_joins=False, for_save=True)
    )
    return sql, list(params)
