"""Several reads in one statement: each has the rows that the ORM gives by itself."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F, IntegerField, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.test.utils import CaptureQueriesContext

from approvals.models import SavedFilter
from checkpoints.db.together import Count, read_together, select_together
from checkpoints.models import Checkpoint, Job, Run, RunEvent, Worker
from tests.support.cast import People
from tests.support.rows import START, a_checkpoint, a_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: People) -> Run:
    """A run with a value of every kind, and rows beside it without them."""
    run = a_run(
        started_by=people.starter,
        started_at=START.replace(microsecond=0),
        due_at=START + timedelta(microseconds=7),
        leased_by=uuid4(),
        encrypted=True,
        facts={"a": [1, None, "ü", 1.5, 2**60]},
        error=b"\x00\xff",
        label='a "quoted" \\ label, {with} braces',
    )
    a_checkpoint(run, 0, nodes=[{"node": "a", "ms": 1.5}], changed=["x"], kept=False)
    Job.objects.create(kind="k", facts={"big": 2**53}, due_at=START, created_at=START)
    a_run()
    return run


def columns_of(row: Model) -> dict[str, Any]:
    """Return what was read of a row, and the types of it."""
    columns = {}
    for name, value in row.__dict__.items():
        if name != "_state":
            columns[name] = (type(value), value)
    return columns


@pytest.mark.parametrize("model", [Run, RunEvent, Job, Worker, User, SavedFilter])
def test_rows_are_those_that_the_orm_reads(run: Run, model: Any) -> None:
    rows = model.objects.order_by("-pk")
    together = read_together(rows=rows, some=rows[:1], others=rows.none())
    read = [columns_of(row) for row in together["rows"]]
    assert read == [columns_of(row) for row in rows]
    assert [row._state.adding for row in together["some"]] == [False] * len(read[:1])
    assert together["others"] == []


def test_a_column_that_a_query_defers_is_read_when_it_is_used(run: Run) -> None:
    rows = Run.objects.order_by("pk").defer("error").annotate(twice=F("line") * 2)
    [row] = [row for row in read_together(rows=rows)["rows"] if row.pk == run.pk]
    assert "error" not in row.__dict__
    assert (row.error, row.twice) == (b"\x00\xff", 2 * run.line)


def test_values_and_numbers_are_those_that_the_orm_reads(run: Run) -> None:
    values = Run.objects.order_by("pk").annotate(next=F("line") + 1)
    listed = values.values_list("due_at", "next", "started_by", "facts", "encrypted")
    answer = RawSQL("SELECT %s + 2", (40,), output_field=IntegerField())
    with CaptureQueriesContext(
        connection,
    ) as sent:
        together = read_together(
            runs=listed,
            number=Count(Run.objects.all()),
            cut=Count(Run.objects.order_by("pk")[:1]),
            none=Count(Run.objects.filter(pk__in=[])),
            answer=answer,
        )
    assert len(sent) == 1
    assert together == {
        "runs": list(listed),
        "number": [2],
        "cut": [1],
        "none": [0],
        "answer": [42],
    }


@pytest.mark.parametrize("model", [Run, RunEvent, Job, Worker, Checkpoint])
def test_records_of_kept_queries_are_those_that_the_orm_reads(
    run: Run, model: Any
) -> None:
    built = []

    def all_rows(*ids: UUID) -> "QuerySet[Any, Any]":
        built.append(ids)
        return model.objects.order_by("-pk").values_list()

    def of_run(id: UUID) -> "QuerySet[Any, Any]":
        return Run.objects.filter(id=id).values_list("label", "facts", "encrypted")

    expected = {
        "all": [*map(list, model.objects.order_by("-pk").values_list())],
        "one": [[run.label, run.facts, run.encrypted]],
        "none": [],
    }
    times_built = set()
    for _ in range(2):
        with CaptureQueriesContext(connection) as sent:
            together = select_together(
                all=(all_rows, ()), one=(of_run, [run.id]), none=(of_run, [uuid4()])
            )
        assert len(sent) == 1
        assert together == expected
        times_built.add(len(built))
    assert len(times_built) == 1


def test_nothing_is_sent_where_no_row_can_match() -> None:
    with CaptureQueriesContext(connection) as sent:
        assert read_together(runs=Run.objects.none()) == {"runs": []}
    assert len(sent) == 0


def test_related_rows_are_refused(run: Run) -> None:
    with pytest.raises(ValueError, match="without their related rows"):
        read_together(runs=Run.objects.select_related("started_by"))
