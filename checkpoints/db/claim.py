"""The claim: one statement that takes due rows of the queue, for runs and for jobs alike. `leases` and `jobs` call it.

It knows the columns that both have (status, epoch, lease_until, leased_by) and nothing of what the rows mean.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import F, Model

from checkpoints.conf import conf
from checkpoints.db import query_cache
from checkpoints.db.clock import db_in
from checkpoints.db.query_cache import Query
from checkpoints.db.rows import from_driver
from checkpoints.db.statements import Update

TAKEN = ("id", "epoch")
"""What a claim tells of each row."""
ONE_MORE = F("epoch") + 1
_PICKED = (("id", "IN (SELECT id FROM picked)"),)


def claim_rows(
    model: type[Model],
    wanted: Query,
    *values: UUID | int,
    worker: UUID | None,
    look: Query | None = None,
    returning: Sequence[str] = TAKEN,
    **more: Any,
) -> list[Sequence[Any]]:
    """Lease the rows of `wanted(*values)`, an ordered and limited query for ids, to `worker`, and set what `more` says.
    Gives of each the fields in `returning`, as they are now.

    On PostgreSQL rows that others are taking are passed by. SQLite has one writer at a time; there `look` is asked
    first, for a claim that finds nothing must not take its lock. On the database's clock.
    """
    now = connections[DEFAULT_DB_ALIAS]
    if look is not None and now.vendor == "sqlite" and not query_cache.exists(look):
        return []
    try:
        text, params = query_cache.compiled(wanted, *values)
    except EmptyResultSet:
        return []
    leased = {"status": "running", "epoch": ONE_MORE, "lease_until": db_in(conf().lease_seconds), "leased_by": worker}
    update, more_params = Update(model, {}, leased | more).sql(now.vendor, returning=tuple(returning), met=_PICKED)
    # MATERIALIZED: without it PostgreSQL may evaluate the choice once per row and take more than the limit.
    picked = f"MATERIALIZED ({text} FOR UPDATE SKIP LOCKED)" if now.vendor == "postgresql" else f"({text})"
    with now.cursor() as cursor:
        # Built from Django's own SQL and names of the models; every value is a parameter.
        cursor.execute(f"WITH picked AS {picked} {update}", [*params, *more_params])
        return from_driver(model, returning, cursor.fetchall(), now.vendor)
