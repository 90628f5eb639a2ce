"""After a copy was put back, or the chain was harmed, the audit log goes on and says so
for ever.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditHead, AuditLine
from tests.support import forging
from tests.support.audit_checks import all_reasons, anchor_heads
from tests.support.sealed_tables import run_sql

pytestmark = pytest.mark.django_db(transaction=True)


def _restored() -> None:
    call_command("restored", "--audit-log-only", "--reason", "the disk broke")


@pytest.fixture(autouse=True)
def file(tmp_path: Path, configure: Callable[..., None]) -> Path:
    """The file of `AUDIT_HEAD_FILE`, and twenty chained lines."""
    path = tmp_path / "audit-head"
    configure(AUDIT_HEAD_FILE=str(path))
    for n in range(20):
        audit_log.record("refused", actor=None, n=n)
    assert anchor_heads().error == ""
    return path


def _without_head_row() -> None:
    forging.remove(AuditHead.objects.get())


def _with_unsound_head_row() -> None:
    forging.tamper(AuditHead.objects.get(), number=14)


def _with_the_newest_lines_gone() -> None:
    """Remove the newest lines, as in a copy made before them."""
    before: dict[str, Any] = AuditHead.objects.values().get()
    audit_log.record("refused", actor=None)
    anchor_heads()
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
    assert anchor_heads().error_code == "tampered_row"
    _restored()
    assert anchor_heads().error == ""


@pytest.mark.parametrize("harm", HARMS)
def test_verification_is_content_with_what_a_restoration_explains(
    harm: Callable[[], None],
) -> None:
    harm()
    _restored()
    anchor_heads()
    assert all_reasons() == []


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
    assert "checkpoints_auditline 15 to 15 are gone" in all_reasons()
