"""The fenced transaction: a conditional UPDATE of one row, and the rows that it lets
in. The ledger commits with it.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from checkpoints.conf import conf
from checkpoints.db import drivers, statements
from checkpoints.db.bulk import relation, relation_params
from checkpoints.db.rows import to_driver
from orchestrator.engine.frozen import frozen


@frozen
class Rows:
    """Rows of one model to insert behind a fence. `shared` names attributes that equal
    a field of the fence's row as it is after the update: one statement takes them from
    there, and has fewer parameters.
    """

    model: type[Model]
    rows: Sequence[Model]
    shared: statements.Shared = ()


FEW = 8
"""The most rows that are written out as parameters: their statements are short, and
often the same.
"""
Outcome = Callable[[], bool]
"""Waits for the end of a transaction, and returns whether its fence matched a row."""


def prepare(
    fence: statements.Update,
    rows: Sequence[Rows],
    *,
    delete: Model | None = None,
    also: statements.Update | None = None,
    inside: Callable[[], None] | None = None,
) -> Callable[[], Outcome]:
    """Prepare one transaction, and return the function that sends it: the update; and
    if that matches a row, these inserts, after `delete` is deleted, `also`, an update
    of other rows, and `inside`.

    A transaction of one statement may still be under way after it is sent; any other is
    over by then.
    """
    connection = connections[DEFAULT_DB_ALIAS]
    # PostgreSQL takes everything as one statement: one round trip, and no BEGIN.
    row_count = 0
    for part in rows:
        row_count += len(part.rows)
    fits_one_statement = row_count <= statements.MOST_ROWS

    # The statements are made before the transaction begins: while one is open on
    # SQLite, no other connection can write.
    if connection.vendor == "postgresql" and fits_one_statement:
        batch = [_one_statement(fence, rows, delete, also)]
    else:
        batch = _statements(connection.vendor, fence, rows, delete, also)

    # A driver can send what needs no code of ours in between.
    is_sendable = len(batch) == 1 or connection.vendor == "sqlite"
    if inside is None and is_sendable:
        return partial(_send, connection, batch)
    return partial(_execute_in_transaction, connection, batch, inside)


def _send(
    connection: BaseDatabaseWrapper, batch: list[statements.Statement]
) -> Outcome:
    """Send the statements by the driver itself if that is allowed, else execute them."""
    driver = drivers.of(connection.vendor) if conf().direct_statements else None
    if driver and drivers.is_free(connection):
        row_count = driver.send(connection, batch)
        return lambda: row_count() > 0
    # One statement is a transaction by itself, in one round trip.
    if len(batch) == 1:
        return partial(bool, _execute(connection, batch))
    return _execute_in_transaction(connection, batch, None)


def _execute_in_transaction(
    connection: BaseDatabaseWrapper,
    batch: list[statements.Statement],
    inside: Callable[[], None] | None,
) -> Outcome:
    with transaction.atomic():
        fence_matched = _execute(connection, batch)
        if fence_matched and inside:
            inside()
    return partial(bool, fence_matched)


def _execute(
    connection: BaseDatabaseWrapper, batch: list[statements.Statement]
) -> bool:
    """Execute the first statement and, if it matched a row, the others. Returns whether
    it matched.
    """
    with connection.cursor() as cursor:
        cursor.execute(*batch[0])
        if not cursor.rowcount:
            return False
        for text, params in batch[1:]:
            cursor.execute(text, params)
    return True


def _statements(
    vendor: str,
    fence: statements.Update,
    rows: Sequence[Rows],
    delete: Model | None,
    also: statements.Update | None,
) -> list[statements.Statement]:
    """Return the transaction as separate statements, the fence first."""
    batch = [fence.sql(vendor)]
    if delete is not None:
        table = statements.quoted(delete._meta.db_table)
        text = f"DELETE FROM {table} WHERE id = %s"  # noqa: S608
        batch.append((text, [to_driver(delete.pk, vendor)]))
    for part in rows:
        batch += statements.insert_statements(part.model, part.rows, vendor)
    if also is not None:
        batch.append(also.sql(vendor))
    return batch


def _one_statement(
    fence: statements.Update,
    rows: Sequence[Rows],
    delete: Model | None,
    also: statements.Update | None,
) -> statements.Statement:
    """Return the transaction as one statement of PostgreSQL."""
    parts = [part for part in rows if part.rows]
    # All numbers of rows above few share one text.
    shape = tuple(
        [(part.model, min(len(part.rows), FEW + 1), part.shared) for part in parts]
    )
    update, params = fence.sql("postgresql", returning=_all_shared(shape))

    # The parameters follow the order of the text from `_fenced_sql`.
    deleted_model = None
    if delete is not None:
        deleted_model = type(delete)
        params.append(delete.pk)
    for part in parts:
        if len(part.rows) <= FEW:
            params += statements.params_of(
                part.model, part.rows, "postgresql", part.shared
            )
        else:
            read, _ = statements.values_of(part.model, "postgresql", part.shared)
            params += relation_params(
                [read(vars(row)) for row in part.rows], "postgresql"
            )
    also_text = ""
    if also is not None:
        also_text, also_params = also.sql("postgresql")
        params += also_params
    return _fenced_sql(update, fence.model, shape, deleted_model, also_text), params


Shape = tuple[tuple[type[Model], int, statements.Shared], ...]
"""The models of the rows behind a fence, how many rows of each (any number above few is
one more than few), and what they share with the fence's row.
"""


@lru_cache(maxsize=500)
def _all_shared(shape: Shape) -> tuple[str, ...]:
    """Return the fields of the fence's row that rows behind it share; at least one,
    which shows whether it matched a row.
    """
    fields: dict[str, None] = {}
    for _, _, shared in shape:
        for _, field in shared:
            fields[field] = None
    return tuple(fields) or ("id",)


@lru_cache(maxsize=500)
def _fenced_sql(
    update: str,
    model: type[Model],
    shape: Shape,
    deleted: type[Model] | None,
    also: str,
) -> str:
    """Return the text of the one statement, whose parts are each a WITH query."""
    parts = [f"fence AS ({update})"]
    # Parts of one statement run in no given order; reading what `gone` returns makes
    # the inserts wait for the deletion.
    after = "fence"
    if deleted is not None:
        table = statements.quoted(deleted._meta.db_table)
        parts.append(
            f"gone AS (DELETE FROM {table} USING fence "  # noqa: S608
            f"WHERE {table}.id = %s RETURNING 1)"
        )
        # A count has its one row even if there was nothing to delete.
        after = "fence CROSS JOIN (SELECT count(*) FROM gone) AS waited"
    for number, (rows_model, count, shared) in enumerate(shape):
        insert = _insert_select(rows_model, count, shared, fence_model=model)
        parts.append(f"rows{number} AS ({insert} CROSS JOIN {after})")
    if also:
        parts.append(f"also AS ({also} AND EXISTS (SELECT 1 FROM fence))")  # noqa: S608
    return f"WITH {', '.join(parts)} SELECT 1 FROM fence"  # noqa: S608


def _insert_select(
    model: type[Model],
    count: int,
    shared: statements.Shared,
    *,
    fence_model: type[Model],
) -> str:
    """Return the INSERT of this many rows, up to the end of their relation: the columns
    that they share come from the fence's row.
    """
    table = statements.quoted(model._meta.db_table)
    casts = [column.cast for column in statements.columns_of(model, shared)]
    if count <= FEW:
        # In a SELECT nothing but a cast gives the type of a parameter.
        places = [f"%s::{cast}" for cast in casts]
        values = statements.values_sql(count, places)
        source = f"(VALUES {values}) AS given"
    else:
        source = relation(casts, count)
    columns = ["given.*"]
    for _, field in shared:
        columns.append(f"fence.{statements.column(fence_model, field)}")
    return (
        f"INSERT INTO {table} ({statements.names_of(model, shared)}) "  # noqa: S608
        f"SELECT {', '.join(columns)} FROM {source}"
    )
