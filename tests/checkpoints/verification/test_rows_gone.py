"""Rows that were deleted, copied, moved or put in by hand: verification names each, and
says which is gone.
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import Model

from approvals.models import ApprovalRequest, Decision, Receipt, RequestReviewer
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, TaskResult
from checkpoints.verification import Fault, verify_run
from tests.support import cast
from tests.support import full_installation as full

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(tmp_path: Path, people: cast.People) -> Run:
    return full.a_full_run(tmp_path, people.reviewer)


def _first(run: Run) -> Fault:
    return verify_run(run.id)[0]


def _all(model: type[Model], run: Run, by: str) -> list[Any]:
    return list(model._base_manager.filter(run=run.id).order_by(by))


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "middle", "last"])
def test_a_deleted_checkpoint_is_named(run: Run, which: int) -> None:
    row = _all(Checkpoint, run, "seq")[which]
    full.remove(row)
    fault = _first(run)
    assert fault.table == "checkpoints_checkpoint"
    assert fault.checkpoint == str(row.id)
    assert (
        fault.reason
        == f"checkpoints_checkpoint {run.id} {row.id} of superstep {row.superstep} is gone"
    )


@pytest.mark.parametrize("which", [0, 3, -1], ids=["first", "middle", "last"])
def test_a_deleted_line_of_the_log_is_named(run: Run, which: int) -> None:
    row = _all(RunEvent, run, "seq")[which]
    full.remove(row)
    assert _first(run).reason == f"checkpoints_runevent {run.id} line {row.seq} is gone"


def test_a_deleted_stretch_of_the_log_is_named_as_one(run: Run) -> None:
    for row in _all(RunEvent, run, "seq")[2:5]:
        full.remove(row)
    assert _first(run).reason == f"checkpoints_runevent {run.id} lines 3 to 5 are gone"


@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_a_deleted_decision_is_named(run: Run, which: int) -> None:
    row = _all(Decision, run, "event_seq")[which]
    full.remove(row)
    faults = verify_run(run.id)
    assert (
        faults[0].reason
        == f"checkpoints_run {run.id} counts 4 decisions, but 3 are there"
    )
    signed = f"of {row.by_name} on {row.task}, signed in line {row.event_seq},"
    assert f"approvals_decision {run.id} {signed} is gone" in {
        fault.reason for fault in faults
    }


@pytest.mark.parametrize("revision", [1, 2])
def test_a_deleted_revision_of_a_write_is_named(run: Run, revision: int) -> None:
    edited = PendingWrite.objects.get(run=run, revision=2)
    row = PendingWrite.objects.get(run=run, write=edited.write, revision=revision)
    full.remove(row)
    assert (
        _first(run).reason
        == f"checkpoints_pendingwrite {run.id} {row.write} {revision} is gone"
    )


def test_a_deleted_result_is_named(run: Run) -> None:
    row = TaskResult.objects.get(run=run)
    full.remove(row)
    assert (
        _first(run).reason
        == f"checkpoints_taskresult {run.id} {row.task} attempt 1 is gone"
    )


@pytest.mark.parametrize("model", [ApprovalRequest, Receipt])
def test_a_deleted_request_or_receipt_is_named(run: Run, model: type[Model]) -> None:
    [row] = _all(model, run, "pk")
    full.remove(row)
    assert f"{model._meta.db_table} {run.id} {row.pk} is gone" in {
        fault.reason for fault in verify_run(run.id)
    }


def test_a_run_row_put_back_with_the_rows_behind_it_deleted_is_named(run: Run) -> None:
    """Whoever deletes the newest checkpoint and its lines, and puts the run's row back,
    cannot seal it.
    """
    rows = _all(Checkpoint, run, "seq")
    last = rows[-1]
    before = rows[-2]
    for line in RunEvent.objects.filter(run=run, seq__gt=before.event_seq):
        full.remove(line)
    full.remove(last)
    for name, value in {
        "head": before.id,
        "head_seq": before.seq,
        "head_hash": before.content_hash,
        "event_seq": before.event_seq,
        "event_hash": before.event_hash,
        "superstep": before.superstep,
    }.items():
        full.put(run, Run._meta.get_field(name), value)
    assert _first(run).reason.endswith(
        f"the row of run {run.key} is not as it was sealed"
    )


def test_a_run_row_put_back_to_an_earlier_seal_is_named_while_later_rows_are_there(
    tmp_path: Path, people: cast.People
) -> None:
    from orchestrator import runs
    from tests.support import run_actions

    run = run_actions.start("gated", tmp_path)
    earlier = Run.objects.get(id=run.id)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    runs.advance(run.id)
    for name in (
        "head",
        "head_seq",
        "head_hash",
        "event_seq",
        "event_hash",
        "superstep",
        "decisions",
        "seal",
        "status",
    ):
        full.put(run, Run._meta.get_field(name), getattr(earlier, name))
    reasons = {fault.reason for fault in verify_run(run.id)}
    assert f"checkpoints_run {run.id} counts 0 decisions, but 4 are there" in reasons
    assert any("names line" in reason for reason in reasons)


@pytest.mark.parametrize(
    "model", [Checkpoint, RunEvent, PendingWrite, TaskResult, Decision, ApprovalRequest]
)
def test_a_row_copied_from_another_run_is_named(
    run: Run, model: type[Model], tmp_path: Path, people: cast.People
) -> None:
    other = full.a_full_run(tmp_path, people.second_reviewer)
    mine, theirs = (_all(model, each_run, "pk")[-1] for each_run in (run, other))
    keep = {"id", "run", "seq", "write", "request", "receipt"}
    for field in full.columns(model):
        if field.name not in keep:
            full.put(mine, field, getattr(theirs, field.attname))
    assert any(fault.table == model._meta.db_table for fault in verify_run(run.id))


def test_a_result_copied_to_another_step_is_named(run: Run) -> None:
    row = TaskResult.objects.get(run=run)
    copy = TaskResult.objects.get(id=row.id)
    copy.pk = None
    copy.visit = 2
    copy.save(force_insert=True)
    assert (
        _first(run).reason
        == f"checkpoints_taskresult {run.id} 1 release 2 0 1 is not as it was sealed"
    )


def test_a_decision_put_in_by_hand_is_named(run: Run) -> None:
    row = Decision.objects.filter(run=run.id).order_by("event_seq").first()
    assert row is not None
    row.pk = uuid4()
    row._state.adding = True
    row.save(force_insert=True)
    faults = verify_run(run.id)
    assert (
        faults[0].reason
        == f"approvals_decision {run.id} {row.pk} is not as it was sealed"
    )


def test_a_reviewer_put_in_by_hand_is_named(run: Run) -> None:
    request = ApprovalRequest.objects.get(run=run)
    RequestReviewer.objects.create(request=request, principal="user:mallory")
    assert _first(run).reason.endswith(
        "names other reviewers than the policy that it was opened under"
    )


def test_a_line_behind_the_end_of_the_log_is_named(run: Run) -> None:
    line = RunEvent.objects.get(run=run, seq=run.event_seq)
    line.pk = None
    line.seq = line.seq + 1
    line.save(force_insert=True)
    assert (
        _first(run).reason
        == f"checkpoints_runevent {run.id} {line.seq} is not as it was sealed"
    )
