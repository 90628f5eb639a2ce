"""A verification names what an intruder wrote, and never raises: an examiner that fails
is named, and hides nothing that the others find.
"""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection

from checkpoints import uploads, verification
from checkpoints.audit import lines as audit_log
from checkpoints.core import codec
from checkpoints.models import (
    AuditLine,
    Checkpoint,
    Run,
    RunMetadata,
    TaskResult,
    Upload,
)
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.verification import (
    NOT_VERIFIED,
    TAMPERED,
    Fault,
    Subject,
    verify_run,
)
from checkpoints.verification.log_fold import document_by_log
from orchestrator import runs
from orchestrator.engine.errors import TamperedRow
from orchestrator.jobs import integrity
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from tests.support import rows, run_actions
from tests.support.chain import join_in_a_row
from tests.support.forging import remove, tamper
from tests.support.large_states import large
from tests.support.small_graphs import graph, registered, started

pytestmark = pytest.mark.django_db


def _reasons(run: Run) -> list[str]:
    return [fault.reason for fault in verify_run(run.id)]


def _named(run: Run) -> list[Fault]:
    """The faults of a run, each of which an examiner found."""
    faults = verify_run(run.id)
    assert [fault.reason for fault in faults if fault.code == NOT_VERIFIED] == []
    return faults


def _nested(depth: int) -> bytes:
    return codec.pack(b"[" * depth + b"]" * depth)


def _failing(error: Exception) -> Any:
    def examiner(subject: Subject) -> Iterator[Fault]:
        yield subject.fault(subject.run, "differs")
        raise error

    return examiner


def test_an_examiner_that_raises_is_named_and_hides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = rows.a_run()
    before = _reasons(run)
    failing = _failing(KeyError("x"))
    monkeypatch.setattr(verification, "EXAMINERS", [failing, *verification.EXAMINERS])
    faults = verify_run(run.id)
    differs, failed, *others = faults
    assert differs.reason.endswith("differs")
    assert failed.reason.endswith("could not be verified: KeyError")
    assert failed.code not in TAMPERED
    assert [fault.reason for fault in others] == before


def test_an_outage_of_the_database_is_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = rows.a_run()
    failing = _failing(OperationalError("the connection is lost"))
    monkeypatch.setattr(verification, "EXAMINERS", [failing])
    with pytest.raises(OperationalError):
        verify_run(run.id)


def test_a_run_that_cannot_be_verified_stops_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = rows.a_run()
    # No row of a checkpoint is there, which each verification names.
    second = rows.a_run()
    plain = integrity.verify_run

    def raising(run: Any) -> list[Fault]:
        if run == first.id:
            raise ValueError("no JSON")
        return plain(run)

    def failing() -> Iterator[Fault]:
        yield Fault("", "", "t", "t 1", "t 1 differs")
        raise TypeError("x")

    monkeypatch.setattr(integrity, "verify_run", raising)
    monkeypatch.setattr(integrity, "memory_of_nobody", failing)
    result = Verified()
    for _ in verify_runs(Wanted(mark=True), result, by=None):
        pass
    assert result.checked == 2
    reasons = {entry["run"]: entry["reason"] for entry in result.bad}
    assert "could not be verified: ValueError" in reasons[str(first.id)]
    assert reasons[str(second.id)].endswith("is gone")
    unnamed = [entry["reason"] for entry in result.bad if not entry["run"]]
    assert unnamed[0] == "t 1 differs"
    assert "could not be verified: TypeError" in unnamed[1]
    first.refresh_from_db()
    second.refresh_from_db()
    assert first.status == "paused"
    assert second.status == "tampered"


def test_a_run_is_marked_for_a_fault_behind_an_examiner_that_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(subject: Subject) -> Iterator[Fault]:
        raise KeyError("x")
        yield

    run = rows.a_run()
    monkeypatch.setattr(verification, "EXAMINERS", [failing, *verification.EXAMINERS])
    for _ in verify_runs(Wanted(runs=(str(run.id),), mark=True), Verified(), by=None):
        pass
    run.refresh_from_db()
    assert run.status == "tampered"


@pytest.mark.parametrize("status", ["failed", "unknown", "incompatible"])
@pytest.mark.parametrize("error", [[1], [], "x", 7, False])
def test_an_error_that_is_none_is_named(status: str, error: Any) -> None:
    run = rows.a_run(status=status, error=pack_json(error), error_code="node_failed")
    rows.an_event(
        run,
        1,
        type=f"run_{status}",
        payload={"code": "node_failed", "message": "m"},
    )
    reasons = [fault.reason for fault in _named(run)]
    assert any("holds an error that is none" in reason for reason in reasons)


@pytest.mark.parametrize("nodes", [[1], {}, 7, "x", [{}], [{"node": "hand_in"}]])
def test_a_checkpoint_that_lists_no_nodes_is_named(nodes: Any, tmp_path: Path) -> None:
    run = run_actions.start("effects", tmp_path)
    result = TaskResult.objects.filter(run=run.id, seq__isnull=False)[0]
    point = Checkpoint.objects.get(run=run, seq=result.seq)
    tamper(point, nodes=nodes)
    assert {fault.table for fault in _named(run)} >= {
        "checkpoints_checkpoint",
        "checkpoints_taskresult",
    }


