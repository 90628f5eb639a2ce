"""Jobs and commands that seal rows anew sign nothing away: what was changed or deleted
by SQL before, or while they work, is named afterwards, or they refuse by name.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Model

from approvals.models import Decision
from checkpoints import key_rotation, retention, uploads
from checkpoints.core import codec
from checkpoints.erasure import erasure_job
from checkpoints.key_rotation import Rotated
from checkpoints.models import (
    AuditLine,
    Checkpoint,
    ErasedRow,
    ErasureRecord,
    Job,
    MemoryTrace,
    Run,
    RunEvent,
    RunMetadata,
    TaskResult,
    Upload,
    UploadReference,
)
from checkpoints.queue import jobs
from checkpoints.sealing import data_keys
from checkpoints.verification import verify_run
from checkpoints.verification.notes import metadata_left
from orchestrator import runs, tokens
from orchestrator.engine.errors import TamperedRow
from orchestrator.jobs import kinds
from orchestrator.models import ApiToken
from tests.support import cast, claims, memory_graphs
from tests.support import full_installation as full
from tests.support.chain import join_in_a_row
from tests.support.forging import remove, tamper
from tests.support.histories import long_run, policy, pruned, seqs
from tests.support.sealed_tables import ONE_KEY, TWO_KEYS
from tests.support.small_graphs import graph, started

pytestmark = pytest.mark.django_db(transaction=True)


def _tables(run: Run) -> set[str]:
    return {fault.table for fault in verify_run(run.id)}


# Memory


@pytest.mark.parametrize(
    "forged", [{"strength": 0.1}, {"at": "2000-01-01T00:00Z"}, {"version": 7}]
)
def test_the_sweep_of_memory_seals_no_trace_anew_that_was_changed(
    forged: dict[str, Any], configure: Any
) -> None:
    configure(MEMORY_DAYS=30)
    run = memory_graphs.remember("changed", 1)
    other = memory_graphs.remember("old", 2)
    trace = MemoryTrace.objects.get(key="changed")
    tamper(trace, **{"at": "2000-01-01T00:00Z", **forged})
    before = MemoryTrace.objects.filter(id=trace.id).values().get()
    job = kinds.advance(jobs.add_job("sweep_memory"))
    assert job.error_code == "tampered_row"
    assert "facts changed" in job.error
    assert MemoryTrace.objects.filter(id=trace.id).values().get() == before
    assert _tables(run) == {"checkpoints_memorytrace"}
    assert _tables(other) == set()
    assert not AuditLine.objects.filter(kind="memory_forgotten").exists()


@pytest.mark.parametrize("forged", [{"strength": 0.1}, {"version": 7}, {"run": None}])
def test_nothing_lands_on_a_trace_that_was_changed(forged: dict[str, Any]) -> None:
    run = memory_graphs.remember("changed", 1)
    tamper(MemoryTrace.objects.get(key="changed"), **forged)
    later = memory_graphs.remember("changed", 2)
    assert later.status == "tampered"
    assert later.error_code == "tampered_row"
    assert _tables(run) == {"checkpoints_memorytrace"}


def test_a_trace_that_was_deleted_is_named_after_another_run_remembered_it_anew() -> (
    None
):
    run = memory_graphs.remember("gone", 1)
    remove(MemoryTrace.objects.get(key="gone"))
    later = memory_graphs.remember("gone", 2)
    assert later.status == "completed"
    assert _tables(later) == set()
    assert _tables(run) == {"checkpoints_memorytrace"}


def test_the_admin_has_no_trace_forgotten_that_was_changed(admin_client: Any) -> None:
    run = memory_graphs.remember("changed", 1)
    trace = MemoryTrace.objects.get(key="changed")
    tamper(trace, strength=0.1)
    page = admin_client.post(
        f"/admin/checkpoints/memorytrace/{trace.id}/delete/",
        {"post": "yes"},
        follow=True,
    )
    assert (
        "Not forgotten: checkpoints_memorytrace facts changed 1 is not as it was sealed."
        in page.content.decode()
    )
    assert _tables(run) == {"checkpoints_memorytrace"}


# Erasure


@pytest.fixture
def run(people: cast.People, tmp_path: Path) -> Run:
    return full.a_full_run(tmp_path, people.reviewer)


def _work_on(record: ErasureRecord) -> Job:
    return kinds.advance(Job.objects.get(run=record.run).id)


@pytest.mark.parametrize(
    "forged", [{"by_name": "nobody"}, {"reason": "none"}, {"paths": ["total"]}]
)
def test_the_end_of_an_erasure_seals_no_record_anew_that_was_changed_meanwhile(
    forged: dict[str, Any],
    run: Run,
    people: cast.People,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = retention.begin_erasure(run.id, reason="asked", by=people.steward)
    monkeypatch.setattr(
        erasure_job, "erase_orphans", lambda run: tamper(record, **forged)
    )
    job = _work_on(record)
    assert job.error_code == "tampered_row"
    assert str(record.id) in job.error
    assert ErasureRecord.objects.get(id=record.id).ended_at is None
    assert "checkpoints_erasurerecord" in _tables(run)


def test_an_erasure_whose_rows_were_deleted_before_its_end_refuses(
    run: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = retention.begin_erasure(run.id, reason="asked", by=people.steward)
    decisions = ErasedRow.objects.filter(record=record, table=Decision._meta.db_table)
    monkeypatch.setattr(erasure_job, "erase_orphans", lambda run: remove(decisions[0]))
    job = _work_on(record)
    assert job.error_code == "tampered_row"
    assert "of which" in job.error
    assert ErasureRecord.objects.get(id=record.id).ended_at is None


@pytest.mark.parametrize(
    "model",
    [Decision, TaskResult, RunEvent, Checkpoint],
    ids=lambda model: model.__name__,
)
@pytest.mark.parametrize("how", ["changed", "deleted"])
def test_what_was_done_to_a_row_between_the_order_of_an_erasure_and_its_work_is_named(
    how: str, model: type[Model], run: Run, people: cast.People
) -> None:
    record = retention.begin_erasure(run.id, reason="asked", by=people.steward)
    rows: Any = model._base_manager.filter(run=run.id).order_by("pk")
    row = rows[1] if len(rows) > 1 else rows[0]
    changes: dict[str, Any] = (
        {"line": 2} if hasattr(row, "line") else {"actor": "nobody"}
    )
    tamper(row, **changes) if how == "changed" else remove(row)
    _work_on(record)
    assert model._meta.db_table in {fault.table for fault in verify_run(run.id)}


@pytest.fixture
def noted() -> Run:
    flow = graph("noted")
    flow.node("only")(lambda state, ctx: {"letter": "the secret word", "notes": ["n"]})
    join_in_a_row(flow, "only")
    started(flow)
    run = runs.start(
        "noted", {}, metadata={"about": "the secret word", "team": "claims"}
    )
    return runs.advance(run.id)


@pytest.mark.parametrize("name", ["about", "team"])
@pytest.mark.parametrize("paths", [None, ["letter"]])
def test_metadata_that_is_deleted_after_an_erasure_is_named(
    paths: Any, name: str, noted: Run
) -> None:
    retention.erase(noted.id, paths, reason="asked")
    assert verify_run(noted.id) == []
    remove(RunMetadata.objects.get(run=noted, name=name))
    assert verify_run(noted.id) != []


def test_a_planted_row_does_not_end_the_last_step_of_an_erasure(noted: Run) -> None:
    retention.erase(noted.id, ["letter"], reason="asked")
    left = metadata_left(noted)
    record = ErasureRecord.objects.get(run=noted.id)
    ErasedRow.objects.create(
        record=record,
        run=noted.id,
        table=RunMetadata._meta.db_table,
        row="none",
        at=record.at,
    )
    assert metadata_left(noted) == left


@pytest.mark.parametrize("value", ["a\0b", 2**60])
def test_forged_metadata_does_not_end_the_last_step_of_an_erasure_and_is_named(
    value: Any, noted: Run
) -> None:
    retention.erase(noted.id, ["letter"], reason="asked")
    entry = RunMetadata.objects.get(run=noted, name="team")
    tamper(entry, value=codec.pack(json.dumps(value).encode()))
    assert metadata_left(noted)
    assert any("not as it was sealed" in fault.reason for fault in verify_run(noted.id))


# Keys


@pytest.mark.parametrize(
    "model",
    [Decision, TaskResult, RunEvent, Checkpoint],
    ids=lambda model: model.__name__,
)
def test_a_rotation_of_keys_hides_no_row_that_was_changed_or_deleted(
    model: type[Model],
    configure: Any,
    tmp_path: Path,
    people: cast.People,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data_keys, "make_data_key", lambda run: None)
    configure(**ONE_KEY)
    full.encrypted_gated()
    run = full.a_full_run(tmp_path, people.reviewer, graph="secret")
    rows: Any = model._base_manager.filter(run=run.id).order_by("pk")
    changes: dict[str, Any] = (
        {"line": 2} if hasattr(rows[0], "line") else {"actor": "nobody"}
    )
    tamper(rows[0], **changes)
    configure(**TWO_KEYS)
    list(key_rotation.rotate(Rotated()))
    assert model._meta.db_table in _tables(run)
    remove(rows[0])
    list(key_rotation.rotate(Rotated()))
    assert model._meta.db_table in _tables(run)


# Retention


@pytest.mark.parametrize("seq", [0, 3, 6, 7])
@pytest.mark.parametrize("how", ["deleted", "moved", "resized"])
def test_a_removal_anchors_no_checkpoint_anew_that_was_changed_deleted_or_moved(
    seq: int, how: str
) -> None:
    run = long_run()
    beside = long_run()
    row = Checkpoint.objects.get(run=run, seq=seq)
    if how == "deleted":
        remove(row)
    else:
        tamper(row, **({"seq": 99} if how == "moved" else {"stored_size": 0}))
    left = len(seqs(run))
    pruned(policy("long", keep_last=2))
    run.refresh_from_db()
    assert run.status == "tampered"
    assert len(seqs(run)) == left
    assert len(seqs(beside)) == 2
    assert verify_run(run.id) != []


def test_two_jobs_one_after_the_other_hide_no_result_that_was_deleted(
    run: Run, people: cast.People
) -> None:
    remove(TaskResult.objects.filter(run=run.id)[0])
    pruned(policy(run.graph, keep_last=1))
    assert "checkpoints_taskresult" in _tables(run)
    with pytest.raises(TamperedRow, match="does not verify, so nothing is erased"):
        retention.erase(run.id, by=people.steward)


def test_a_file_whose_reference_was_deleted_is_named_after_the_sweep_took_it(
    settings: Any, tmp_path: Path
) -> None:
    settings.MEDIA_ROOT = tmp_path
    flow = claims.with_a_file("swept_away", required=True)
    with claims.registered(flow):
        file = uploads.save_upload(BytesIO(b"x"), name="a.txt", by=None)
        named = runs.cancel(runs.start(flow.name, {"letter": file}).id)
        Upload.objects.update(at="2000-01-01T00:00Z")
        UploadReference.objects.filter(run=named.id).delete()
        assert kinds.advance(jobs.add_job("sweep_uploads")).error == ""
        assert {fault.code for fault in verify_run(named.id)} == {"payload_lost"}


# Tokens


def test_a_token_that_was_changed_is_not_sealed_anew_when_it_is_revoked(
    people: cast.People,
) -> None:
    tokens.make_token(people.steward, scopes=["read"])
    row = ApiToken.objects.get()
    tamper(row, scopes=["read", "decide"])
    tokens.revoke_token(row)
    assert [fault.code for fault in tokens.token_faults()] == ["tampered_row"]
