"""The step to decisions that needed nobody: short on a large table, and back only where none was made."""

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.exceptions import IrreversibleError

from approvals.append_only import missing_triggers
from approvals.models import ApprovalRequest, Decision
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import END, START, Gate
from tests.support import cast, run_actions
from tests.support.decisions import assert_unchangeable, paused_run
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def _migrate(*to: str) -> None:
    call_command("migrate", "approvals", *to, verbosity=0)


@pytest.fixture
def forwards_again() -> Iterator[None]:
    """Whatever a test does, the next one finds today's tables."""
    yield
    _migrate()


def _waived() -> Run:
    """A run whose gate needed nobody."""
    made = graph("waived")

    @made.node(effect="human", gate=Gate(reviewers=["group:claims"], needs_approval=lambda state, proposal: False))
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "sent"}

    made.edge(START, "propose")
    made.edge("propose", END)
    return advanced(made)


def _storage() -> Any:
    """PostgreSQL's file of the table, and the ids of its constraints: both change where rows are read or written."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT relfilenode FROM pg_class WHERE relname = 'approvals_decision'")
        file = cursor.fetchall()
        cursor.execute(
            "SELECT conname, oid FROM pg_constraint WHERE conrelid = 'approvals_decision'::regclass"
            " AND contype <> 'n' ORDER BY conname"
        )
        return file, cursor.fetchall()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer, and makes a table anew")
def test_it_reads_no_row_and_makes_no_constraint_anew(forwards_again: None) -> None:
    out = StringIO()
    call_command("sqlmigrate", "approvals", "0003", stdout=out, no_color=True)
    assert "CONSTRAINT" not in out.getvalue()
    _migrate("0002")
    before = _storage()
    _migrate()
    assert _storage() == before


def test_decisions_of_people_stay_on_the_way_back_and_forth(people: cast.People, forwards_again: None) -> None:
    run, rita = paused_run(), run_actions.reviewer(people.reviewer)
    run_actions.sign(run, rita, ["approve"])
    kept, request = list(Decision.objects.values()), ApprovalRequest.objects.get()
    _migrate("0002")
    _migrate()
    # The way back takes with it what later steps brought.
    request.save(update_fields=["input_hash", "prepared_from"])
    assert list(Decision.objects.values()) == kept
    assert missing_triggers() == []
    assert_unchangeable()
    assert runs.advance(run.id).status == "completed"


def test_there_is_no_way_back_where_a_gate_needed_nobody(forwards_again: None) -> None:
    assert _waived().status == "completed"
    with pytest.raises(IrreversibleError, match="1 decisions say that a gate needed nobody"):
        _migrate("0002")
    assert Decision.objects.get().verdict == "not_needed"
    assert missing_triggers() == []
