"""What a signature is bound to, and that nobody changes a decision afterwards."""

from typing import Any
from uuid import UUID

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction

from approvals import append_only, reviews
from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite, Run
from checkpoints.models.fields import task_columns
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Show, Task
from orchestrator.engine.errors import InvalidValue, TamperedRow, WrongStatus
from tests import cast
from tests.checkpoints.rows import START as AT
from tests.contract.small import advanced, graph
from tests.runner import desk
from tests.runner.desk import pending, request, sign

pytestmark = pytest.mark.django_db(transaction=True)


def _row(value: str = "proposed", *, base: str = "old", bound: bool = True) -> PendingWrite:
    return pending_writes.staged(
        UUID(int=1),
        task_columns(UUID(int=2), 1, Task("propose", 1, 0)),
        position=0,
        channel="letter",
        label="the letter",
        value=value,
        base=pending_writes.Base(base, {}, bound),
        shown={"title": "Pay it?"},
        policy_hash="a" * 64,
        superstep=1,
        at=AT,
        protection=PLAIN,
    )


@pytest.mark.parametrize(
    "moved",
    [
        {"run_id": UUID(int=3)},
        {"line": 2},
        {"node": "other"},
        {"visit": 2},
        {"index": 1},
        {"position": 1},
        {"revision": 2},
        {"channel": "total"},
        {"value": pack_json("other")},
        {"base": pending_writes.Base("new", {}, bound=True).kept()},
        {"base": pending_writes.Base("old", {"total": 1}, bound=True).kept()},
        {"policy_hash": "b" * 64},
        {"shown": pack_json({"title": "Pay nothing?"})},
    ],
    ids=lambda moved: " ".join(moved),
)
def test_the_hash_that_is_signed_covers_every_part_of_what_is_decided(moved: dict[str, Any]) -> None:
    row = _row()
    for name, value in moved.items():
        setattr(row, name, value)
    assert pending_writes.hash_of(row, PLAIN) != row.hash


def test_a_base_that_does_not_bind_is_no_part_of_what_is_signed() -> None:
    assert _row(base="old", bound=False).hash == _row(base="new", bound=False).hash
    assert _row(base="old").hash != _row(base="new").hash


def _paused() -> Run:
    made = graph("signed")
    gate = Gate(reviewers=["group:claims"], writes={"letter": Show(reason_required=True)})

    @made.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    made.edge(START, "propose")
    made.edge("propose", END)
    return advanced(made)


def test_a_write_that_was_changed_behind_its_hash_cannot_be_signed(people: cast.People) -> None:
    run, rita = _paused(), desk.reviewer(people.reviewer)
    PendingWrite.objects.filter(run=run).update(value=pack_json("forged"))
    with pytest.raises(TamperedRow):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()


def test_a_request_that_is_marked_as_settled_without_the_decisions_for_it_applies_nothing(people: cast.People) -> None:
    run = _paused()
    asked = request(run)
    asked.status, asked.outcome = "settled", "approved"
    asked.save()
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert desk.state(run)["letter"] == ""


def test_a_rejection_without_the_reason_that_is_asked_for_is_refused(people: cast.People) -> None:
    run, rita = _paused(), desk.reviewer(people.reviewer)
    item = {"write": str(pending(run)[0].write), "hash": pending(run)[0].hash, "verdict": "reject"}
    for reason in ("", "  "):
        with pytest.raises(InvalidValue, match="reason"):
            reviews.sign(run.id, [{**item, "reason": reason}], by=rita)
    assert not Decision.objects.exists()
    reviews.sign(run.id, [{**item, "reason": "not ours"}], by=rita)
    assert runs.advance(run.id).status == Status.REJECTED


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED, Status.TAMPERED, Status.INCOMPATIBLE])
def test_nothing_is_decided_in_a_run_that_is_over_or_refused(status: str, people: cast.People) -> None:
    run, rita = _paused(), desk.reviewer(people.reviewer)
    Run.objects.filter(id=run.id).update(status=status)
    with pytest.raises(WrongStatus):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()


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
    sign(_paused(), desk.reviewer(people.reviewer), ["approve"])
    _refuses_changes()


def test_a_decision_can_neither_be_changed_nor_removed_through_the_orm(people: cast.People) -> None:
    sign(_paused(), desk.reviewer(people.reviewer), ["approve"])
    decision = Decision.objects.get()
    rows = Decision.objects.all()
    for act in (decision.save, decision.delete, rows.delete, lambda: rows.update(verdict="reject")):
        with pytest.raises(TypeError, match="append-only"):
            act()
    assert Decision.objects.get().verdict == "approve"


def test_a_missing_trigger_is_reported_and_the_next_migrate_puts_it_back(people: cast.People) -> None:
    sign(_paused(), desk.reviewer(people.reviewer), ["approve"])
    assert append_only.missing_triggers() == []
    append_only.remove_triggers()
    try:
        found = append_only.check_triggers(list(apps.get_app_configs()), databases=["default"])
        assert [one.id for one in found] == ["approvals.W001", "approvals.W001"]
    finally:
        call_command("migrate", verbosity=0)
    assert append_only.missing_triggers() == []
    _refuses_changes()
