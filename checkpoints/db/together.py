"""Several small reads in one statement: pages need few rows of many tables, and each
statement is a way to the server and back. It knows no table and writes nothing.

Each query is a part of a UNION ALL, whose rows are arrays: of texts on PostgreSQL, of
JSON on SQLite. The values are converted to what the ORM returns.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

import orjson
from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import IntegerField, QuerySet
from django.db.models.expressions import RawSQL
from django.utils.dateparse import parse_datetime

from checkpoints.db import query_cache
from checkpoints.db.query_cache import Query

Columns = list[Any]
KeptQuery = tuple[Query, Sequence[UUID | int | str]]
"""A query for `query_cache`, and the values from which it is built."""


class Count(NamedTuple):
    """The number of rows of a query, which may be cut."""

    rows: "QuerySet[Any, Any]"


class _Subquery(NamedTuple):
    """A query as it stands in the statement: its text and parameters, the expressions of
    its columns, and what makes a result of a row.
    """

    text: str
    params: tuple[Any, ...]
    columns: Columns
    compiler: Any
    make: Callable[[list[Any]], Any]


def read_together(**queries: Any) -> dict[str, list[Any]]:
    """Return the rows of each of these queries, in its order, by its name. One
    statement, none if Django sees by itself that no row can match; and one more for each
    query with a column of a type that no array can hold as it is.

    A query is a `QuerySet` of a model, which may defer columns but not read related
    rows, or of `values_list`; or a `Count`, or a `RawSQL` of one column with its
    `output_field`, of which the only row is the value.
    """
    results: dict[str, list[Any]] = {name: [] for name in queries}
    parts: dict[str, _Subquery] = {}
    apart: dict[str, Any] = {}
    for name, query in queries.items():
        try:
            part = _part(query)
        except EmptyResultSet:
            if isinstance(query, Count):
                results[name] = [0]
            continue
        if _fits(part):
            parts[name] = part
        else:
            apart[name] = query
    for name, values in _read(parts):
        results[name].append(parts[name].make(values))
    # Later than the others: they may look for what was just read, as people do.
    for name, query in apart.items():
        results[name] = list(query)
    return results


def select_together(**queries: KeptQuery) -> dict[str, list[list[Any]]]:
    """Return the records of each of these queries of `values_list`, in its order, by its
    name, with values as the ORM returns them. One statement, whose text is kept as
    `query_cache` keeps texts.
    """
    database = connections[DEFAULT_DB_ALIAS]
    shapes = []
    params: list[Any] = []
    for query, values in queries.values():
        shapes.append((query, tuple(map(type, values))))
        params += query_cache.compiled(query, *values)[1]
    text, readers = _kept_statement(tuple(shapes), database.vendor)

    with database.cursor() as cursor:
        cursor.execute(text, params)
        records = cursor.fetchall()
    names = list(queries)
    results: dict[str, list[list[Any]]] = {name: [] for name in names}
    for number, array in records:
        values = json.loads(array) if isinstance(array, str) else array
        for position, read in readers[number]:
            if values[position] is not None:
                values[position] = read(values[position])
        results[names[number]].append(values)
    return results


@lru_cache(maxsize=100)
def _kept_statement(
    shapes: tuple[tuple[Query, tuple[type, ...]], ...], vendor: str
) -> tuple[str, list[list[tuple[int, Callable[[Any], Any]]]]]:
    """Return the text for queries that are built from values of these types, and for each
    query the positions of the values that an array does not hold as the ORM returns them,
    with what makes these values.
    """
    parts = []
    readers = []
    for query, kinds in shapes:
        placeholders = query_cache.placeholders_of(kinds)
        compiler = query(*placeholders).query.get_compiler(DEFAULT_DB_ALIAS)
        compiler.as_sql()
        columns = [column for column, _, _ in compiler.select]
        parts.append((query_cache.compiled(query, *placeholders)[0], columns))
        of_query = []
        for position, column in enumerate(columns):
            kind = _kind(column)
            read = _ORM[vendor].get(kind) or _READERS[vendor][kind]
            if read is not None:
                of_query.append((position, read))
        readers.append(of_query)
    return _union(parts, vendor), readers


def _part(query: Any) -> _Subquery:
    """Compile a query. Raises `EmptyResultSet`."""
    if isinstance(query, RawSQL):
        return _Subquery(query.sql, tuple(query.params), [query], None, _only_value)
    if isinstance(query, Count):
        text, params = query.rows.query.sql_with_params()
        counted = f"SELECT COUNT(*) FROM ({text}) AS counted"  # noqa: S608
        number = RawSQL(counted, params, output_field=IntegerField())  # noqa: S611
        return _Subquery(counted, params, [number], None, _only_value)
    compiler = query.query.get_compiler(DEFAULT_DB_ALIAS)
    text, params = compiler.as_sql()
    columns = [column for column, _, _ in compiler.select]
    # The fields of `values_list`, which makes no instances.
    if query._fields is not None:
        return _Subquery(text, params, columns, compiler, tuple)
    if compiler.klass_info.get("related_klass_infos"):
        raise ValueError("rows are read together without their related rows")
    return _Subquery(text, params, columns, compiler, _maker(query.model, compiler))


def _only_value(values: list[Any]) -> Any:
    return values[0]


def _maker(model: Any, compiler: Any) -> Callable[[list[Any]], Any]:
    """Return the function that makes an instance of a row, with its annotations."""
    select = compiler.select
    fields = compiler.klass_info["select_fields"]
    names = [select[position][0].target.attname for position in fields]

    def make(values: list[Any]) -> Any:
        own = [values[position] for position in fields]
        row = model.from_db(DEFAULT_DB_ALIAS, names, own)
        for name, position in compiler.annotation_col_map.items():
            setattr(row, name, values[position])
        return row

    return make


def _read(parts: dict[str, _Subquery]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows of all parts, each with the name of its part and the values that the
    ORM would return. One statement, none without a part.
    """
    if not parts:
        return
    database = connections[DEFAULT_DB_ALIAS]
    names = list(parts)
    params: list[Any] = []
    for part in parts.values():
        params += part.params
    texts = [(part.text, part.columns) for part in parts.values()]
    text = _union(texts, database.vendor)

    with database.cursor() as cursor:
        cursor.execute(text, params)
        records = cursor.fetchall()
    readers = [_readers(part.columns, database.vendor) for part in parts.values()]
    for number, array in records:
        stored = json.loads(array) if isinstance(array, str) else array
        values = _from_array(stored, readers[number])
        yield names[number], _converted(parts[names[number]], values)


