"""What floor 3 keeps of runs' values outside their rows: answers to repeated posts, what a bulk fork was to do, the
admin's history. Added to `checkpoints.erasure` when it is ready.
"""

import json
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
    """The answers that tell of a run: its id, or that of a row of it, stands in the address or in the answer. Not what
    erasing answered, which tells no value.
    """
    ids = {run.id}
    for model in (Checkpoint, ApprovalRequest, Receipt):
        ids |= set(model._base_manager.filter(run=run.id).values_list("pk", flat=True))
    ids |= set(PendingWrite.objects.filter(run=run.id).values_list("write", flat=True))
    return answers_about(ids).exclude(path__endswith="/erase/")


def _erase_answers(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """The answer to a repeated post says from now on that what it told was erased."""
    detail = "what this request answered was erased"
    problem = {"type": "urn:countersign:problem:erased", "title": "Erased", "status": GONE, "code": "erased"}
    answer = json.dumps({**problem, "detail": detail, "record": str(record.id)}).encode()
    protection = Protection(encrypted=bool(keyring().encryption))
    for row in _answers(run).defer("answer"):
        kept = sealed_rows.encrypted(row, "answer", answer, protection)
        IdempotencyRecord.objects.filter(id=row.id).update(status=GONE, answer=kept)


def _bulk_forks(run: Run) -> Any:
    return BulkFork.objects.filter(results__fork=run.id).distinct()


def require_no_bulk_fork(run: Run) -> None:
    """Raise `WrongStatus` while the bulk fork that made a run goes on: it makes more of the same patch. A job that has
    ended stays so.
    """
    going_on = Job.objects.filter(id__in=_bulk_forks(run).values("id"), status__in=LIVE).values_list("id", flat=True)
    if (job := going_on.first()) is not None:
        message = "the bulk fork that made this run is going on; erase again when it has ended"
        raise WrongStatus(message, run=str(run.id), job=str(job))


def _erase_bulk_forks(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """The patch that made this run, of the same bulk fork for all its runs; and what a refusal said of the run."""
    for row in _bulk_forks(run):
        protection = Protection(row.encrypted)
        sealed_rows.verify_row(row, protection)
        values = payload_left(row, "wanted", lambda wanted: {**wanted, **_wanted_left(wanted, eraser)})
        if values:
            row.save(update_fields=sealed_rows.seal_again(row, protection, **values))
    for one in BulkForkResult.objects.filter(origin=run.id).exclude(message=b""):
        said = sealed_columns.read_value(one, "message")
        kept = sealed_rows.encrypted(one, "message", pack_json(eraser.error(str(said))), Protection(one.bulk.encrypted))
        BulkForkResult.objects.filter(id=one.id).update(message=kept)


def _wanted_left(wanted: dict[str, Any], eraser: Eraser) -> dict[str, Any]:
    ways = {"patch": eraser.patch, "reason": eraser.texts}
    return {name: erase(wanted[name]) for name, erase in ways.items() if name in wanted}


def _admin_lines(run: Run) -> Any:
    mine = Q(object_id__in=[str(run.id), run.id.hex])
    return LogEntry.objects.filter(mine) if apps.is_installed("django.contrib.admin") else LogEntry.objects.none()


def _erase_admin_lines(run: Run, record: ErasureRecord, eraser: Eraser) -> None:
    """The admin writes a run's label beside what somebody did to it."""
    for line in _admin_lines(run):
        left = TEXT if not record.paths else eraser.text(line.object_repr)
        LogEntry.objects.filter(pk=line.pk).update(object_repr=left)


SWEEPS = [
    Sweep("answers to repeated posts", lambda run: _answers(run).count(), _erase_answers, again=True),
    Sweep("bulk forks", lambda run: _bulk_forks(run).count(), _erase_bulk_forks),
    Sweep("lines of the admin's history", lambda run: _admin_lines(run).count(), _erase_admin_lines),
]
