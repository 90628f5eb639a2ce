"""Erasing: records begun under the lock of their runs, a job that does the work in batches, and the line in the log
that ends each. Begun again after a crash it goes on, for every piece bears to be done twice.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints import audit_log
from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.core.eraser import Eraser
from checkpoints.db.free_pages import wipe_free_pages
from checkpoints.erasure import erased_batches, plan
from checkpoints.erasure.places import PLACES
from checkpoints.erasure.plan import ErasurePlan, Held
from checkpoints.erasure.sweeps import SWEEPS, erase_orphans, eraser_of
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.memory import search as memory_search
from checkpoints.models import ErasedRow, ErasureRecord, Job, Run
from checkpoints.models.job import LIVE
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.sealing import data_keys, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.erasures import rows_digest
from checkpoints.verification.notes import ERASED, metadata_left
from orchestrator.engine.errors import CountersignError, TamperedRow, WrongStatus
from orchestrator.engine.frozen import frozen

KIND = "erase_run"
"""The kind of the job."""
LONGEST_REASON = 10_000
WAIT_SECONDS = 0.05


def erase(
    run_id: UUID | str,
    *,
    paths: Sequence[str] | None = None,
    forks: bool = False,
    reason: str = "",
    by: Any = None,
    held: Held,
) -> ErasureRecord:
    """Erase these paths of a run's state, or (None) all its values; with `forks` also of the runs that inherited them.
    Gives the record when all is done. An erasure of the run that was begun before and cut off is ended first.

    Raises, having changed nothing, as `plan_erasure` does, for each run that would be erased.
    """
    asked = _ErasureRequest(paths, forks, reason, by, held)
    wanted = plan.plan_erasure(run_id, paths=paths, forks=forks, held=held)
    if (begun := plan.going_on(wanted.run.id)) is not None:
        work_on(begun)
        if [str(path) for path in wanted.paths] == begun.paths:
            return _read(begun)
        wanted = plan.plan_erasure(run_id, paths=paths, forks=forks, held=held)
    records = asked.begin(wanted)
    for record in records:
        work_on(record)
    return _read(records[0])


def begin_erasure(
    run_id: UUID | str,
    *,
    paths: Sequence[str] | None = None,
    forks: bool = False,
    reason: str = "",
    by: Any = None,
    held: Held,
) -> ErasureRecord:
    """As `erase`, but a worker does the work: gives the record that says so when it has ended. From here on nothing
    departs from the run. The same again while it goes on gives the same record; raises `WrongStatus` for another one.
    """
    asked = _ErasureRequest(paths, forks, reason, by, held)
    wanted = plan.plan_erasure(run_id, paths=paths, forks=forks, held=held)
    begun = plan.going_on(wanted.run.id)
    if begun is None:
        return asked.begin(wanted)[0]
    if [str(path) for path in wanted.paths] != begun.paths:
        run = wanted.run
        message = f"another erasure of run {run.key} is going on; erase again when it has ended"
        raise WrongStatus(message, run=str(run.id), record=str(begun.id))
    _add_job(begun)  # where it was given up
    return begun


@frozen
class _ErasureRequest:
    """What somebody asks to be erased. Raises `InvalidValue`."""

    paths: Sequence[str] | None
    forks: bool
    reason: str
    by: Any
    held: Held

    def __post_init__(self) -> None:
        if self.by is not None:
            checked_person(self.by, "by")
        checked_text(self.reason, "reason", most=LONGEST_REASON)

    def begin(self, wanted: ErasurePlan) -> list[ErasureRecord]:
        """The records, that of the run itself first: all or none."""
        with transaction.atomic():
            records = [
                _begin(one, wanted, forks=self.forks, reason=self.reason, by=self.by, held=self.held)
                for one in [wanted, *wanted.along]
            ]
            if self.forks:
                _require_no_new_fork(wanted)
        return records


def _read(record: ErasureRecord) -> ErasureRecord:
    return ErasureRecord.objects.get(id=record.id)


def _require_no_new_fork(wanted: ErasurePlan) -> None:
    """Raise `WrongStatus` where more runs have the values than were planned for. From each of those that are locked
    nothing departs any more, so this is asked when the last one is.
    """
    run = wanted.run
    if {(one.id, one.how) for one in plan.inherited_of(run)} != {(one.id, one.how) for one in wanted.inherited}:
        message = f"run {run.key}, or a run that came of it, was forked just now; look at the plan again"
        raise WrongStatus(message, run=str(run.id))


def _begin(one: ErasurePlan, wanted: ErasurePlan, *, forks: bool, reason: str, by: Any, held: Held) -> ErasureRecord:
    """The record and the job. From here on nothing departs from the run any more."""
    run = locked_run.lock_run(one.run.id, also_imported=True)
    plan.require_erasable(run, held)
    record = ErasureRecord(
        run=run.id,
        by=by,
        by_name=by.get_username() if by else "",
        at=timezone.now(),
        reason=reason,
        paths=[str(path) for path in one.paths],
        inherited=[i.json(along=forks) for i in plan.inherited_of(run)],
        words=pack_json(sorted({*one.words, *wanted.words})) if one.paths else b"",
    )
    sealed_rows.seal_and_encrypt([record], protection_of(run))
    record.save(force_insert=True)
    Run.objects.filter(id=run.id).update(erasure=record.id)
    if not record.paths:
        data_keys.retire_data_key(run.id)
    _add_job(record)
    return record


def _add_job(record: ErasureRecord) -> UUID:
    """The job of a record; where one is queued or going on, that one."""
    return jobs.add_job(KIND, name=_name(record), run=record.run, record=str(record.id))


def _name(record: ErasureRecord) -> str:
    return f"{KIND} {record.id}"


def work_on(record: ErasureRecord) -> None:
    """Do the work of a record here and now; or wait for the worker that has it in hand."""
    while not ErasureRecord.objects.filter(id=record.id).exclude(ended_at=None).exists():
        job = Job.objects.filter(name=_name(record), status__in=LIVE).values_list("id", flat=True).first()
        if job is None:
            job = _add_job(record)
        epoch = jobs.claim_one(job)
        lease = jobs.begin_job(job, epoch) if epoch is not None else None
        if lease is None:
            time.sleep(WAIT_SECONDS)
            continue
        _work(lease)


def _work(lease: JobLease) -> None:
    try:
        for step in erase_job(lease):
            jobs.report(lease, step)
    except CountersignError as error:
        jobs.fail_job(lease, error.code, error.message)
        raise
    jobs.finish_job(lease)


def erase_job(lease: JobLease) -> Iterator[Step]:
    """The kind `erase_run`, of the record in its facts. Its place: a table, and the key behind which it goes on."""
    record = ErasureRecord.objects.get(id=UUID(lease.facts["record"]))
    if record.ended_at is None:
        yield from _erase_rows(record, lease)
    # Also where it was cut off between the two: what stood in the rows still stands in the index and in free pages.
    memory_search.drop_removed_words()
    wipe_free_pages()


def _erase_rows(record: ErasureRecord, lease: JobLease) -> Iterator[Step]:
    run = Run.objects.get(id=record.run)
    data_keys.read_use_again(run.id)
    sealed_rows.verify_row(record, protection_of(run))
    eraser = eraser_of(record)
    # Jobs of older versions did not count what the record tells of.
    at, after, noted = (*(lease.place or (0, None)), 0)[:3]
    done = int(lease.progress.get("done", 0))
    if at == 0:
        for sweep in SWEEPS:
            sweep.erase(run, record, eraser)
        _keep_files(record)
    for number, place in enumerate(PLACES):
        if number < at:
            continue
        for batch in erased_batches.erase_rows(place, record, eraser, after if number == at else None):
            done, noted = done + batch.rows, noted + batch.noted
            yield Step(done, note=place.model._meta.db_table, place=(number, batch.after, noted))
    last = len(PLACES)
    for batch in erased_batches.erase_checkpoints(record, eraser, after if at == last else None):
        done, noted = done + batch.rows, noted + batch.noted
        yield Step(done, note="checkpoints", place=(last, batch.after, noted))
    erase_orphans(run)
    _end(record, eraser, noted)


def _keep_files(record: ErasureRecord) -> None:
    """Write down the files that stay."""
    run = Run.objects.only("encrypted", "hash_key").get(id=record.run)
    if record.kept_files:
        names = sealed_rows.seal_again(record, protection_of(run), kept_files=record.kept_files)
        ErasureRecord.objects.filter(id=record.id).update(**{name: getattr(record, name) for name in names})


def _require_noted(record: ErasureRecord, noted: int) -> None:
    """Raise `TamperedRow` where the record does not tell any more of each row that was erased."""
    told = ErasedRow.objects.filter(record=record).count()
    if told < noted:
        message = f"erasure {record.id} told of {noted} rows, of which {told} are left"
        raise TamperedRow(message, run=str(record.run), row=sealed_rows.name_of(record))


def _end(record: ErasureRecord, eraser: Eraser, noted: int) -> None:
    """The run's own row, the record's last words, and the line in the log: one transaction. `noted`: of how many rows
    the record told at least.
    """
    with transaction.atomic():
        run = locked_run.lock_run(record.run, also_imported=True)
        data_keys.read_use_again(run.id)
        record.refresh_from_db()
        if record.ended_at is not None:
            return
        # It was read anew, and the seal that ends it would cover up what was changed in it meanwhile.
        sealed_rows.verify_row(record, protection_of(run))
        _require_noted(record, noted)
        erased_batches.erase_run_row(run, record, eraser)
        for sweep in SWEEPS:
            if sweep.again:
                sweep.erase(run, record, eraser)
        rows, digest = rows_digest(record)
        ended: dict[str, Any] = {"rows": rows, "rows_hash": digest, "ended_at": timezone.now(), "words": b""}
        ended["kept_files"] = record.kept_files
        if not record.paths:
            erased_batches.require_own_key_unused(run)
            data_keys.destroy_data_key(run.id)
        names = sealed_rows.seal_again(record, protection_of(run), **ended)
        ErasureRecord.objects.filter(id=record.id).update(**{name: getattr(record, name) for name in names})
        facts: dict[str, Any] = {"record": str(record.id), "rows": rows, "rows_hash": digest}
        facts |= {"metadata": left} if (left := metadata_left(run)) else {}
        locked_run.append_locked(run, [NewEvent(ERASED, facts, actor=record.by_name)], at=timezone.now())
        audit_log.record(
            "run_erased", actor=record.by, run=run.id, record=str(record.id), rows=rows, paths=len(record.paths),
            reason=record.reason,
        )  # fmt: skip
