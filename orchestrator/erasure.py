"""Erases the values of runs that this floor keeps outside their rows: answers to
repeated posts, what a bulk fork was to do, the admin's history. Added to
`checkpoints.erasure` at start-up.
"""

import json
from functools import partial
from typing import Any

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db.models import Q, QuerySet

from approvals.models import ApprovalRequest, Receipt
from checkpoints.conf import keyring
from checkpoints.core.eraser import Eraser
from checkpoints.core.tombstone import TEXT
from checkpoints.erasure.places import payload_left
from checkpoints.erasure.sweeps import Sweep
from checkpoints.models import Checkpoint, ErasureRecord, Job, PendingWrite, Run
from checkpoints.models.job import LIVE
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.answer_references import answers_about
from orchestrator.engine.errors import WrongStatus
from orchestrator.models import BulkFork, BulkForkResult, IdempotencyRecord

GONE = 410


def _answers(run: Run) -> "QuerySet[IdempotencyRecord]":
    """Return the answers about a run: its id, or that of a row of it, is in the address
    or in the answer.
    """
    ids = {run.id}
    for model in (Checkpoint, ApprovalRequest, Receipt):
        rows = model._base_manager.filter(run=run.id)
        ids.update(rows.values_list("pk", flat=True))
    writes = PendingWrite.objects.filter(run=run.id)
    # A write has one id in all its revisions, and answers name it by that.
    ids.update(writes.values_list("write", flat=True))
    # The answers to erasures contain no value.
    return answers_about(ids).exclude(path__endswith="/erase/")


def _count_answers(run: Run) -> int:
    return _answers(run).count()


def _erase_answers(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Replace the answers about a run: a repeated post is from now on answered with the
    problem that its answer was erased.
    """
    problem = {
        "type": "urn:countersign:problem:erased",
        "title": "Erased",
        "status": GONE,
        "code": "erased",
        "detail": "what this request answered was erased",
        "record": str(record.id),
    }
    answer = json.dumps(problem).encode()
    protection = Protection(encrypted=bool(keyring().encryption))
    # The old answers are replaced unread, and may be large.
    for row in _answers(run).defer("answer"):
        encrypted_answer = sealed_rows.encrypted(row, "answer", answer, protection)
        IdempotencyRecord.objects.filter(id=row.id).update(
            status=GONE,
            answer=encrypted_answer,
        )


def _bulk_forks(run: Run) -> Any:
    """Return the bulk fork that made a run, if one did."""
    return BulkFork.objects.filter(results__fork=run.id).distinct()


def _count_bulk_forks(run: Run) -> int:
    count: int = _bulk_forks(run).count()
    return count


def require_no_bulk_fork(run: Run) -> None:
    """Raise `WrongStatus` while the bulk fork that made a run is under way: it makes
    more runs with the same patch. A job that has ended does not start again.
    """
    bulk_ids = _bulk_forks(run).values("id")
    live_jobs = Job.objects.filter(id__in=bulk_ids, status__in=LIVE)
    job = live_jobs.values_list("id", flat=True).first()
    if job is not None:
        raise WrongStatus(
            "the bulk fork that made this run is going on;"
            " erase again when it has ended",
            run=str(run.id),
            job=str(job),
        )


def _erase_bulk_forks(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Erase the patch that made this run, in its bulk fork and so for all runs that
    this made, and the reasons for which bulk forks refused the run.
    """
    for row in _bulk_forks(run):
        protection = Protection(row.encrypted)
        # Resealing a row that was changed would cover up the change.
        sealed_rows.verify_row(row, protection)
        values = payload_left(row, "wanted", partial(_erased_order, eraser))
        if values:
            changed_fields = sealed_rows.seal_again(row, protection, **values)
            row.save(update_fields=changed_fields)

    refusals = BulkForkResult.objects.filter(origin=run.id).exclude(message=b"")
    for result in refusals:
        message = sealed_columns.read_value(result, "message")
        erased_message = eraser.error(str(message))
        encrypted_message = sealed_rows.encrypted(
            result,
            "message",
            pack_json(erased_message),
            Protection(result.bulk.encrypted),
        )
        rows = BulkForkResult.objects.filter(id=result.id)
        rows.update(message=encrypted_message)


def _erased_order(eraser: Eraser, order: dict[str, Any]) -> dict[str, Any]:
    """Return what a bulk fork was to do, without the values that it was to set."""
    erased = dict(order)
    if "patch" in order:
        erased["patch"] = eraser.patch(order["patch"])
    if "reason" in order:
        erased["reason"] = eraser.texts(order["reason"])
    return erased


def _admin_lines(run: Run) -> Any:
    """Return the lines of the admin's history about a run."""
    if not apps.is_installed("django.contrib.admin"):
        return LogEntry.objects.none()
    is_about_run = Q(object_id__in=[str(run.id), run.id.hex])
    return LogEntry.objects.filter(is_about_run)


def _count_admin_lines(run: Run) -> int:
    count: int = _admin_lines(run).count()
    return count


def _erase_admin_lines(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """Erase the run's label, which the admin writes beside what a person did to it."""
    for line in _admin_lines(run):
        # Without paths the whole run is erased.
        erased_text = TEXT
        if record.paths:
            erased_text = eraser.text(line.object_repr)
        LogEntry.objects.filter(pk=line.pk).update(object_repr=erased_text)


SWEEPS = [
    Sweep(
        "answers to repeated posts",
        count=_count_answers,
        erase=_erase_answers,
        # A request about the run may be answered while the erasure goes on.
        again=True,
    ),
    Sweep(
        "bulk forks",
        count=_count_bulk_forks,
        erase=_erase_bulk_forks,
    ),
    Sweep(
        "lines of the admin's history",
        count=_count_admin_lines,
        erase=_erase_admin_lines,
    ),
]
