"""What the tables that a superstep writes to must not cost."""

import pytest
from django.db import connection
from django.db.models import JSONField, Model

from checkpoints.models import Checkpoint, Run, RunEvent, TaskResult


@pytest.mark.parametrize("model", [Run, Checkpoint, RunEvent, TaskResult])
def test_no_number_of_a_superstep_is_checked_by_the_database(
    model: type[Model],
) -> None:
    fields = [
        field
        for field in model._meta.concrete_fields
        if not isinstance(field, JSONField)
    ]
    assert [field.name for field in fields if field.db_check(connection)] == []


@pytest.mark.django_db
def test_sqlite_keeps_no_count_of_the_lines_that_were_written() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("AUTOINCREMENT is a word of SQLite")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE name = %s", [RunEvent._meta.db_table]
        )
        assert "AUTOINCREMENT" not in cursor.fetchone()[0]
