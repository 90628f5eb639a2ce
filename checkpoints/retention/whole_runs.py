"""Removing whole runs: all rows that hang on them, with one sealed line of the audit
log a run, which records where its log ended. Only runs to which no row that stays
refers: no fork, no child, no request, no decision.
"""

from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Count, Q, Sum

from checkpoints.audit import lines as audit_log
from checkpoints.ledger import checkpoint_rows, locked_run
from checkpoints.models import (
    Checkpoint,
    LateResult,
    MemoryLanding,
    MemoryRecord,
    PendingWrite,
    RemovedKey,
    Run,
    RunEvent,
    RunLine,
    RunMetadata,
    TaskFigure,
    TaskResult,
    UploadReference,
)
from checkpoints.payloads import DATABASE
from checkpoints.retention.archive import Archived, require_archived
from checkpoints.retention.kept_points import WITH_RUN, classified
from checkpoints.retention.left_effects import find_effects, leave_effects
from checkpoints.retention.rule import Rule
from checkpoints.retention.stretches import Inside, RemovedRows
from checkpoints.sealing import data_keys
from checkpoints.verification.audit import REMOVED

PARTS: list[Any] = [
    MemoryRecord,
    MemoryLanding,
    LateResult,
    TaskResult,
    PendingWrite,
    RunLine,
    RunEvent,
    Checkpoint,
    UploadReference,
    RunMetadata,
    TaskFigure,
]
"""The models whose rows hang on a run; other floors add theirs when they are ready.
Memory that it left belongs to the installation, and stays; files that no run still
names are swept.
"""


def remove_run(
    rule: Rule, run_id: UUID, *, by: Any, archived: Archived | None, inside: Inside
) -> RemovedRows | None:
    """Remove a run, if the rule still does not keep it. Returns what was removed, None
    if the rule keeps it. `archived` is its bundle, if it has one.

    Raises `UnknownThing`, `WrongStatus` if it went on since it was archived,
    `TamperedRow` and `WrongKey` if its row does not match its seal, `OperationalError`
    if another transaction keeps it locked, and `IntegrityError` if a row of another app
    names it; then nothing is removed.
    """
    with transaction.atomic():
        run = locked_run.lock_run(run_id)
        require_archived(archived, run)
        rows = Checkpoint.objects.filter(run=run.id)
        # The head represents all rows: a run goes as a whole or not at all.
        if not classified(rule).filter(run=run.id, id=run.head, why=WITH_RUN).exists():
            return None
        sums = rows.aggregate(
            count=Count("id"),
            bytes=Sum("stored_size"),
            away=Count("id", filter=~Q(backend=DATABASE)),
        )
        elsewhere = []
        if sums["away"]:
            names = ("run_id", "backend", "change", "snapshot")
            elsewhere = list(rows.exclude(backend=DATABASE).only(*names))
        removed = RemovedRows(count=sums["count"], bytes=sums["bytes"], runs=1)
        _record_removal(run, by, archived)
        left_effects = find_effects(run)
        for model in PARTS:
            model.objects.filter(run=run.id).delete()
        # Django would look in each table that may name a run; the database itself
        # deletes none that is named.
        Run.objects.filter(id=run.id)._raw_delete(connection.alias)
        if run.encrypted and archived is None:
            # A bundle has the key as it is wrapped today; when the keys of the settings
            # change, only the row follows.
            data_keys.remove_data_key(run.id)
        # Ids never come again; under a chosen key `start` would repeat the journey.
        if run.key != str(run.id):
            RemovedKey.objects.update_or_create(key=run.key, defaults={"run": run.id})
        if left_effects is not None:
            leave_effects(left_effects)
        inside(removed)
    # Only now: a transaction that is rolled back still needs the bytes.
    for row in elsewhere:
        checkpoint_rows.delete_payloads(row)
    return removed


def _record_removal(run: Run, by: Any, archived: Archived | None) -> None:
    facts: dict[str, Any] = {
        "key": run.key,
        "graph": run.graph,
        "status": run.status,
        "event_seq": run.event_seq,
        "event_hash": run.event_hash,
    }
    if archived:
        facts["bundle"] = archived.name
    audit_log.record(REMOVED, actor=by, run=run.id, **facts)
