"""A decision is a row that nobody changes or removes."""

from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from approvals.models import Decision
from checkpoints.models import Run
from orchestrator.engine import END, START, Gate, Show
from tests.support import cast, run_actions
from tests.support.run_actions import sign
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def _paused() -> Run:
    made = graph("signed")
    gate = Gate(reviewers=["group:claims"], writes={"letter": Show(reason_required=True)})

    @made.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    made.edge(START, "propose")
    made.edge("propose", END)
    return advanced(made)


def _sql(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def _forbidden() -> list[str]:
    table = connection.ops.quote_name(Decision._meta.db_table)
    truncate = [f"TRUNCATE {table} CASCADE"] if connection.vendor == "postgresql" else []
    return [f"UPDATE {table} SET verdict = 'reject'", f"DELETE FROM {table}", *truncate]  # noqa: S608


def _refuses_changes() -> None:
    for statement in _forbidden():
        with pytest.raises(DatabaseError, match="append-only"):
            _sql(statement)
    assert Decision.objects.get().verdict == "approve"


def test_a_decision_can_neither_be_changed_nor_removed_by_sql(people: cast.People) -> None:
    sign(_paused(), run_actions.reviewer(people.reviewer), ["approve"])
    _refuses_changes()


def test_a_decision_can_neither_be_changed_nor_removed_through_the_orm(people: cast.People) -> None:
    sign(_paused(), run_actions.reviewer(people.reviewer), ["approve"])
    decision = Decision.objects.get()
    rows = Decision.objects.all()
    for act in (decision.save, decision.delete, rows.delete, lambda: rows.update(verdict="reject")):
        with pytest.raises(TypeError, match="append-only"):
            act()
    assert Decision.objects.get().verdict == "approve"
