"""What was deleted does not stay in the file of the database."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from checkpoints import retention
from checkpoints.db.free_pages import wipe_free_pages
from checkpoints.erasure import erasure_job
from checkpoints.models import AuditLine, ErasureRecord, Job
from checkpoints.models.job import JobStatus
from orchestrator.jobs import kinds
from tests.support import cast
from tests.support.full_installation import a_full_run
from tests.support.rows import START

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "sqlite", reason="a server keeps its files itself"
    ),
]


def free_pages() -> int:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA freelist_count")
        return int(cursor.fetchone()[0])


def log_of_the_file() -> Path:
    return Path(f"{connection.settings_dict['NAME']}-wal")


def fill_and_delete() -> None:
    for number in range(50):
        AuditLine.objects.create(
            at=START, kind="x", facts={"long": f"{number}" * 20_000}
        )
    AuditLine.objects.all().delete()
    assert free_pages() > 0


def test_the_file_is_written_anew_without_its_free_pages() -> None:
    fill_and_delete()
    with transaction.atomic():
        wipe_free_pages()
    assert free_pages() > 0, "nothing is done inside a transaction"
    wipe_free_pages()
    assert free_pages() == 0


def test_where_somebody_still_reads_what_was_deleted_it_fails_and_can_be_done_again() -> (
    None
):
    fill_and_delete()
    with closing(
        sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    ) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM checkpoints_auditline").fetchall()
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 20")
        with pytest.raises(OperationalError, match="still reads"):
            wipe_free_pages()
    wipe_free_pages()
    assert log_of_the_file().stat().st_size == 0


def test_an_erasure_that_is_cut_off_just_before_it_is_ended_with_it_by_a_worker(
    people: cast.People, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_full_run(tmp_path, people.reviewer)
    fill_and_delete()

    def dies() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as cut:
        cut.setattr(erasure_job, "wipe_free_pages", dies)
        with pytest.raises(KeyboardInterrupt):
            retention.erase(run.id, by=people.steward)
    assert ErasureRecord.objects.get().ended_at is not None
    assert free_pages() > 0
    Job.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert kinds.advance(Job.objects.get(kind="erase_run").id).status == JobStatus.DONE
    assert free_pages() == 0


def test_an_erasure_ends_with_it(people: cast.People, tmp_path: Path) -> None:
    run = a_full_run(tmp_path, people.reviewer)
    fill_and_delete()
    retention.erase(run.id, by=people.steward)
    assert free_pages() == 0
