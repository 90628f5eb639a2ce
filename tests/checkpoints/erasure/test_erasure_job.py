"""Erasing a run: nothing of a person is found any more, everything verifies, and a
crash costs nothing.
"""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command

from approvals.models import Decision
from checkpoints import bundle, retention, timeline, verification
from checkpoints.conf import keyring
from checkpoints.core.status import Status
from checkpoints.core.tombstone import is_tombstone
from checkpoints.journal import results as journal
from checkpoints.journal.results import Ending
from checkpoints.models import (
    AuditLine,
    Checkpoint,
    ErasedRow,
    Job,
    LateResult,
    MemoryTrace,
    Run,
    RunEvent,
    RunKey,
    TaskResult,
    Upload,
)
from checkpoints.queue import leases
from checkpoints.sealing.sealed_columns import pack_json, read_value
from orchestrator import runs
from orchestrator.engine import Task
from orchestrator.engine.errors import (
    Erased,
    InvalidValue,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from tests.support import bundles, cast, erasures, run_actions, secret_claim
from tests.support.forging import rewrite, tamper
from tests.support.full_installation import a_full_run
from tests.support.secret_claim import marked
from tests.support.table_contents import contents

pytestmark = pytest.mark.django_db(transaction=True)
READABLE = {"fact", "label"}
NOTED = {"metadata", "noted", "paid"}


def faults(run: Run) -> list[str]:
    return [fault.reason for fault in verification.verify_run(run.id)]


@pytest.mark.parametrize("encrypted", [False, True])
def test_after_an_erasure_no_value_of_the_run_is_found_anywhere(
    people: cast.People, configure: Any, settings: Any, tmp_path: Path, encrypted: bool
) -> None:
    settings.STORAGES = {
        **settings.STORAGES,
        "default": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    run = erasures.whole_story(people)
    before = erasures.marks_in(erasures.everything())
    assert before >= (
        READABLE
        if encrypted
        else {"input", "state", "write", "edit", "letter", "late", "title", "fact"}
        | NOTED
    )
    record = retention.erase(run.id, reason="asked to be forgotten", by=people.steward)
    assert erasures.marks_in(erasures.everything()) == set()
    assert faults(run) == []
    assert record.by_name == "stella"
    assert record.reason == "asked to be forgotten"
    assert record.ended_at is not None
    assert record.rows == ErasedRow.objects.filter(record=record).count() > 20


def rows_of(run: Run) -> dict[str, Any]:
    """Every row that names a run, as it is kept."""
    by_model: dict[str, Any] = {
        "run": list(Run.objects.filter(id=run.id).values_list())
    }
    for model in apps.get_models():
        column = next(
            (
                field
                for field in model._meta.concrete_fields
                if field.attname in ("run", "run_id")
            ),
            None,
        )
        if column is not None and model is not Job:
            rows = model._base_manager.filter(**{column.attname: run.id})
            by_model[model.__name__] = [
                repr(row) for row in rows.order_by("pk").values_list()
            ]
    return by_model


@pytest.mark.parametrize("paths", [None, ["payout.memo", "input.person"]])
def test_every_other_run_loads_as_before_and_everything_verifies(
    people: cast.People, tmp_path: Path, paths: list[str] | None
) -> None:
    secret_claim.registered(encrypted=False)
    other = a_full_run(tmp_path, people.reviewer)
    alike = erasures.whole_story(people)
    run = erasures.whole_story(people)
    fork = runs.cancel(
        runs.fork(f"{run.key}:at-1", by=people.starter).id, by=people.starter
    )
    others = (other, alike, fork)
    rows = [rows_of(other_run) for other_run in others]
    states = [states_of(other_run) for other_run in others]
    retention.erase(run.id, paths, by=people.steward)
    assert [states_of(other_run) for other_run in others] == states
    assert [rows_of(other_run) for other_run in others] == rows
    out = StringIO()
    call_command("verify_runs", as_json=True, stdout=out)
    document = json.loads(out.getvalue())
    assert document["checked"] == 4
    assert document["bad"] == []


def states_of(run: Run) -> list[Any]:
    return [timeline.state_at(row.id) for row in timeline.list_checkpoints(run.id)]


def test_an_erased_run_is_read_and_says_who_decided_what(
    run: Run, people: cast.People
) -> None:
    said = list(
        Decision.objects.filter(run=run.id).values_list(
            "verdict", "by_name", "channel", "seen_hash", "at"
        )
    )
    hashes = list(
        Checkpoint.objects.filter(run=run.id).values_list(
            "id", "content_hash", "change_hash"
        )
    )
    log = list(
        RunEvent.objects.filter(run=run.id)
        .order_by("seq")
        .values_list("type", "hash", "actor")
    )
    retention.erase(run.id, by=people.steward)
    for row in timeline.list_checkpoints(run.id):
        state = timeline.state_at(row.id)
        values = [
            value for part in ("scratch", "artifacts") for value in state[part].values()
        ]
        assert all(value is None or is_tombstone(value) for value in values)
    assert said == list(
        Decision.objects.filter(run=run.id).values_list(
            "verdict", "by_name", "channel", "seen_hash", "at"
        )
    )
    assert hashes == list(
        Checkpoint.objects.filter(run=run.id).values_list(
            "id", "content_hash", "change_hash"
        )
    )
    after = list(
        RunEvent.objects.filter(run=run.id)
        .order_by("seq")
        .values_list("type", "hash", "actor")
    )
    assert after[:-1] == log
    assert after[-1][0] == "erased"
    line = AuditLine.objects.get(kind="run_erased")
    assert line.run == run.id
    assert line.actor_name == "stella"


def test_nothing_begins_at_a_checkpoint_of_an_erased_run(
    run: Run, people: cast.People
) -> None:
    retention.erase(run.id, by=people.steward)
    before = contents()
    for act in (
        lambda: runs.fork(f"{run.key}:at-1", by=people.starter),
        lambda: runs.replay(f"{run.key}:at-1", by=people.starter),
        lambda: runs.rewind(run.id, f"{run.key}:at-1", by=people.starter),
        lambda: runs.plan(f"{run.key}:at-1"),
        lambda: retention.erase(run.id, by=people.steward),
    ):
        with pytest.raises(Erased):
            act()
    assert contents() == before


def test_what_cannot_be_erased_is_refused_by_name_and_nothing_is_changed(
    run: Run, people: cast.People, tmp_path: Path
) -> None:
    live = run_actions.start("gated", tmp_path, by=people.starter)
    assert live.status == Status.PAUSED
    held = retention.hold(run.id, "a lawsuit", by=people.steward)
    before = contents()
    for wanted, error in (((live.id,), WrongStatus), ((run.id,), WrongStatus)):
        with pytest.raises(error):
            retention.erase(*wanted, by=people.steward)
    assert contents() == before
    retention.release_hold(held.id, by=people.steward)
    before = contents()
    paths: list[tuple[Any, type[Exception]]] = [
        (["payout.nobody"], UnknownThing),
        (["nothing.there"], UnknownThing),
        (["payout.."], InvalidValue),
        ([], InvalidValue),
        ("payout", InvalidValue),
        ([7], InvalidValue),
        (["diagnostics.nodes"], InvalidValue),
    ]
    for chosen, refusal in paths:
        with pytest.raises(refusal):
            retention.erase(run.id, chosen, by=people.steward)
    with pytest.raises(UnknownThing):
        retention.erase("01a20375-2ef5-7e6f-835d-4878671b73ec", by=people.steward)
    assert contents() == before


def test_a_run_that_does_not_verify_is_not_sealed_anew(
    run: Run, people: cast.People
) -> None:
    tamper(TaskResult.objects.filter(run=run).first(), output=pack_json({"writes": []}))
    before = contents()
    with pytest.raises(TamperedRow):
        retention.erase(run.id, by=people.steward)
    assert contents() == before


def test_a_tombstone_that_no_record_tells_of_is_named(
    run: Run, people: cast.People, tmp_path: Path
) -> None:
    retention.erase(run.id, by=people.steward)
    other = a_full_run(tmp_path, people.reviewer)
    erased_row = ErasedRow.objects.filter(
        run=run.id, table=Checkpoint._meta.db_table
    ).first()
    assert erased_row is not None
    row = Checkpoint.objects.get(run=other, seq=1)
    tamper(row, change=bytes(Checkpoint.objects.get(run=run, seq=1).change))
    assert any(str(row.id) in fault for fault in faults(other))
    digest = other_digest(row)
    ErasedRow.objects.create(
        record=erased_row.record,
        run=other.id,
        table=erased_row.table,
        row=str(row.id),
        contents={"change": digest},
        at=erased_row.at,
        seal=erased_row.seal,
        seal_key=erased_row.seal_key,
    )
    assert any(str(row.id) in fault for fault in faults(other)), (
        "a forged row of a record says nothing"
    )


def other_digest(row: Checkpoint) -> str:
    from checkpoints.ledger import reader
    from orchestrator.engine.values import canonical

    return canonical.digest(
        reader.bytes_of(Checkpoint.objects.get(id=row.id), "change")
    )


def test_what_was_erased_does_not_come_back_unnoticed(
    run: Run, people: cast.People
) -> None:
    was = {
        model: {row.pk: row for row in model._base_manager.filter(run=run.id)}
        for model in (TaskResult, Checkpoint)
    }
    retention.erase(run.id, by=people.steward)
    for model, rows in was.items():
        row = next(
            row
            for row in rows.values()
            if ErasedRow.objects.filter(row=str(row.pk)).exists()
        )
        now = model._base_manager.get(pk=row.pk)
        columns = (
            ("change", "snapshot")
            if model is Checkpoint
            else ("output", "error", "seal", "seal_key")
        )
        left = {name: getattr(now, name) for name in columns}
        rewrite(now, **{name: getattr(row, name) for name in columns})
        assert faults(run), model
        rewrite(now, **left)
        assert faults(run) == [], model


def test_a_run_is_not_erased_while_a_replay_reads_it(
    run: Run, people: cast.People
) -> None:
    replay = runs.replay(f"{run.key}:at-1", by=people.starter)
    with pytest.raises(WrongStatus, match=replay.key):
        retention.erase(run.id, by=people.steward)
    runs.advance(replay.id)
    retention.erase(run.id, by=people.steward)
    assert faults(replay) == []


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_path_is_erased_wherever_its_value_occurs_and_nothing_else(
    people: cast.People, configure: Any, encrypted: bool
) -> None:
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    run = erasures.whole_story(people)
    retention.erase(
        run.id, ["payout.memo", "input.person", "notes[0]"], by=people.steward
    )
    assert faults(run) == []
    state = timeline.state_at(timeline.list_checkpoints(run.id)[0].id)
    assert state["scratch"]["payout"]["to"] == "Ada"
    assert is_tombstone(state["scratch"]["payout"]["memo"])
    assert is_tombstone(state["scratch"]["notes"][0]) is True
    assert state["scratch"]["notes"][1] == marked("node")
    assert state["scratch"]["letter"] == marked("letter")
    assert is_tombstone(read_value(Run.objects.get(id=run.id), "input")["person"])
    gone = {marked(place) for place in ("edit", "write", "input", "state")}
    if not encrypted:
        marks = erasures.marks_in(erasures.everything())
        assert marks.isdisjoint({"edit", "write", "input", "state"})
        assert marks >= {"letter", "node", "late", "fact", "title"}
    for row in Decision.objects.filter(run=run.id):
        for column in Decision.PAYLOADS:
            assert not any(text in str(read_value(row, column)) for text in gone)
    with pytest.raises(Erased):
        runs.fork(f"{run.key}:at-1", by=people.starter)
    retention.erase(run.id, by=people.steward)
    assert faults(run) == []
    assert erasures.marks_in(erasures.everything()) == set()


def test_a_file_goes_with_the_last_run_that_names_it(
    people: cast.People, settings: Any, tmp_path: Path
) -> None:
    from tests.support import claims

    settings.STORAGES = {
        **settings.STORAGES,
        "default": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }
    flow = claims.with_a_file("erased_file", required=True)
    with claims.registered(flow):
        ref = erasures.upload(marked("file"), people.starter)
        first, second = (
            runs.start(flow.name, {"letter": ref}, by=people.starter) for _ in "ab"
        )
        for run in (first, second):
            runs.cancel(run.id, by=people.starter)
        record = retention.erase(first.id, by=people.steward)
        assert record.kept_files == [ref["file"]]
        assert faults(second) == []
        retention.erase(second.id, by=people.steward)
        assert faults(first) == []
        assert faults(second) == []
    assert erasures.marks_in(erasures.everything()) == set()
    assert not Upload.objects.exists()


def test_memory_that_a_run_wrote_is_found_by_no_word_of_it(people: cast.People) -> None:
    secret_claim.registered(encrypted=False)
    run = erasures.whole_story(people)
    words = marked("memory").replace("-", " ")
    assert words in MemoryTrace.objects.get(run=run.id).text
    retention.erase(run.id, by=people.steward)
    assert words not in MemoryTrace.objects.get(run=run.id).text


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_second_erasure_of_paths_leaves_a_run_that_verifies(
    people: cast.People, configure: Any, encrypted: bool
) -> None:
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    run = erasures.whole_story(people)
    for path in ("input.person", "letter", "payout.memo", "notes[1]", "input.branch"):
        retention.erase(run.id, [path], by=people.steward)
        assert faults(run) == [], path


def test_memory_that_another_run_writes_over_an_erased_trace_is_no_fault(
    people: cast.People,
) -> None:
    secret_claim.registered(encrypted=False)
    run = erasures.whole_story(people)
    retention.erase(run.id, by=people.steward)
    other = erasures.whole_story(people)
    assert MemoryTrace.objects.get().run == other.id
    assert faults(run) == []
    assert faults(other) == []


def test_a_thread_that_ends_after_the_erasure_is_no_fault_and_brings_nothing_back(
    people: cast.People, tmp_path: Path
) -> None:
    run = run_actions.start("gated", tmp_path, by=people.starter)
    lease = a_lease_of(run, people)
    assert runs.advance(run.id).status == Status.COMPLETED
    row = TaskResult.objects.filter(run=run.id).exclude(output=b"").first()
    assert row is not None
    retention.erase(run.id, by=people.steward)
    task = Task(row.node, row.visit, row.index)
    output = {"writes": [{"channel": "note", "value": marked("zombie")}]}
    journal.keep_late_results(
        lease,
        [Ending(task, row.attempt, "done", output, {"type": "E", "message": "Ada"})],
    )
    journal.note_thread_ended(run.id, row.line, task, row.attempt)
    late = LateResult.objects.get(run=run.id)
    assert is_tombstone(read_value(late, "output"))
    assert is_tombstone(read_value(late, "error"))
    assert faults(run) == []
    was = TaskResult.objects.get(id=row.id)
    rewrite(was, output=row.output, error=row.error)
    assert faults(run)


def a_lease_of(run: Run, people: cast.People) -> Any:
    """A worker's hold of a run whose decision was made, which it has lost."""
    run_actions.sign(
        run,
        run_actions.reviewer(people.reviewer),
        ["approve"] * len(run_actions.pending(run)),
    )
    claim = leases.claim_one(run.id)
    assert claim is not None
    lease = leases.begin_lease(claim.id, claim.epoch)
    assert lease is not None
    leases.give_back(lease.id, lease.epoch)
    return lease


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_run_that_was_imported_is_erased_too(
    people: cast.People, tmp_path: Path, configure: Any, encrypted: bool
) -> None:
    configure(BUNDLE_KEY="07" * 32, **(secret_claim.keys() if encrypted else {}))
    secret_claim.registered(encrypted=encrypted)
    run = erasures.whole_story(people)
    file = tmp_path / "run.bundle"
    bundle.export(run.id, file, by=people.steward)
    bundles.forgotten(run)
    # Nothing of it is here any more, nor in the memory of this process.
    RunKey.objects.all().delete()
    for known in (keyring().data_keys, keyring().data_keys_in_use, keyring()._ciphers):
        known.clear()
    imported = bundle.load(file, by=people.steward)
    assert faults(imported) == []
    retention.erase(imported.id, by=people.steward)
    assert faults(imported) == []
    state = timeline.state_at(timeline.list_checkpoints(imported.id)[0].id)
    assert all(
        value is None or is_tombstone(value) for value in state["scratch"].values()
    )
