"""The claim: one statement that takes due rows of the queue, for runs and for jobs
alike. `leases` and `jobs` call it.

It knows the columns that both have (status, epoch, lease_until, leased_by) and nothing
of what the rows mean.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import F, Model

from checkpoints.conf import conf
from checkpoints.db.clock import db_in
from checkpoints.db.rows import from_driver
from checkpoints.db.statements import Update

Sql = tuple[str, list[Any]]
"""A query as text, and its parameters."""
TAKEN = ("id", "epoch")
"""The fields of each row that a claim returns."""
ONE_MORE = F("epoch") + 1
_PICKED = (("id", "IN (SELECT id FROM picked)"),)


def claim_rows(
    model: type[Model],
    candidates: Sql,
    *,
    worker: UUID | None,
    look: Sql | None = None,
    returning: Sequence[str] = TAKEN,
    **also_set: Any,
) -> list[Sequence[Any]]:
    """Lease the rows of `candidates`, an ordered and limited query for ids, to
    `worker`, and set the fields in `also_set`. Returns the fields in `returning` of
    each row, as they are now.

    On PostgreSQL rows that other workers are taking are skipped. SQLite has one writer
    at a time; there `look` is executed first, for a claim that finds nothing must not
    take the lock. Leases run on the database's clock.
    """
    database = connections[DEFAULT_DB_ALIAS]
    is_sqlite = database.vendor == "sqlite"
    if look is not None and is_sqlite and not has_row(look):
        return []
    text, params = candidates
    leased = {
        "status": "running",
        "epoch": ONE_MORE,
        "lease_until": db_in(conf().lease_seconds),
        "leased_by": worker,
    }
    update, update_params = Update(model, {}, leased | also_set).sql(
        database.vendor, returning=tuple(returning), met=_PICKED
    )
    picked = f"({text})"
    if database.vendor == "postgresql":
        # MATERIALIZED: without it PostgreSQL may evaluate the choice once per row and
        # take more than the limit.
        picked = f"MATERIALIZED ({text} FOR UPDATE SKIP LOCKED)"
    with database.cursor() as cursor:
        # Built from Django's own SQL and names of the models; every value is a
        # parameter.
        cursor.execute(f"WITH picked AS {picked} {update}", [*params, *update_params])
        return from_driver(model, returning, cursor.fetchall(), database.vendor)


def has_row(query: Sql) -> bool:
    """Return whether a query has a row."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute(*query)
        return cursor.fetchone() is not None
