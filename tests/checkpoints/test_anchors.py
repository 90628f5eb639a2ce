"""A run that is deleted or put back as a whole, by SQL and in every table, is named:
its head was anchored before.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals import append_only
from approvals.models import (
    ApprovalRequest,
    Decision,
    Receipt,
    RequestReviewer,
    RequestViewer,
)
from checkpoints import anchors
from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.models import (
    AuditHead,
    AuditLine,
    Checkpoint,
    PendingWrite,
    Run,
    RunEvent,
)
from orchestrator import runs
from orchestrator.jobs import kinds
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from tests.support import api_graphs, forging
from tests.support.audit_checks import anchor_heads
from tests.support.cast import People
from tests.support.sealed_tables import run_sql

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def paused(people: People) -> Run:
    api_graphs.register()
    return runs.advance(
        runs.start("gated", {"claim_id": "C"}, key="C", by=people.starter).id
    )


def _anchor() -> None:
    """A turn in which all goes well."""
    assert anchor_heads().error == ""


def _named() -> list[tuple[str, str]]:
    """Run and reason of everything that verification of all runs names."""
    result = Verified()
    for _ in verify_runs(Wanted(), result, by=None):
        pass
    assert result.failed == len(result.bad)
    return [(fault["run"], fault["reason"]) for fault in result.bad]


def _rows(run: Run) -> list[Any]:
    """All rows of a run but its own, those that others point to last."""
    rows: list[Any] = [*Decision.objects.filter(run=run.id)]
    for model in (Receipt, RunEvent, Checkpoint, PendingWrite):
        rows += model._base_manager.filter(run=run.id)
    return rows


def _removed(run: Run) -> None:
    with append_only.triggers_lifted():
        RequestReviewer.objects.filter(request__run=run).delete()
        RequestViewer.objects.filter(request__run=run).delete()
        for row in _rows(run):
            type(row)._base_manager.filter(pk=row.pk)._raw_delete("default")
        ApprovalRequest.objects.filter(run=run.id)._raw_delete("default")
        Run.objects.filter(id=run.id)._raw_delete("default")


def test_a_sound_installation_has_no_fault_and_an_idle_turn_writes_nothing(
    paused: Run,
) -> None:
    _anchor()
    count = AuditLine.objects.count()
    _anchor()
    assert AuditLine.objects.count() == count
    assert _named() == []


def test_a_run_that_is_gone_with_all_its_rows_is_named(paused: Run) -> None:
    _anchor()
    _removed(paused)
    assert _named() == [
        (
            str(paused.id),
            f"checkpoints_run {paused.id} is gone, though its head is anchored in the audit log",
        )
    ]


def test_a_run_that_was_put_back_as_a_whole_is_named(
    paused: Run, people: People
) -> None:
    before = Run.objects.filter(id=paused.id).values().get()
    rows = {(type(row), row.pk) for row in _rows(paused)}
    runs.cancel(paused.id, by=people.starter, reason="no more")
    _anchor()
    request = ApprovalRequest.objects.get(run=paused.id)
    for row in _rows(paused):
        if (type(row), row.pk) not in rows:
            forging.remove(row)
    forging.tamper(request, status="open", outcome="", settled_at=None)
    head = Checkpoint.objects.get(id=before["head"])
    assert head.kept
    forging.tamper(
        paused, **{name: value for name, value in before.items() if name != "id"}
    )
    [(run, reason)] = _named()
    assert run == str(paused.id)
    assert "of its log, before line" in reason


def test_a_line_of_the_audit_log_that_is_gone_changed_or_renumbered_is_named(
    paused: Run,
) -> None:
    for number in range(3):
        audit_log.record("refused", actor=None, number=number)
    _anchor()
    first, second, third = AuditLine.objects.filter(kind="refused").order_by("number")
    forging.tamper(second, kind="granted")
    assert [reason for _, reason in _named()][0].startswith(
        "checkpoints_auditline 2 does not verify"
    )
    forging.tamper(second, kind="refused")
    assert _named() == []
    forging.remove(second)
    assert _named()[0][1] == "checkpoints_auditline 2 to 2 are gone"
    forging.tamper(third, number=2)
    assert any(
        "is not chained to the line before it" in reason for _, reason in _named()
    )
    assert first.number == 1


def test_the_head_that_was_told_outside_shows_a_tail_that_was_cut(
    paused: Run, tmp_path: Path, settings: Any
) -> None:
    file = tmp_path / "audit-head"
    settings.COUNTERSIGN = {**settings.COUNTERSIGN, "AUDIT_HEAD_FILE": str(file)}
    audit_log.record("refused", actor=None)
    _anchor()
    heads = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["number"], one["hash"]) for one in heads] == [
        (line.number, line.hash) for line in AuditLine.objects.order_by("-number")[:1]
    ]
    assert _named() == []
    for line in AuditLine.objects.all():
        forging.remove(line)
    forging.remove(AuditHead.objects.get())
    audit_chain.install_head()
    assert _named() == [
        (
            "",
            f"checkpoints_auditline {heads[-1]['number']} is gone: it was told"
            " outside the database",
        )
    ]


def test_the_job_is_a_standing_one_of_a_minute() -> None:
    assert kinds.STANDING["anchor_heads"] == 60
    assert kinds.KINDS["anchor_heads"] is anchors.anchor_heads


def test_a_turn_reads_what_moved_and_no_other_run(paused: Run) -> None:
    _anchor()
    _fill(1_000_000)
    newest = RunEvent.objects.order_by("-id").values_list("id", flat=True)[0]
    with CaptureQueriesContext(connection) as queries:
        pages = list(anchors.moved_runs(newest))
    assert len(queries) == 2
    assert len(pages) == 1
    newest_row, moved = (query["sql"] for query in queries)
    assert newest_row.endswith("LIMIT 1")
    for sql in (newest_row, moved):
        assert "Seq Scan" not in _plan(sql)
    if connection.vendor == "sqlite":
        assert "SEARCH checkpoints_runevent USING INTEGER PRIMARY KEY" in _plan(moved)
        assert "TEMP B-TREE" not in _plan(newest_row)


def _fill(rows: int) -> None:
    """Add this many lines of other runs."""
    columns = "run_id, seq, type, at, node, task, actor, payload, hash, seal_key"
    zero = (
        "'00000000-0000-0000-0000-000000000001'"
        if connection.vendor == "postgresql"
        else "'" + "0" * 31 + "1'"
    )
    payload = "''::bytea" if connection.vendor == "postgresql" else "X''"
    values = (
        f"{zero}, n, 'checkpoint_saved', '2026-01-01', '', '', '', {payload}, '', ''"
    )
    numbers = (
        f"generate_series(1, {rows}) AS n"
        if connection.vendor == "postgresql"
        else "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n"
        f" < {rows}) SELECT n FROM s)"
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO checkpoints_runevent ({columns}) SELECT {values} FROM {numbers}"
        )
        cursor.execute("ANALYZE checkpoints_runevent")


def _plan(sql: str) -> str:
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {sql}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def test_a_turn_that_breaks_off_between_two_lines_anchors_all_heads_or_none(
    people: People, paused: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.start("gated", {"claim_id": "D"}, key="D", by=people.starter)
    monkeypatch.setattr(anchors, "HEADS", 1)
    record = audit_log.record
    heads = list[str]()

    def breaks(kind: str, **facts: Any) -> Any:
        heads.append(kind)
        if len(heads) == 2:
            raise OSError("gone")
        return record(kind, **facts)

    with monkeypatch.context() as patch:
        patch.setattr(anchors.audit_log, "record", breaks)
        with pytest.raises(OSError, match="gone"):
            list(anchors.anchor_heads(None))  # type: ignore[arg-type]  # it asks nothing of its lease
    assert not AuditLine.objects.filter(kind=anchors.KIND).exists()
    list(anchors.anchor_heads(None))  # type: ignore[arg-type]
    assert AuditLine.objects.filter(kind=anchors.KIND).count() == 2


@pytest.mark.parametrize(
    "odd", [[], {"heads": 7}, {"heads": [["x", 1, "y"]], "upto": "z"}, {"upto": 2**70}]
)
def test_an_anchoring_line_that_was_changed_is_named_and_stops_neither_anchoring_nor_verifying(
    paused: Run, people: People, odd: Any
) -> None:
    _anchor()
    line = AuditLine.objects.get(kind=anchors.KIND)
    forging.tamper(line, facts=odd)
    runs.cancel(paused.id, by=people.starter)
    _anchor()
    assert [reason.split(":")[0] for _, reason in _named()] == [
        f"checkpoints_auditline {line.number} does not verify"
    ]
    _removed(paused)
    assert (str(paused.id), "is gone") in [
        (run, "is gone" if "is gone" in why else why) for run, why in _named()
    ]


def test_a_head_that_its_run_does_not_prove_is_not_signed_and_the_job_says_so(
    paused: Run, people: People
) -> None:
    before = AuditLine.objects.filter(kind=anchors.KIND).count()
    forging.tamper(paused, event_hash="f" * 64)
    error = anchor_heads().error
    assert f"the row of run {paused.key} is not as it was sealed" in error
    assert AuditLine.objects.filter(kind=anchors.KIND).count() == before


def test_the_heads_of_other_runs_are_signed_all_the_same(
    paused: Run, people: People
) -> None:
    other = runs.start("gated", {"claim_id": "D"}, key="D", by=people.starter)
    forging.tamper(paused, event_hash="f" * 64)
    anchor_heads()
    heads = [
        head
        for line in AuditLine.objects.filter(kind=anchors.KIND)
        for head in line.facts["heads"]
    ]
    assert {head[0] for head in heads} == {other.id.hex}
    assert not AuditLine.objects.filter(number=None).exists()


def test_a_head_that_went_back_is_not_signed_and_the_job_says_so(
    paused: Run, people: People
) -> None:
    before = Run.objects.filter(id=paused.id).values().get()
    runs.cancel(paused.id, by=people.starter, reason="no more")
    _anchor()
    lines = AuditLine.objects.filter(kind=anchors.KIND).count()
    forging.tamper(
        paused, **{name: value for name, value in before.items() if name != "id"}
    )
    assert "before line" in anchor_heads().error
    assert AuditLine.objects.filter(kind=anchors.KIND).count() == lines


def test_a_line_with_an_id_beyond_all_others_does_not_stop_anchoring_in_silence(
    paused: Run, people: People
) -> None:
    _anchor()
    line = RunEvent.objects.filter(run=paused.id).order_by("seq").first()
    run_sql(
        "UPDATE checkpoints_runevent SET id = %s WHERE id = %s",
        2**62 + 5,
        line.id if line else 0,
    )
    runs.cancel(paused.id, by=people.starter, reason="no more")
    assert (
        "was put in, so heads of runs can't be anchored until it is removed"
        in anchor_heads().error
    )
