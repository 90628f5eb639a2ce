"""What was deleted does not stay in the file of the database."""

from pathlib import Path

import pytest
from django.db import connection, transaction

from checkpoints import retention
from checkpoints.db.free_pages import wipe_free_pages
from checkpoints.models import AuditLine
from tests.support import cast
from tests.support.full_installation import a_full_run
from tests.support.rows import START

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="a server keeps its files itself"),
]


def free_pages() -> int:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA freelist_count")
        return int(cursor.fetchone()[0])


def fill_and_delete() -> None:
    for number in range(50):
        AuditLine.objects.create(at=START, kind="x", facts={"long": f"{number}" * 20_000})
    AuditLine.objects.all().delete()
    assert free_pages() > 0


def test_the_file_is_written_anew_without_its_free_pages() -> None:
    fill_and_delete()
    with transaction.atomic():
        wipe_free_pages()
    assert free_pages() > 0, "nothing is done inside a transaction"
    wipe_free_pages()
    assert free_pages() == 0


def test_an_erasure_ends_with_it(people: cast.People, tmp_path: Path) -> None:
    run = a_full_run(tmp_path, people.reviewer)
    fill_and_delete()
    retention.erase(run.id, by=people.steward)
    assert free_pages() == 0
