"""The fenced transaction: a conditional UPDATE of one row, and rows behind it. The ledger commits with it."""

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
    """Rows of one model to insert behind a fence. `shared` names attributes that equal a field of the fence's row as it
    is after the update: one statement takes them from there, and has fewer parameters.
    """

    model: type[Model]
    rows: Sequence[Model]
    shared: statements.Shared = ()


FEW = 8
"""Rows that are written out as parameters: their statements are short, and often the same."""
Outcome = Callable[[], bool]
"""Waits for the end of a transaction, and says whether its fence met a row."""


def prepare(
    fence: statements.Update,
    rows: Sequence[Rows],
    *,
    gone: Model | None = None,
    also: statements.Update | None = None,
    inside: Callable[[], None] | None = None,
) -> Callable[[], Outcome]:
    """One transaction, ready to be sent: the update; and where it meets a row, these inserts, after `gone` is deleted,
    `also`, an update of other rows, and `inside`. Sent, it may still be on its way where it is one statement, and is
    over where it is not.
    """
    now = connections[DEFAULT_DB_ALIAS]
    whole = now.vendor == "postgresql" and sum([len(some.rows) for some in rows]) <= statements.MOST_ROWS
    # Made before the transaction begins: while one is open on SQLite, nobody else can write.
    batch = [_one_statement(fence, rows, gone, also)] if whole else _statements(now.vendor, fence, rows, gone, also)
    if inside is None and (len(batch) == 1 or now.vendor == "sqlite"):
        return partial(_send, now, batch)
    return partial(_do, now, batch, inside)


def _send(now: BaseDatabaseWrapper, batch: list[statements.Statement]) -> Outcome:
    driver = drivers.of(now.vendor) if conf().direct_statements else None
    if driver and drivers.is_free(now):
        answer = driver.send(now, batch)
        return lambda: answer() > 0
    # One statement is a transaction by itself, in one round trip.
    return partial(bool, _execute(now, batch)) if len(batch) == 1 else _do(now, batch, None)


def _do(now: BaseDatabaseWrapper, batch: list[statements.Statement], inside: Callable[[], None] | None) -> Outcome:
    with transaction.atomic():
        met = _execute(now, batch)
        if met and inside:
            inside()
    return partial(bool, met)


def _execute(now: BaseDatabaseWrapper, batch: list[statements.Statement]) -> bool:
    """Execute the first statement; where it met a row, the others too."""
    with now.cursor() as cursor:
        cursor.execute(*batch[0])
        if not cursor.rowcount:
            return False
        for text, params in batch[1:]:
            cursor.execute(text, params)
    return True


def _statements(
    vendor: str, fence: statements.Update, rows: Sequence[Rows], gone: Model | None, also: statements.Update | None
) -> list[statements.Statement]:
    batch = [fence.sql(vendor)]
    if gone is not None:
        batch.append(
            (
                f"DELETE FROM {statements.quoted(gone._meta.db_table)} WHERE id = %s",  # noqa: S608
                [to_driver(gone.pk, vendor)],
            )
        )
    for some in rows:
        batch += statements.insert_statements(some.model, some.rows, vendor)
    if also is not None:
        batch.append(also.sql(vendor))
    return batch


def _one_statement(
    fence: statements.Update, rows: Sequence[Rows], gone: Model | None, also: statements.Update | None
) -> statements.Statement:
    shape = tuple([(some.model, min(len(some.rows), FEW + 1), some.shared) for some in rows if some.rows])
    update, params = fence.sql("postgresql", returning=_all_shared(shape))
    if gone is not None:
        params.append(gone.pk)
    for some in rows:
        if len(some.rows) <= FEW:
            params += statements.params_of(some.model, some.rows, "postgresql", some.shared)
        else:
            read, _ = statements.values_of(some.model, "postgresql", some.shared)
            params += relation_params([read(row) for row in some.rows], "postgresql")
    beside, more = also.sql("postgresql") if also is not None else ("", [])
    return _fenced_sql(update, fence.model, shape, type(gone) if gone is not None else None, beside), params + more


Shape = tuple[tuple[type[Model], int, statements.Shared], ...]
"""Of the rows behind a fence: models, how many (one more than few stands for whatever is more), what is shared."""


@lru_cache(maxsize=500)
def _all_shared(shape: Shape) -> tuple[str, ...]:
    """The fields of the fence's row that rows behind it share; at least one, which tells whether it met a row."""
    return tuple(dict.fromkeys(field for *_, shared in shape for _, field in shared)) or ("id",)


@lru_cache(maxsize=500)
def _fenced_sql(update: str, model: type[Model], shape: Shape, gone: type[Model] | None, also: str) -> str:
    parts = [f"fence AS ({update})"]
    # Parts of one statement run in no given order; to read what `gone` returns is to wait for it.
    after = "fence"
    if gone is not None:
        table = statements.quoted(gone._meta.db_table)
        parts.append(f"gone AS (DELETE FROM {table} USING fence WHERE {table}.id = %s RETURNING 1)")  # noqa: S608
        after = "fence CROSS JOIN (SELECT count(*) FROM gone) AS waited"
    for n, (of, count, shared) in enumerate(shape):
        into = f"INSERT INTO {statements.quoted(of._meta.db_table)} ({statements.names_of(of, shared)})"
        casts = [one.cast for one in statements.columns_of(of, shared)]
        # In a SELECT nothing but a cast tells the type of a parameter.
        few = f"(VALUES {statements.values_sql(count, [f'%s::{cast}' for cast in casts])}) AS given"
        given = few if count <= FEW else relation(casts, count)
        taken = "".join(f", fence.{statements.column(model, field)}" for _, field in shared)
        parts.append(f"rows{n} AS ({into} SELECT given.*{taken} FROM {given} CROSS JOIN {after})")  # noqa: S608
    if also:
        parts.append(f"also AS ({also} AND EXISTS (SELECT 1 FROM fence))")  # noqa: S608
    return f"WITH {', '.join(parts)} SELECT 1 FROM fence"  # noqa: S608