@pytest.mark.parametrize(
    "value",
    [
        codec.pack(b'"\\u0000"'),
        codec.pack(b"9007199254740993"),
        _nested(101),
        _nested(5000),
        b"",
    ],
    ids=["nul", "huge", "deep", "deeper", "empty"],
)
@pytest.mark.django_db(transaction=True)
def test_metadata_without_a_canonical_form_is_named(value: bytes) -> None:
    run = _noted()
    row = RunMetadata.objects.get(run=run.id)
    tamper(row, value=value)
    assert row._meta.db_table in {fault.table for fault in _named(run)}


def _noted() -> Run:
    flow = graph("noted")
    flow.node("only")(lambda state, ctx: None)
    join_in_a_row(flow, "only")
    registered(flow)
    return runs.start("noted", {}, metadata={"team": "claims"})


@pytest.mark.parametrize(
    "ref",
    [{"file": []}, {"file": {}}, {"size": "x"}, {"size": None}, {"sha256": 7}],
    ids=str,
)
def test_a_reference_to_a_file_that_is_none_is_named(ref: dict[str, Any]) -> None:
    file = uploads.save_upload(BytesIO(b"x"), name="a.txt", by=None)
    run = rows.a_run(input={"rows": file})
    tamper(run, input=pack_json({"rows": {**file, **ref}}))
    assert any("another input" in fault.reason for fault in _named(run))


@pytest.mark.parametrize("depth", [101, 1000, 5000])
def test_an_input_that_is_nested_without_end_is_named(depth: int) -> None:
    run = rows.a_run()
    tamper(run, input=_nested(depth))
    assert any("another input" in fault.reason for fault in _named(run))


@pytest.mark.parametrize("stored_as", ["../../etc/passwd", "/etc/passwd", "a\x00b"])
def test_a_file_that_is_stored_nowhere_is_named(stored_as: str) -> None:
    file = uploads.save_upload(BytesIO(b"x"), name="a.txt", by=None)
    run = rows.a_run(input={"rows": file})
    if "\x00" in stored_as and connection.vendor == "postgresql":
        # No column of it can hold a NUL.
        return
    Upload.objects.update(stored_as=stored_as)
    assert Upload._meta.db_table in {fault.table for fault in _named(run)}


@pytest.mark.parametrize("line", [[], {}, "x", None])
def test_a_line_that_is_no_number_is_named(line: Any) -> None:
    run = rows.a_run(origin_checkpoint=rows.missing())
    facts = {
        "checkpoint": str(rows.missing()),
        "graph": run.graph,
        "version": "1",
        "input_hash": run.input_hash,
        "departure": str(rows.missing()),
        "departure_seq": 1,
        "stops": [],
        "patched": [],
        "travel": "fork",
        "line": line,
    }
    event = rows.an_event(run, 1, type="run_started", payload=facts)
    assert event._meta.db_table in {fault.table for fault in _named(run)}


@pytest.mark.parametrize(
    "change", [[7], [{}], [{"op": "no such op"}], {"op": "set"}, [{"op": "within"}]]
)
def test_a_parent_whose_change_cannot_be_applied_is_named(change: Any) -> None:
    run = runs.advance(started(large("long", "abcdef", snapshot=2)).id)
    points = Checkpoint.objects.filter(run=run).order_by("seq")
    # A load of it begins with its own snapshot, so that the gap before it is no reason
    # to go no further.
    child = points.filter(seq__gt=2).exclude(snapshot_hash="")[0]
    earlier, parent = points.filter(seq__in=[child.seq - 2, child.seq - 1])
    remove(parent)
    tamper(earlier, id=parent.id, change=pack_json(change), anchor=0)
    reasons = [fault.reason for fault in _named(run)]
    assert any("cannot be applied" in reason for reason in reasons), reasons


def test_a_line_with_a_change_of_no_checkpoint_is_examined() -> None:
    run = rows.a_run()
    # Behind a gap, where the hash of the line before is not known.
    rows.an_event(run, 2, type="run_paused", payload={"change": "x"})
    assert _named(run)


@pytest.mark.parametrize("pair", [["x", "y"], ["", ""], ["x"]])
def test_a_snapshot_of_what_is_no_checkpoint_is_named(pair: list[str]) -> None:
    run = rows.a_run()
    checkpoint = rows.a_checkpoint(run, 0)
    rows.an_event(
        run,
        1,
        type="checkpoint_saved",
        payload={"checkpoint": str(checkpoint.id), "kept": True, "superstep": 0},
    )
    # Behind a gap, where the hash of the line before is not known.
    rows.an_event(run, 3, type="history_removed", payload={"snapshots": [pair]})
    reasons = [fault.reason for fault in _named(run)]
    assert any("as its fact 'snapshots'" in reason for reason in reasons)
    with pytest.raises(TamperedRow):
        document_by_log(checkpoint.id)


@pytest.mark.parametrize("kind", ["run_held", "checkpoint_pinned"])
@pytest.mark.parametrize("name", [[], {}, None, 7.5])
def test_a_sealed_line_of_a_hold_or_pin_that_names_none_is_named(
    kind: str, name: Any
) -> None:
    run = rows.a_run()
    facts = {"hold": name, "checkpoint": name}
    audit_log.record(kind, actor=None, run=run.id, **facts)
    assert AuditLine._meta.db_table in {fault.table for fault in _named(run)}
