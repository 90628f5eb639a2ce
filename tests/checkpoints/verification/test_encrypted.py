"""Encrypted runs: payload columns cut short, in plain, in an unknown form, moved; keys
that are wrong or missing.
"""

from pathlib import Path
from typing import Any

import pytest
from django.db.models import Model

from approvals.models import ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.models import (
    Checkpoint,
    LateResult,
    PendingWrite,
    Run,
    RunEvent,
    TaskResult,
)
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support import full_installation as full
from tests.support.sealed_tables import ONE_KEY

pytestmark = pytest.mark.django_db(transaction=True)

COLUMNS: list[tuple[type[Model], str]] = [
    (Run, "input"),
    (RunEvent, "payload"),
    (Checkpoint, "change"),
    (Checkpoint, "snapshot"),
    (PendingWrite, "value"),
    (PendingWrite, "base"),
    (PendingWrite, "shown"),
    (TaskResult, "output"),
    (LateResult, "output"),
    (ApprovalRequest, "title"),
    (ApprovalRequest, "facts"),
    (Decision, "old_value"),
    (Decision, "proposed_value"),
    (Decision, "final_value"),
]
BROKEN = {
    "in plain": (
        lambda kept: pack_json({"plain": True}),
        "is not encrypted, but its run is",
    ),
    "in an unknown form": (
        lambda kept: b"\x7f" + kept[1:],
        "is not encrypted, but its run is",
    ),
    "cut short": (lambda kept: kept[:-1], "cannot be opened"),
    "cut to nothing": (lambda kept: kept[:3], "cannot be opened"),
    "changed": (lambda kept: kept[:-1] + bytes([kept[-1] ^ 1]), "cannot be opened"),
}


@pytest.fixture
def run(tmp_path: Path, people: cast.People, configure: Any) -> Run:
    configure(**ONE_KEY)
    full.encrypted_gated()
    return full.a_full_run(tmp_path, people.reviewer, graph="secret")


def _last(model: type[Model], run: Run, column: str) -> Any:
    rows = (
        model._base_manager.filter(pk=run.pk)
        if model is Run
        else model._base_manager.filter(run=run.id)
    )
    return [row for row in rows.order_by("pk") if bytes(getattr(row, column))][-1]


def test_an_untouched_encrypted_run_verifies(run: Run) -> None:
    assert run.status == "completed"
    assert verify_run(run.id) == []


@pytest.mark.parametrize("how", BROKEN)
def test_every_encrypted_column_that_is_broken_is_named_with_its_row(
    how: str, run: Run
) -> None:
    breaking, reason = BROKEN[how]
    for model, column in COLUMNS:
        row = _last(model, run, column)
        field = model._meta.get_field(column)
        stored_bytes = bytes(getattr(row, column))
        full.put(row, field, breaking(stored_bytes))
        fault = verify_run(run.id)[0]
        assert fault.table == model._meta.db_table, (
            model,
            column,
            fault,
        )
        assert reason in fault.reason, (
            model,
            column,
            fault,
        )
        assert f"{column} of {fault.what}" in fault.reason
        full.put(row, field, stored_bytes)
    assert verify_run(run.id) == []


def test_an_encrypted_value_moved_to_another_row_of_the_same_run_is_named(
    run: Run,
) -> None:
    first, second = PendingWrite.objects.filter(run=run).order_by("pk")[:2]
    full.put(second, PendingWrite._meta.get_field("value"), bytes(first.value))
    assert (
        verify_run(run.id)[0].what
        == f"checkpoints_pendingwrite {run.id} {second.write} {second.revision}"
    )


def test_an_encrypted_value_moved_to_another_column_is_named(run: Run) -> None:
    row = _last(PendingWrite, run, "value")
    full.put(row, PendingWrite._meta.get_field("shown"), bytes(row.value))
    assert "shown of checkpoints_pendingwrite" in verify_run(run.id)[0].reason


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"other": b"x" * 32}, "'old' is not configured"),
        ({"old": b"x" * 32}, "'old' is not the one"),
    ],
    ids=["missing", "wrong"],
)
def test_a_key_that_is_missing_or_wrong_is_named_and_never_called_tampering(
    keys: dict[str, bytes], reason: str, run: Run, configure: Any
) -> None:
    configure(ENCRYPTION_KEYS=keys)
    faults = verify_run(run.id)
    assert {fault.code for fault in faults} == {"wrong_key"}
    assert reason in faults[0].reason


@pytest.mark.parametrize("column", ["change", "value"])
@pytest.mark.parametrize("how", BROKEN)
def test_a_worker_refuses_an_encrypted_value_that_is_broken(
    how: str, column: str, tmp_path: Path, people: cast.People, configure: Any
) -> None:
    configure(**ONE_KEY)
    full.encrypted_gated()
    run = run_actions.start("secret", tmp_path)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    model: type[Model] = Checkpoint if column == "change" else PendingWrite
    row = _last(model, run, column)
    full.put(
        row, model._meta.get_field(column), BROKEN[how][0](bytes(getattr(row, column)))
    )
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert not (tmp_path / "outside.log").exists()


def test_a_run_without_its_key_stops_and_goes_on_when_the_key_is_back(
    tmp_path: Path, people: cast.People, configure: Any
) -> None:
    configure(**ONE_KEY)
    full.encrypted_gated()
    run = run_actions.start("secret", tmp_path)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    configure(ENCRYPTION_KEYS={"other": b"x" * 32})
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "wrong_key"
    configure(**ONE_KEY)
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert verify_run(run.id) == []
