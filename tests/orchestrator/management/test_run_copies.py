"""Copies of runs: each verifies as if it had been run, and costs little to make and to
insert.
"""

import cProfile
import pstats

import pytest
from django.db import connection
from django.db.utils import IntegrityError

from approvals.models import BY_DEADLINE, Decision
from checkpoints.models import Run, RunEvent
from checkpoints.verification import verify_run
from orchestrator.management import reference_data, run_copies
from orchestrator.management.reference_data import ReferenceData
from orchestrator.management.run_copies import RunCopies
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
MOST_FUNCTIONS = 1_700
"""How many functions are entered for a copy, those of Python itself included."""


def test_copies_verify_and_each_batch_costs_a_statement_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference_data, "BATCH", 20)
    data = ReferenceData()
    templates = Run.objects.count()

    with counted() as statements:
        numbers = list(data.grow(60))

    assert numbers == [20, 40, 60]
    assert Run.objects.count() == templates + 60
    for run in Run.objects.filter(key__startswith="reference-"):
        assert verify_run(run.id) == []
    copied = _copied_ids()
    assert Decision.objects.filter(run__in=copied).count() == 2 * 33
    assert Decision.objects.filter(run__in=copied, by_name=BY_DEADLINE).count() == 2 * 3
    inserts = [text for text in statements if text.startswith("INSERT")]
    # PostgreSQL gets the rows by COPY, which is no statement with parameters.
    assert len(inserts) == (0 if connection.vendor == "postgresql" else 3 * 9)


def test_a_copy_enters_few_functions() -> None:
    data = ReferenceData()
    list(data.grow(20))
    profile = cProfile.Profile()

    # Of this thread alone: on PostgreSQL another one inserts.
    profile.enable()
    list(data.grow(220))
    profile.disable()

    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]
    assert calls / 200 < MOST_FUNCTIONS


def test_an_error_of_an_insertion_is_raised() -> None:
    data = ReferenceData()
    list(data.grow(20))
    copies = RunCopies()
    template = next(iter(data._templates.values()))
    copies.add(template, reference_data.AGE, key="reference-0000001")
    rows = _rows()

    with pytest.raises(IntegrityError), run_copies.writer() as write:
        write(copies)

    assert _rows() == rows


def test_data_that_failed_to_grow_grows_on_from_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reference_data, "BATCH", 20)
    data = ReferenceData()
    templates = Run.objects.count()
    insert = RunCopies.insert
    inserted: list[RunCopies] = []

    def fail_once(copies: RunCopies) -> None:
        inserted.append(copies)
        if len(inserted) == 2:
            raise IntegrityError("the second batch")
        insert(copies)

    monkeypatch.setattr(RunCopies, "insert", fail_once)
    with pytest.raises(IntegrityError):
        list(data.grow(60))
    assert Run.objects.count() < templates + 60

    list(data.grow(60))
    assert Run.objects.count() == templates + 60
    keys = Run.objects.filter(key__startswith="reference-").values_list("key")
    assert len(set(keys)) == 60


def _rows() -> tuple[int, int]:
    return Run.objects.count(), RunEvent.objects.count()


def _copied_ids() -> list[object]:
    copied = Run.objects.filter(key__startswith="reference-")
    return list(copied.values_list("id", flat=True))
