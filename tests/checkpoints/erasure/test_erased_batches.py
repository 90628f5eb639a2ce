"""An erasure in batches: cut off anywhere it goes on, and at each moment everything
verifies.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pydantic import BaseModel, ValidationError

from approvals.models import Receipt
from checkpoints import retention, timeline, verification
from checkpoints.core.tombstone import TEXT
from checkpoints.core.visible_text import LONGEST_FACT, LONGEST_LABEL
from checkpoints.erasure import erased_batches
from checkpoints.erasure.places import FIRST_LINE, PLACES
from checkpoints.models import Checkpoint, ErasedRow, ErasureRecord, Job, Run
from checkpoints.models.job import JobStatus
from orchestrator import runs
from orchestrator.engine import END, START, Fact, Gate, Graph, Write
from orchestrator.engine.errors import Erased
from orchestrator.jobs import kinds
from tests.support import cast, erasures, run_actions
from tests.support.full_installation import a_full_run
from tests.support.secret_claim import marked
from tests.support.small_graphs import Notes, registered

STEP = int(os.environ.get("COUNTERSIGN_SWEEP_STEP", "89"))
"""Between two statements at which an erasure of its own is killed."""
FIRST = 1 if STEP == 1 else 30
pytestmark = pytest.mark.django_db(transaction=True)


def faults(run: Run) -> list[str]:
    return [fault.reason for fault in verification.verify_run(run.id)]


@contextmanager
def cut_at(number: int) -> Iterator[None]:
    """The connection breaks at its statement of this number."""
    left = [number]

    def count(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        left[0] -= 1
        if left[0] <= 0:
            raise KeyboardInterrupt
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        yield


def erased_until(number: int, run: Run, people: cast.People) -> bool:
    """Return whether an erasure ended before its statement of this number. Either way
    all that is there is sound.
    """
    Job.objects.filter(status=JobStatus.RUNNING).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    try:
        with cut_at(number):
            retention.erase(run.id, reason="forgotten", by=people.steward)
    except KeyboardInterrupt:
        return False
    finally:
        assert faults(run) == [], number
        for row in timeline.list_checkpoints(run.id):
            timeline.state_at(row.id)
    return True


def must_be_gone(run: Run) -> None:
    assert faults(run) == []
    assert set(
        Job.objects.filter(kind="erase_run").values_list("status", flat=True)
    ) == {JobStatus.DONE}
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            assert cursor.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert ErasureRecord.objects.filter(run=run.id).count() == 1
    assert b"A-1" not in b"".join(
        bytes(pk)
        for pk in Run.objects.filter(id=run.id).values_list("input", flat=True)
    )


def test_an_erasure_that_is_killed_at_any_statement_goes_on(
    run: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erased_batches, "BATCH", 2)
    monkeypatch.setattr(erased_batches, "CHECKPOINTS", 1)
    ends = next(
        number for number in range(1, 2000, 7) if erased_until(number, run, people)
    )
    assert ends > 100
    must_be_gone(run)


def test_an_erasure_that_is_killed_once_at_a_statement_is_ended_by_the_next_call(
    run: Run, people: cast.People, tmp_path: Path
) -> None:
    for number in range(FIRST, 2000, STEP):
        if erased_until(number, run, people):
            break
        try:
            assert erased_until(2000, run, people)
        except Erased:
            # It was cut off behind its end, and nobody has wiped the file yet.
            Job.objects.filter(status=JobStatus.RUNNING).update(
                lease_until=timezone.now() - timedelta(seconds=1)
            )
            kinds.advance(Job.objects.get(run=run.id).id)
        must_be_gone(run)
        run = a_full_run(tmp_path, people.reviewer)
    assert number > 100
    must_be_gone(run)


def test_a_worker_goes_on_with_an_erasure_that_was_cut_off(
    run: Run, people: cast.People
) -> None:
    with cut_at(120), pytest.raises(KeyboardInterrupt):
        retention.erase(run.id, by=people.steward)
    Job.objects.filter(status=JobStatus.RUNNING).update(
        lease_until=timezone.now() - timedelta(seconds=1)
    )
    assert kinds.advance(Job.objects.get(kind="erase_run").id).status == JobStatus.DONE
    record = ErasureRecord.objects.get(run=run.id)
    assert record.ended_at is not None
    assert faults(run) == []


class Patient(BaseModel):
    person: str


PERSON = f"Ada Lovelace of {marked('person')}, " + "Street 5, " * 60
LETTER = f"A person with {marked('disease')}: " + "detail " * 60


def test_what_lists_show_cut_off_is_erased_with_the_path_of_the_whole_text(
    people: cast.People,
) -> None:
    facts = [Fact("Person", "input.person", indexed=True)]
    flow = Graph(
        "cut_off", input=Patient, state=Notes, label="Claim of {person}", facts=facts
    )
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: [Write("letter", LETTER, label=f"Send {LETTER}")]
    )
    flow.edge(START, "ask")
    flow.edge("ask", END)
    registered(flow)
    run = runs.advance(runs.start("cut_off", {"person": PERSON}, by=people.starter).id)
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    (fact,) = run.facts.values()
    assert run.status == "completed"
    assert len(run.label) == LONGEST_LABEL
    assert len(fact) == LONGEST_FACT
    assert len(run_actions.pending(run)[0].label) == LONGEST_LABEL
    assert erasures.marks_in(erasures.everything()) >= {"person", "disease"}
    retention.erase(run.id, ["input.person"], by=people.steward)
    assert Run.objects.get(id=run.id).label == f"Claim of {TEXT}"
    assert erasures.marks_in(erasures.everything()) == {"disease"}
    retention.erase(run.id, ["letter"], by=people.steward)
    assert erasures.marks_in(erasures.everything()) == set()
    assert run_actions.pending(run)[0].label == f"Send {TEXT}"
    assert [line["label"] for line in Receipt.objects.get(run=run).lines] == [
        f"Send {TEXT}"
    ]
    assert faults(run) == []


class Letter(BaseModel):
    person: str
    sheets: int = 1


def refused(state: Notes, ctx: Any) -> dict[str, Any]:
    """Fail with texts that a library and `repr` make of a value: cut in its middle,
    escaped, quoted.
    """
    try:
        Letter.model_validate({"person": ctx.input.person, "sheets": ctx.input.person})
    except ValidationError as error:
        raise RuntimeError(
            f"{error}; {ascii(ctx.input.person)}; {ctx.input.person[3:40]!r}"
        ) from error
    raise AssertionError("text is no number")


@pytest.mark.parametrize("caught", [False, True])
def test_errors_keep_nothing_that_a_library_made_of_an_erased_value(
    caught: bool, people: cast.People
) -> None:
    flow = Graph("refusing", input=Patient, state=Notes)
    flow.node("check")(refused)
    flow.edge(START, "check")
    flow.edge("check", END)
    if caught:
        flow.node("excuse")(lambda state, ctx: None)
        flow.edge("check", "excuse", when="error")
        flow.edge("excuse", END)
    registered(flow)
    person = (
        f"Zoë {marked('person')} of 12 Long Street, {'far away from here, ' * 5}Thule"
    )
    run = runs.advance(runs.start("refusing", {"person": person}, by=people.starter).id)
    assert run.status == ("completed" if caught else "failed")
    if not caught:
        runs.cancel(run.id, by=people.starter)
    before = erasures.everything()
    assert b"Zo\\\\xeb" in before
    retention.erase(run.id, ["input.person"], by=people.steward)
    after = erasures.everything()
    for rest in (
        b"Zo\\\\xeb",
        b"Long Street",
        b"Thule",
        marked("person")[:12].encode(),
    ):
        assert rest not in after
    assert faults(run) == []


def test_the_record_keeps_of_each_row_the_seal_that_it_had(
    run: Run, people: cast.People
) -> None:
    before = {
        (model._meta.db_table, str(row.pk)): (bytes(row.seal or b""), row.seal_key)
        for model, row in rows(run)
    }
    retention.erase(run.id, by=people.steward)
    erased_rows = ErasedRow.objects.filter(run=run.id)
    assert {
        (erased_row.table, erased_row.row): (
            bytes(erased_row.old_seal),
            erased_row.old_key,
        )
        for erased_row in erased_rows
    } == {name: before[name] for name in erased_rows.values_list("table", "row")}
    now = {
        (model._meta.db_table, str(row.pk)): bytes(row.seal or b"")
        for model, row in rows(run)
    }
    anew = [
        erased_row
        for erased_row in erased_rows
        if erased_row.table != Run._meta.db_table
    ]
    assert {
        (erased_row.table, erased_row.row): bytes(erased_row.new_seal)
        for erased_row in anew
    } == {
        name: now[name]
        for name in ((erased_row.table, erased_row.row) for erased_row in anew)
    }
    assert len(anew) > 10


def rows(run: Run) -> Iterator[tuple[Any, Any]]:
    """Each row of a run that has a seal of its own."""
    places = [(place.model, place.rows(run.id)) for place in (*PLACES, FIRST_LINE)]
    own = [
        (Checkpoint, Checkpoint.objects.filter(run=run.id)),
        (Run, Run.objects.filter(id=run.id)),
    ]
    for model, rows_of_model in [*places, *own]:
        yield from ((model, row) for row in rows_of_model)


def test_a_run_whose_erasure_begins_while_it_is_verified_is_looked_at_again(
    run: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = verification.removed_history

    def then_erased(*args: Any) -> Any:
        monkeypatch.setattr(verification, "removed_history", read)
        erasures.worked_until(
            retention.begin_erasure(run.id, by=people.steward), "checkpoints"
        )
        return read(*args)

    monkeypatch.setattr(verification, "removed_history", then_erased)
    assert verification.verify_run(run.id) == []
    assert ErasureRecord.objects.get().ended_at is None