def _union(parts: Sequence[tuple[str, Columns]], vendor: str) -> str:
    """Return the text of the statement for the texts of these queries, each with its
    columns.
    """
    tables = []
    selects = []
    for number, (text, columns) in enumerate(parts):
        names = [f"c{position}" for position in range(len(columns))]
        tables.append(f"part_{number}({', '.join(names)}) AS ({text})")
        array = _array(columns, names, vendor)
        selects.append(f"SELECT {number}, {array} FROM part_{number}")  # noqa: S608
    return f"WITH {', '.join(tables)} {' UNION ALL '.join(selects)}"


def _array(columns: Columns, names: list[str], vendor: str) -> str:
    """Return the expression of an array of columns."""
    if vendor == "postgresql":
        texts = []
        for column, name in zip(columns, names, strict=True):
            is_binary = _kind(column) == "BinaryField"
            # As a text its form would depend on a setting of the database.
            texts.append(f"encode({name}, 'hex')" if is_binary else f"{name}::text")
        return f"ARRAY[{', '.join(texts)}]"
    items = []
    for column, name in zip(columns, names, strict=True):
        if _kind(column) == "BinaryField":
            # JSON has no bytes.
            items.append(f"CASE WHEN {name} IS NOT NULL THEN hex({name}) END")
        else:
            # JSON has no bytes, which a text column holds only if its row was changed.
            items.append(
                f"CASE typeof({name}) WHEN 'blob' THEN hex({name}) ELSE {name} END"
            )
    return f"json_array({', '.join(items)})"


def _kind(column: Any) -> str:
    """Return the type of a column; of a foreign key that of the key that it refers to."""
    field = column.output_field
    kind: str = getattr(field, "target_field", field).get_internal_type()
    return kind


def _fits(part: _Subquery) -> bool:
    """Return whether each column of a part can stand in an array. A project's own model
    of accounts may have fields of any type.
    """
    return all(_kind(column) in _SQLITE for column in part.columns)


def _readers(columns: Columns, vendor: str) -> list[Callable[[Any], Any] | None]:
    """Return for each column the function that makes the driver's value of what stands in
    an array, None where it is that value.
    """
    return [_READERS[vendor][_kind(column)] for column in columns]


def _from_array(
    stored: list[Any], readers: list[Callable[[Any], Any] | None]
) -> list[Any]:
    values = []
    for value, read in zip(stored, readers, strict=True):
        is_as_stored = value is None or read is None
        values.append(value if is_as_stored else read(value))  # type: ignore[misc]
    return values


def _converted(part: _Subquery, values: list[Any]) -> list[Any]:
    """Return values of the driver as the ORM returns them."""
    if part.compiler is None:
        return values
    converters = part.compiler.get_converters(part.columns)
    [converted] = part.compiler.apply_converters([values], converters)
    return list(converted)


def _is_true(text: str) -> bool:
    return text == "true"


def _is_one(number: Any) -> bool:
    return bool(number == 1)


def _moment(text: str) -> datetime | None:
    """Return the moment that SQLite keeps as a text; None for a text that is none."""
    moment = parse_datetime(text)
    return moment and moment.replace(tzinfo=UTC)


# Neighbouring rows name the same run.
_uuid = lru_cache(maxsize=8)(UUID)

_SQLITE: dict[str, Callable[[Any], Any] | None] = {
    "AutoField": None,
    "BigAutoField": None,
    "BigIntegerField": None,
    "BinaryField": bytes.fromhex,
    "BooleanField": None,
    "CharField": None,
    "DateTimeField": None,
    "IntegerField": None,
    "JSONField": None,
    "PositiveBigIntegerField": None,
    "PositiveIntegerField": None,
    "PositiveSmallIntegerField": None,
    "SmallIntegerField": None,
    "TextField": None,
    "UUIDField": None,
}
_READERS: dict[str, dict[str, Callable[[Any], Any] | None]] = {
    "sqlite": _SQLITE,
    "postgresql": _SQLITE
    | {
        "AutoField": int,
        "BigAutoField": int,
        "BigIntegerField": int,
        "BooleanField": _is_true,
        "DateTimeField": datetime.fromisoformat,
        "IntegerField": int,
        "PositiveBigIntegerField": int,
        "PositiveIntegerField": int,
        "PositiveSmallIntegerField": int,
        "SmallIntegerField": int,
        "UUIDField": _uuid,
    },
}
"""By vendor and type of column, what makes the driver's value of what stands in an array.
Others are read by themselves: SQLite would round their numbers in JSON.
"""
_ORM: dict[str, dict[str, Callable[[Any], Any]]] = {
    "sqlite": {
        "BooleanField": _is_one,
        "DateTimeField": _moment,
        "JSONField": orjson.loads,
        "UUIDField": _uuid,
    },
    "postgresql": {"JSONField": orjson.loads},
}
"""By vendor and type of column, what makes the value that the ORM returns of what stands
in an array, where the driver's value is another.
"""
