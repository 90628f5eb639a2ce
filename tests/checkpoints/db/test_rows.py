"""Rows made past the ORM: whatever way one comes, its values are those that the ORM
gives.
"""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.db.models import Model

from checkpoints.db.rows import fetch_rows, named_columns, new_row
from checkpoints.db.statements import insert_rows, update_returning
from checkpoints.models import Checkpoint, Job, Run, RunEvent, Worker
from tests.support.cast import People
from tests.support.rows import START, a_checkpoint, a_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def stored(people: People) -> list[Model]:
    """Rows of all models that are read past the ORM, with values of every kind, and
    without what may be missing.
    """
    whole = START.replace(microsecond=0)
    run = a_run(
        started_by=people.starter,
        started_at=whole,
        due_at=whole + timedelta(microseconds=7),
        lease_until=whole,
        leased_by=uuid4(),
        encrypted=True,
        facts={"a": [1, None, "ü"]},
        error=b"\x00\xff",
    )
    checkpoint = a_checkpoint(
        run, 0, nodes=[{"node": "a", "ms": 1.5}], changed=["x"], kept=False
    )
    job = Job.objects.create(
        kind="k",
        name="n",
        facts={"big": 2**53},
        run=run.id,
        due_at=START,
        created_at=START,
    )
    worker = Worker.objects.create(
        id=uuid4(),
        host="h",
        pid=1,
        process_started=2,
        started_at=START,
        heartbeat_at=whole,
        draining=True,
        slots=1,
    )
    bare = Job.objects.create(kind="bare", due_at=START, created_at=START)
    return [a_run(), run, checkpoint, job, bare, worker]


def _values(row: Any, names: list[str]) -> list[tuple[str, type, Any]]:
    return [
        (name, type(value), value) for name in names for value in [getattr(row, name)]
    ]


def _orm(row: Model) -> Model:
    stored_row: Model = type(row)._default_manager.get(pk=row.pk)
    return stored_row


def test_an_update_returns_each_field_as_the_orm_reads_it(stored: list[Model]) -> None:
    for row in stored:
        names = [field.attname for field in row._meta.concrete_fields]
        before = _values(_orm(row), names)
        (fields,) = update_returning(type(row), {"id": row.pk}, names, id=row.pk)
        assert [
            (name, type(value), value)
            for name, value in zip(names, fields, strict=True)
        ] == before


def test_an_update_returns_a_person_by_the_field_too(
    stored: list[Model], people: People
) -> None:
    (fields,) = update_returning(
        Run, {"id": stored[1].pk}, ["started_by", "leased_by"], line=1
    )
    assert list(fields) == [people.starter.pk, _orm(stored[1]).leased_by]  # type: ignore[attr-defined]


def test_a_row_is_read_as_the_orm_reads_it(stored: list[Model]) -> None:
    for row in stored:
        names = tuple(field.attname for field in row._meta.concrete_fields)
        text = (
            f"SELECT {named_columns(type(row), names, 't')} FROM"
            f" {row._meta.db_table} t WHERE id = %s"
        )
        (read,) = fetch_rows(type(row), names, text, [row.pk])
        orm = _orm(row)
        assert _values(read, list(names)) == _values(orm, list(names))
        assert read == orm
        assert read._state.adding is False
        assert read._state.db == "default"


def test_what_was_not_read_is_read_when_it_is_asked_for(stored: list[Model]) -> None:
    text = f"SELECT id, 7 FROM {Checkpoint._meta.db_table}"
    (row,) = fetch_rows(Checkpoint, ("id", "more"), text, [])
    assert row.more == 7  # type: ignore[attr-defined]
    assert "nodes" not in vars(row)
    assert row.nodes == [{"node": "a", "ms": 1.5}]
    assert row.run == stored[1]


def test_a_new_row_has_the_defaults_of_its_model_each_its_own() -> None:
    columns = {"key": "k", "graph": "g", "created_at": datetime(2026, 1, 1, tzinfo=UTC)}
    first = new_row(Run, **columns)
    second = new_row(Run, **columns)
    orm = Run(**columns)
    names = {field.attname for field in Run._meta.concrete_fields} - {"id"}
    assert _values(first, sorted(names)) == _values(orm, sorted(names))
    assert first.id != second.id
    assert first.facts is not second.facts
    assert first._state.adding
    assert first._state is not second._state


def test_rows_made_past_the_orm_are_inserted_as_they_are() -> None:
    run = a_run()
    row = new_row(
        RunEvent, run_id=run.id, seq=1, type="t", at=START, payload=b"\x00\x01"
    )
    insert_rows(RunEvent, [row])
    stored_row = RunEvent.objects.get(run=run, seq=1)
    assert stored_row.type == "t"
    assert stored_row.at == START
    assert bytes(stored_row.payload) == b"\x00\x01"
    assert stored_row.node == ""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {RunEvent._meta.db_table}")
        assert cursor.fetchone() == (1,)
