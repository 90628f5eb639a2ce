"""After a copy was put back, or the chain was harmed, the audit log goes on and says so
for ever.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditHead, AuditLine, Job
from checkpoints.queue import jobs
from orchestrator.jobs import kinds
from orchestrator.jobs.integrity import Verified, Wanted, verify_runs
from tests.support import forging
from tests.support.sealed_tables import run_sql

pytestmark = pytest.mark.django_db(transaction=True)


def _turn() -> Job:
    """One turn of the standing job."""
    Job.objects.filter(kind="anchor_heads").update(
        due_at=timezone.now() - timedelta(minutes=1)
    )
    return kinds.advance(jobs.add_job("anchor_heads", name="anchor_heads"))


def _reasons() -> list[str]:
    result = Verified()
    for _ in verify_runs(Wanted(), result, by=None):
        pass
    return [fault["reason"] for fault in result.bad]


def _restored() -> None:
    call_command("restored", "--audit-log-only", "--reason", "the disk broke")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, configure: Callable[..., None]) -> Path:
    """The file of `AUDIT_HEAD_FILE`, and twenty chained lines."""
    path = tmp_path / "audit-head"
    configure(AUDIT_HEAD_FILE=str(path))
    for n in range(20):
        audit_log.record("refused", actor=None, n=n)
    assert _turn().error == ""
    return path


def _without_head_row() -> None:
    forging.remove(AuditHead.objects.get())


def _with_unsound_head_row() -> None:
    forging.tamper(AuditHead.objects.get(), number=14)


def _with_the_newest_lines_gone() -> None:
    """As a copy is that was made before them."""
    before: dict[str, Any] = AuditHead.objects.values().get()
    audit_log.record("refused", actor=None)
    _turn()
    run_sql("DELETE FROM checkpoints_auditline WHERE number > %s", before["number"])
    forging.tamper(AuditHead.objects.get(), **before)


def _with_a_line_that_lost_its_number() -> None:
    run_sql(
        "UPDATE checkpoints_auditline SET number = NULL, hash = '' WHERE number = 21"
    )
    audit_log.record("refused", actor=None)


HARMS = [
    _without_head_row,
    _with_unsound_head_row,
    _with_the_newest_lines_gone,
    _with_a_line_that_lost_its_number,
]


@pytest.mark.parametrize("harm", HARMS)
def test_the_chain_goes_on_after_restored(harm: Callable[[], None]) -> None:
    harm()
    audit_log.record("refused", actor=None)
    assert _turn().error_code == "tampered_row"
    _restored()
    assert _turn().error == ""


@pytest.mark.parametrize("harm", HARMS)
def test_verification_is_content_with_what_a_restoration_explains(
    harm: Callable[[], None],
) -> None:
    harm()
    _restored()
    _turn()
    assert _reasons() == []


def test_the_line_says_up_to_which_head_lines_were_lost(file: Path) -> None:
    _with_the_newest_lines_gone()
    _restored()
    facts = AuditLine.objects.get(kind="database_restored").facts
    assert facts["number"] == 21
    assert facts["reason"] == "the disk broke"
    assert facts["told_number"] > facts["number"]


def test_a_line_that_was_deleted_before_the_last_head_is_still_named_after_restored() -> (
    None
):
    run_sql("DELETE FROM checkpoints_auditline WHERE number = 15")
    _without_head_row()
    _restored()
    assert "checkpoints_auditline 15 to 15 are gone" in _reasons()
