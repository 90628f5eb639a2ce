"""The claim: one statement that takes due rows of the queue, for runs and for jobs alike. `leases` and `jobs` call it.

It knows the columns that both have (status, epoch, lease_until, leased_by) and nothing of what the rows mean.
"""

from typing import Any
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import Model

from checkpoints import sql
from checkpoints.clock import db_in
from checkpoints.conf import conf
from checkpoints.statements import Query, text_of


def take(model: type[Model], wanted: Query, *values: UUID | int, worker: UUID | None) -> list[tuple[UUID, int]]:
    """Lease the rows of `wanted(*values)`, an ordered and limited query for ids, to `worker`. Gives (id, epoch) of
    each.

    On PostgreSQL rows that others are taking are passed by; SQLite has one writer at a time. On the database's clock.
    """
    try:
        text, params = text_of(wanted, *values)
    except EmptyResultSet:
        return []
    postgres = connection.vendor == "postgresql"
    skip = " FOR UPDATE SKIP LOCKED" if postgres else ""
    # MATERIALIZED: without it PostgreSQL may evaluate the choice once per row and take more than the limit.
    once = "MATERIALIZED " if postgres else ""
    until, until_params = sql.assigned(model, "lease_until", db_in(conf().lease_seconds), connection.vendor)
    # Built from Django's own SQL and names of this module; every value is a parameter.
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH picked AS {once}({text}{skip}) UPDATE {sql.quoted(model._meta.db_table)} SET status = 'running', "  # noqa: S608
            f"epoch = epoch + 1, lease_until = {until}, leased_by = %s WHERE id IN (SELECT id FROM picked) "
            "RETURNING id, epoch",
            [*params, *until_params, sql.plain(worker, connection.vendor)],
        )
        return [(_uuid(key), epoch) for key, epoch in cursor.fetchall()]


def _uuid(key: Any) -> UUID:
    return key if isinstance(key, UUID) else UUID(key)
