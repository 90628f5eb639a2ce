"""The job that numbers and chains the audit log never signs away what somebody deleted
by SQL.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from checkpoints.audit import chain as audit_chain
from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditHead, AuditLine
from orchestrator.engine.errors import TamperedRow
from tests.support import forging
from tests.support.audit_checks import all_reasons, anchor_heads
from tests.support.sealed_tables import run_sql

pytestmark = pytest.mark.django_db(transaction=True)


def _lines(count: int) -> list[AuditLine]:
    return [audit_log.record("refused", actor=None, n=n) for n in range(count)]


def _renumber_behind(number: int) -> None:
    """Delete a line, and let the job number those behind it anew."""
    run_sql("DELETE FROM checkpoints_auditline WHERE number = %s", number)
    run_sql(
        "UPDATE checkpoints_auditline SET number = NULL, hash = '' WHERE number > %s",
        number,
    )


@pytest.fixture
def chained() -> None:
    """Some twenty lines, chained."""
    _lines(20)
    assert anchor_heads().error == ""


@pytest.fixture
def file(tmp_path: Path, configure: Callable[..., None]) -> Path:
    """The file of `AUDIT_HEAD_FILE`."""
    path = tmp_path / "audit-head"
    configure(AUDIT_HEAD_FILE=str(path))
    return path


@pytest.mark.usefixtures("chained")
def test_the_job_does_not_number_lines_anew_behind_a_deleted_one() -> None:
    _renumber_behind(15)
    job = anchor_heads()
    assert job.error_code == "tampered_row"
    assert "the audit log was chained up to line 21" in job.error
    assert AuditLine.objects.filter(number__gt=14).count() == 0


@pytest.mark.usefixtures("chained")
def test_verification_names_lines_that_wait_to_be_numbered_anew() -> None:
    _renumber_behind(15)
    assert (
        "checkpoints_auditline 15 to 21 are gone: the job numbered lines up to 21"
        in all_reasons()
    )


@pytest.mark.usefixtures("chained")
def test_verification_still_names_them_after_the_next_turn() -> None:
    _renumber_behind(15)
    anchor_heads()
    assert (
        "checkpoints_auditline 15 to 21 are gone: the job numbered lines up to 21"
        in all_reasons()
    )


@pytest.mark.usefixtures("chained")
def test_the_job_does_not_chain_where_its_own_row_is_gone() -> None:
    forging.remove(AuditHead.objects.get())
    _lines(1)
    job = anchor_heads()
    assert job.error_code == "tampered_row"
    assert (
        "the row of checkpoints_audithead, which says where the chain stands, is gone"
        in job.error
    )
    assert any("checkpoints_audithead" in reason for reason in all_reasons())


@pytest.mark.usefixtures("chained")
def test_its_own_row_is_not_made_anew_by_a_migration() -> None:
    forging.remove(AuditHead.objects.get())
    audit_chain.install_head()
    assert not AuditHead.objects.exists()


@pytest.mark.usefixtures("chained")
@pytest.mark.parametrize(
    "change",
    [{"number": 14}, {"hash": "0" * 64}, {"seal": b"x" * 32}, {"seal_key": "none"}],
)
def test_the_job_does_not_chain_where_its_own_row_was_changed(
    change: dict[str, Any],
) -> None:
    forging.tamper(AuditHead.objects.get(), **change)
    _lines(1)
    assert anchor_heads().error_code in ("tampered_row", "wrong_key")
    assert any("checkpoints_audithead" in reason for reason in all_reasons())


def test_the_job_compares_the_last_head_of_the_file(file: Path) -> None:
    _lines(20)
    anchor_heads()
    before = AuditHead.objects.values().get()
    _lines(3)
    anchor_heads()
    # Somebody who kept a copy of the row puts it back with the lines behind it.
    run_sql("DELETE FROM checkpoints_auditline WHERE number > %s", before["number"])
    forging.tamper(AuditHead.objects.get(), **before)
    _lines(1)
    job = anchor_heads()
    assert job.error_code == "tampered_row"
    assert "is gone than the file of AUDIT_HEAD_FILE says" in job.error


def test_verification_compares_each_head_of_the_file_and_not_only_the_last(
    file: Path,
) -> None:
    _lines(20)
    anchor_heads()
    head = AuditHead.objects.get()
    before = AuditHead.objects.values().get()
    # The table as if lines had been numbered anew, with a head row that somebody could
    # put back, and told anew.
    _lines(3)
    anchor_heads()
    file.write_text(
        json.dumps({"number": head.number, "hash": "f" * 64})
        + "\n"
        + file.read_text().splitlines()[-1]
        + "\n"
    )
    assert before["number"] == head.number
    assert [
        f"checkpoints_auditline {head.number} is another line: it was told outside the database"
    ] == all_reasons()


def test_verification_names_a_file_that_goes_back(file: Path) -> None:
    _lines(3)
    anchor_heads()
    _lines(3)
    anchor_heads()
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    [reason] = all_reasons()
    assert reason.endswith("the chain went back")


def test_a_file_that_cannot_be_read_is_named_and_the_job_does_not_chain(
    file: Path,
) -> None:
    file.write_text("{}\n")
    _lines(1)
    assert "is no head of the audit log" in anchor_heads().error
    assert any(
        "the file of AUDIT_HEAD_FILE cannot be read" in reason
        for reason in all_reasons()
    )


@pytest.mark.usefixtures("chained")
def test_a_line_without_a_number_that_is_older_than_a_numbered_one_is_refused_and_named() -> (
    None
):
    at = timezone.now() - timedelta(days=1)
    line = AuditLine.objects.get(number=7)
    # Sealed, as somebody who found an old line of another copy of this database might
    # put it back.
    run_sql(
        "UPDATE checkpoints_auditline SET number = NULL, hash = '' WHERE number = 7"
    )
    if connection.vendor == "postgresql":
        _sealed_at(line, at)
    with pytest.raises(TamperedRow, match="has no number, though later lines have one"):
        audit_chain.chain_lines()
    assert any(
        "has no number, though later lines have one" in reason
        for reason in all_reasons()
    )


def _sealed_at(line: AuditLine, at: Any) -> None:
    """The line as if it had been written then."""
    from checkpoints.sealing import sealed_rows

    line.at = at
    sealed_rows.seal(line, sealed_rows.PLAIN)
    forging.tamper(line, at=at, seal=line.seal)


@pytest.mark.skipif(
    connection.vendor != "postgresql", reason="one writer at a time on SQLite"
)
def test_a_line_of_a_transaction_that_ended_later_is_numbered() -> None:
    first, *_ = _lines(5)
    run_sql("UPDATE checkpoints_auditline SET id = id + 100")
    anchor_heads()
    late = audit_log.record("refused", actor=None)
    run_sql("UPDATE checkpoints_auditline SET id = %s WHERE id = %s", first.id, late.id)
    assert anchor_heads().error == ""
    assert AuditLine.objects.get(id=first.id).number == 7


@pytest.mark.usefixtures("chained")
def test_a_waiting_line_that_was_changed_is_named_before_it_has_a_number() -> None:
    [line] = _lines(1)
    forging.tamper(line, kind="granted")
    assert [
        f"checkpoints_auditline with the id {line.id} does not verify" in reason
        for reason in all_reasons()
    ] == [True]


@pytest.mark.usefixtures("chained")
def test_numbers_that_the_job_did_not_give_are_named() -> None:
    [line] = _lines(1)
    hash_ = audit_chain.line_hash(
        AuditLine.objects.get(number=21).hash, _numbered(line, 22)
    )
    forging.tamper(line, number=22, hash=hash_)
    assert (
        "checkpoints_auditline 22 to 22 have numbers that the job did not give"
        in all_reasons()
    )


def _numbered(line: AuditLine, number: int) -> AuditLine:
    line.number = number
    return line


def test_a_turn_without_news_writes_nothing(chained: None) -> None:
    before = AuditHead.objects.values().get()
    assert audit_chain.chain_lines() == 0
    assert AuditHead.objects.values().get() == before


def test_the_end_of_a_long_file_is_found(file: Path) -> None:
    lines = [
        json.dumps({"at": "x" * 40, "number": n, "hash": f"{n:064}"})
        for n in range(1, 200)
    ]
    file.write_text("\n".join(lines) + "\n")
    head = audit_chain.last_told_head()
    assert head == audit_chain.ChainHead(199, f"{199:064}")
