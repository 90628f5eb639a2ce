"""What a worker would use next and is not as it was written: he refuses, the run is
tampered, nothing is applied. And how such a run goes on.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F, Model
from django.test import Client as Browser
from django.urls import reverse

from approvals.models import ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.ledger import run_error
from checkpoints.models import (
    AuditLine,
    Checkpoint,
    PendingWrite,
    Run,
    RunEvent,
    TaskResult,
)
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from tests.graphs_app import graphs
from tests.support import cast, run_actions
from tests.support import full_installation as full
from tests.support.api_people import Client

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def decided(tmp_path: Path, people: cast.People) -> Run:
    """A run of which every write is decided, and that nobody has worked on since."""
    run = run_actions.start("gated", tmp_path)
    run_actions.sign(
        run,
        run_actions.reviewer(people.reviewer),
        [("edit", {"amount": "9"}), "approve", "approve", "approve"],
    )
    return run


def _changed(model: type[Model], name: str, **where: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        row = model._base_manager.filter(run=run.id, **where).order_by("pk").last()
        assert row is not None
        field = model._meta.get_field(name)
        full.put(row, field, full.another(field, getattr(row, field.attname)))

    return change


def _gone(model: type[Model], **where: Any) -> Callable[[Run], None]:
    def remove(run: Run) -> None:
        row = model._base_manager.filter(run=run.id, **where).order_by("pk").last()
        assert row is not None
        full.remove(row)

    return remove


def _run_column(name: str) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        field = Run._meta.get_field(name)
        full.put(
            run,
            field,
            full.another(field, getattr(Run.objects.get(id=run.id), field.attname)),
        )

    return change


def _by_hand(run: Run) -> None:
    row = Decision.objects.filter(run=run.id).order_by("event_seq").first()
    assert row is not None
    row.pk = uuid4()
    row._state.adding = True
    row.verdict = "reject"
    row.save(force_insert=True)


USED_NEXT = {
    "the state": _changed(Checkpoint, "change", anchor=F("seq")),
    "the head's header": _changed(Checkpoint, "superstep"),
    "the head is gone": _gone(Checkpoint),
    "a held write's value": _changed(PendingWrite, "value"),
    "a held write's hash": _changed(PendingWrite, "hash"),
    "a held write is gone": _gone(PendingWrite),
    "the edited revision is gone": _gone(PendingWrite, revision=2),
    "a decision's verdict": _changed(Decision, "verdict"),
    "a decision's value": _changed(Decision, "final_value"),
    "a decision's person": _changed(Decision, "by_name"),
    "the last decision is gone": _gone(Decision),
    "a decision by hand": _by_hand,
    "the policy": _changed(ApprovalRequest, "policy"),
    "the run's head": _run_column("head_hash"),
    "the run's log": _run_column("event_hash"),
    "the number of decisions": _run_column("decisions"),
    "the run's input": _run_column("input"),
    "the hash of the input": _run_column("input_hash"),
    "whom it is for": _run_column("key"),
}


@pytest.mark.parametrize("change", USED_NEXT.values(), ids=USED_NEXT)
def test_a_worker_refuses_what_is_not_as_it_was_written(
    change: Callable[[Run], None], decided: Run, tmp_path: Path
) -> None:
    change(decided)
    before = _rows(decided)
    run = runs.advance(decided.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert _rows(run) == before
    assert not (tmp_path / "outside.log").exists()
    assert verify_run(run.id) != []


def _rows(run: Run) -> list[int]:
    return [
        model._base_manager.filter(run=run.id).count()
        for model in (Checkpoint, RunEvent, TaskResult, PendingWrite)
    ]


def test_a_recorded_result_that_was_changed_is_not_used(tmp_path: Path) -> None:
    graphs.BROKEN.add("fragile")
    try:
        run = run_actions.start("flaky", tmp_path)
    finally:
        graphs.BROKEN.clear()
    TaskResult.objects.filter(run=run).update(
        seq=None
    )  # as if its superstep were still in hand
    _changed(TaskResult, "output")(run)
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"


def test_a_change_on_the_way_from_the_last_snapshot_is_not_used(tmp_path: Path) -> None:
    graphs.BROKEN.add("fragile")
    try:
        run = run_actions.start("flaky", tmp_path)
    finally:
        graphs.BROKEN.clear()
    assert Checkpoint.objects.filter(run=run, anchor__lt=F("seq"), id=run.head).exists()
    _changed(Checkpoint, "change")(run)
    runs.resume(run.id)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"


def test_a_run_whose_row_was_put_back_behind_later_rows_is_tampered_and_acts_only_once(
    tmp_path: Path,
) -> None:
    run = runs.start("effects", {"folder": str(tmp_path)})
    (before,) = Run.objects.filter(id=run.id).values()
    assert runs.advance(run.id).status == Status.COMPLETED
    acted = (tmp_path / "outside.log").read_text()
    Run.objects.filter(id=run.id).update(**before | {"epoch": 50})
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"
    assert (tmp_path / "outside.log").read_text() == acted
    assert runs.advance(run.id).status == Status.TAMPERED


def test_a_tampered_run_says_what_is_wrong_and_the_ways_out(
    decided: Run, people: cast.People
) -> None:
    _changed(PendingWrite, "value")(decided)
    runs.advance(decided.id)
    facts = Client(people.steward).get(f"runs/{decided.id}/").json()
    assert facts["status"] == "tampered"
    assert facts["error"]["code"] == "tampered_row"
    assert "is not as it was sealed" in facts["error"]["message"]
    assert "Restore it from a backup, then resume the run" in facts["error"]["cure"]


def test_a_tampered_run_is_not_resumed_while_a_fault_is_left(
    decided: Run, people: cast.People
) -> None:
    _changed(PendingWrite, "value")(decided)
    runs.advance(decided.id)
    with pytest.raises(
        TamperedRow, match="does not verify: checkpoints_pendingwrite"
    ) as refused:
        runs.resume(decided.id, by=people.steward)
    assert refused.value.facts["row"].startswith("checkpoints_pendingwrite")
    assert Run.objects.get(id=decided.id).status == Status.TAMPERED
    assert AuditLine.objects.filter(
        kind="refused_tampered", run=decided.id, actor=people.steward
    ).exists()


def test_a_tampered_run_whose_row_was_restored_goes_on(
    decided: Run, people: cast.People, tmp_path: Path
) -> None:
    backup = PendingWrite.objects.filter(run=decided.id).order_by("pk").last()
    assert backup is not None
    _changed(PendingWrite, "value")(decided)
    assert runs.advance(decided.id).status == Status.TAMPERED
    full.put(backup, PendingWrite._meta.get_field("value"), backup.value)
    runs.resume(decided.id, by=people.steward)
    run = runs.advance(decided.id)
    assert run.status == Status.COMPLETED
    assert run.error_code == ""
    assert "released" in (tmp_path / "outside.log").read_text()
    assert verify_run(run.id) == []


def test_nobody_decides_in_a_run_whose_row_was_put_back(
    tmp_path: Path, people: cast.People
) -> None:
    run = run_actions.start("gated", tmp_path)
    _run_column("event_hash")(run)
    with pytest.raises(TamperedRow):
        run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"] * 4)
    assert Run.objects.get(id=run.id).status == Status.TAMPERED
    assert not Decision.objects.exists()


def test_a_tampered_run_keeps_what_was_found(decided: Run) -> None:
    _changed(Decision, "verdict")(decided)
    run = runs.advance(decided.id)
    error = run_error.stored_error(run)
    assert error is not None
    assert error["message"].startswith("approvals_decision")


def test_the_page_of_a_tampered_run_says_what_is_wrong_and_lets_who_may_steer_resume_it(
    decided: Run, people: cast.People, client: Browser
) -> None:
    backup = PendingWrite.objects.filter(run=decided.id).order_by("pk").last()
    assert backup is not None
    _changed(PendingWrite, "value")(decided)
    runs.advance(decided.id)
    client.force_login(people.steward)
    page = client.get(reverse("run", args=[decided.id])).content.decode()
    assert "A record does not match what was written" in page
    assert (
        f"checkpoints_pendingwrite {decided.id} {backup.write} {backup.revision} is"
        " not as it was sealed." in page
    )
    refused = client.post(reverse("resume", args=[decided.id]), follow=True)
    assert "does not verify" in refused.content.decode()
    full.put(backup, PendingWrite._meta.get_field("value"), backup.value)
    client.post(reverse("resume", args=[decided.id]))
    assert Run.objects.get(id=decided.id).status == Status.QUEUED
