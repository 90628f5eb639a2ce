"""The triggers that keep decisions are watched and put back."""

from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from approvals import append_only
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


def test_a_missing_trigger_is_reported_and_the_next_migrate_puts_it_back(people: cast.People) -> None:
    sign(_paused(), run_actions.reviewer(people.reviewer), ["approve"])
    assert append_only.missing_triggers() == []
    append_only.remove_triggers()
    try:
        found = append_only.check_triggers(list(apps.get_app_configs()), databases=["default"])
        assert [one.id for one in found] == ["approvals.W001", "approvals.W001"]
    finally:
        call_command("migrate", verbosity=0)
    assert append_only.missing_triggers() == []
    _refuses_changes()
