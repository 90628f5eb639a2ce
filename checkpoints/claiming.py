"""The claim: one statement that takes due rows of the queue, for runs and for jobs alike. `leases` and `jobs` call it.

It knows the columns that both have (status, epoch, lease_until, leased_by) and nothing of what the rows mean.
"""

from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Model, QuerySet

from checkpoints.clock import db_in
from checkpoints.conf import conf


def take(wanted: "QuerySet[Any, Any]", *, worker: UUID | None) -> list[tuple[UUID, int]]:
    """Lease the rows of `wanted`, an ordered and limited query for ids, to `worker`. Gives (id, epoch) of each.

    On PostgreSQL rows that others are taking are passed by; SQLite has one writer at a time. On the database's clock.
    """
    model: type[Model] = wanted.model
    sql, params = wanted.query.sql_with_params()
    postgres = connection.vendor == "postgresql"
    skip = " FOR UPDATE SKIP LOCKED" if postgres else ""
    # MATERIALIZED: without it PostgreSQL may evaluate the choice once per row and take more than the limit.
    once = "MATERIALIZED " if postgres else ""
    table = connection.ops.quote_name(model._meta.db_table)
    until, until_params = _lease(model)
    by = model._meta.get_field("leased_by").get_db_prep_value(worker, connection)  # type: ignore[union-attr]
    # Built from Django's own SQL and names of this module; every value is a parameter.
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH picked AS {once}({sql}{skip}) UPDATE {table} SET status = 'running', epoch = epoch + 1, "  # noqa: S608
            f"lease_until = {until}, leased_by = %s WHERE id IN (SELECT id FROM picked) RETURNING id, epoch",
            [*params, *until_params, by],
        )
        return [(row[0] if isinstance(row[0], UUID) else UUID(row[0]), row[1]) for row in cursor.fetchall()]


def _lease(model: type[Model]) -> tuple[str, list[Any]]:
    """The end of a lease that begins now, as SQL and parameters."""
    query = model._default_manager.all().query
    sql, params = query.get_compiler(connection=connection).compile(
        db_in(conf().lease_seconds).resolve_expression(query)
    )
    return sql, list(params)
