"""The caller's part of an erasure: its arguments checked, its records begun under the
lock of their runs, and a job queued for each. `checkpoints.erasure.erasure_job` does the work.
"""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.erasure import plan
from checkpoints.erasure.erasure_job import KIND, erase_job
from checkpoints.erasure.plan import ErasurePlan, Held
from checkpoints.ledger import locked_run
from checkpoints.models import ErasureRecord, Job, Run
from checkpoints.models.job import LIVE
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease
from checkpoints.sealing import data_keys, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import CountersignError, WrongStatus
from orchestrator.engine.frozen import frozen

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
    """Erase these paths of a run's state, or (None) all its values; with `forks` also
    of the runs that inherited them. Returns the record when all is done. An earlier
    erasure of the run that was interrupted is completed first.

    Raises, having changed nothing, as `plan_erasure` does, for each run that would be
    erased.
    """
    request = _ErasureRequest(paths, forks, reason, by, held)
    erasure = plan.plan_erasure(run_id, paths=paths, forks=forks, held=held)
    begun = plan.going_on(erasure.run.id)
    if begun is not None:
        work_on(begun)
        if [str(path) for path in erasure.paths] == begun.paths:
            return _read(begun)
        # The earlier erasure has changed what there is to erase.
        erasure = plan.plan_erasure(run_id, paths=paths, forks=forks, held=held)
    records = request.begin(erasure)
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
    """Begin an erasure as `erase` does, but leave the work to a worker. Returns the
    record, which shows when it has ended. From here on nothing departs from the run.
    The same call again while it goes on returns the same record; raises `WrongStatus`
    for another erasure.
    """
    request = _ErasureRequest(paths, forks, reason, by, held)
    erasure = plan.plan_erasure(run_id, paths=paths, forks=forks, held=held)
    begun = plan.going_on(erasure.run.id)
    if begun is None:
        return request.begin(erasure)[0]
    if [str(path) for path in erasure.paths] != begun.paths:
        run = erasure.run
        message = (
            f"another erasure of run {run.key} is going on; "
            "erase again when it has ended"
        )
        raise WrongStatus(message, run=str(run.id), record=str(begun.id))
    # Its job may have been given up.
    _add_job(begun)
    return begun


@frozen
class _ErasureRequest:
    """The arguments of an erasure, checked. Raises `InvalidValue`."""

    paths: Sequence[str] | None
    forks: bool
    reason: str
    by: Any
    held: Held

    def __post_init__(self) -> None:
        if self.by is not None:
            checked_person(self.by, "by")
        checked_text(self.reason, "reason", most=LONGEST_REASON)

    def begin(self, erasure: ErasurePlan) -> list[ErasureRecord]:
        """Begin all records or none, and return them, that of the run itself first."""
        records = []
        with transaction.atomic():
            for run_plan in [erasure, *erasure.along]:
                record = _begin(
                    run_plan,
                    erasure,
                    forks=self.forks,
                    reason=self.reason,
                    by=self.by,
                    held=self.held,
                )
                records.append(record)
            if self.forks:
                _require_no_new_fork(erasure)
        return records


def _read(record: ErasureRecord) -> ErasureRecord:
    return ErasureRecord.objects.get(id=record.id)


def _require_no_new_fork(erasure: ErasurePlan) -> None:
    """Raise `WrongStatus` if more runs have the values than were planned for. Nothing
    can depart from a locked run, so this is checked when the last one is locked.
    """
    run = erasure.run
    inherited_now = {(heir.id, heir.how) for heir in plan.inherited_of(run)}
    inherited_then = {(heir.id, heir.how) for heir in erasure.inherited}
    if inherited_now != inherited_then:
        message = (
            f"run {run.key}, or a run that came of it, was forked just now; "
            "look at the plan again"
        )
        raise WrongStatus(message, run=str(run.id))


def _begin(
    run_plan: ErasurePlan,
    erasure: ErasurePlan,
    *,
    forks: bool,
    reason: str,
    by: Any,
    held: Held,
) -> ErasureRecord:
    """Insert the record and the job of one run of an erasure. From here on, nothing can
    depart from the run.
    """
    run = locked_run.lock_run(run_plan.run.id, also_imported=True)
    plan.require_erasable(run, held)
    # What stood at a path in the one run may stand in the texts of another.
    words = b""
    if run_plan.paths:
        words = pack_json(sorted({*run_plan.words, *erasure.words}))
    record = ErasureRecord(
        run=run.id,
        by=by,
        by_name=by.get_username() if by else "",
        at=timezone.now(),
        reason=reason,
        paths=[str(path) for path in run_plan.paths],
        inherited=[heir.json(along=forks) for heir in plan.inherited_of(run)],
        words=words,
    )
    sealed_rows.seal_and_encrypt([record], protection_of(run))
    record.save(force_insert=True)
    Run.objects.filter(id=run.id).update(erasure=record.id)
    if not record.paths:
        data_keys.retire_data_key(run.id)
    _add_job(record)
    return record


def _add_job(record: ErasureRecord) -> UUID:
    """Add the job of a record, unless one is queued or going on. Returns its id."""
    return jobs.add_job(
        KIND, name=_job_name(record), run=record.run, record=str(record.id)
    )


def _job_name(record: ErasureRecord) -> str:
    return f"{KIND} {record.id}"


def work_on(record: ErasureRecord) -> None:
    """Do the work of a record now, or wait for the worker that has leased it."""
    ended = ErasureRecord.objects.filter(id=record.id).exclude(ended_at=None)
    live_jobs = Job.objects.filter(name=_job_name(record), status__in=LIVE)
    while not ended.all().exists():
        job = live_jobs.values_list("id", flat=True).first()
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
