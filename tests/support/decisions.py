"""A run that waits for one decision, and what SQL may not do to decisions."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from approvals.models import Decision
from checkpoints.models import Run
from orchestrator.engine import END, START, Gate, Show
from tests.support.small_graphs import advanced, graph


def paused_run() -> Run:
    """A run at a gate that holds one write, whose rejection needs a reason."""
    flow = graph("signed")
    gate = Gate(
        reviewers=["group:claims"], writes={"letter": Show(reason_required=True)}
    )

    @flow.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    return advanced(flow)


def execute_sql(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def forbidden_statements() -> list[str]:
    table = connection.ops.quote_name(Decision._meta.db_table)
    truncate = (
        [f"TRUNCATE {table} CASCADE"] if connection.vendor == "postgresql" else []
    )
    return [f"UPDATE {table} SET verdict = 'reject'", f"DELETE FROM {table}", *truncate]  # noqa: S608


def assert_unchangeable() -> None:
    for statement in forbidden_statements():
        with pytest.raises(DatabaseError, match="append-only"):
            execute_sql(statement)
    assert Decision.objects.get().verdict == "approve"
