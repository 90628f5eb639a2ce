"""What retention does to a run, by hand: old rows are given snapshots, stretches of
rows are removed, and a line of the log says so.
"""

from typing import Any

from django.db import transaction
from django.utils import timezone

from checkpoints import timeline
from checkpoints.core import codec
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run, reader
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.values import canonical

First = tuple[int, int]
"""Numbers of the first and the last row of a stretch."""


def checkpoint_at(run: Run, seq: int) -> Checkpoint:
    return Checkpoint.objects.get(run=run, seq=seq)


def give_snapshot(row: Checkpoint, document: Any = None) -> list[str]:
    """Anchor a row anew: it gets a snapshot (of its own state, unless another is
    given), and the rows behind it that were loaded from an earlier one begin with it.
    Gives what the line of the log says of that.
    """
    run = Run.objects.get(id=row.run_id)
    protection = protection_of(run)
    data = canonical.encode(
        reader.document_at(row.id) if document is None else document
    )
    row.snapshot_hash = protection.digest(data)
    row.anchor = row.seq
    row.snapshot = sealed_rows.encrypted(row, "snapshot", codec.pack(data), protection)
    row.stored_size = len(bytes(row.change)) + len(row.snapshot)
    _save(row, "snapshot", "snapshot_hash", "anchor", "stored_size")
    for behind in Checkpoint.objects.filter(
        run=run, line=row.line, seq__gt=row.seq, anchor__lt=row.seq
    ):
        behind.anchor = row.seq
        _save(behind, "anchor")
    return [str(row.id), row.snapshot_hash]


def _save(row: Checkpoint, *changed: str) -> None:
    """Keep what its seal leaves out."""
    if row.snapshot_hash:
        sealed_rows.seal_later(row)
    row.save(update_fields=[*changed, "snapshot_seal"])


def stretch_of(model: Any, run: Run, numbers: First) -> dict[str, Any]:
    """Return what a line says of these rows. The row before them may be gone itself:
    then an earlier line has its hash.
    """
    first, last = numbers
    name = "content_hash" if model is Checkpoint else "hash"
    hashes = dict(
        model.objects.filter(run=run, seq__in=[first - 1, last]).values_list(
            "seq", name
        )
    )
    for line in RunEvent.objects.filter(run=run, type="history_removed"):
        earlier = timeline.payload_of(line).get(
            "checkpoints" if model is Checkpoint else "events"
        )
        hashes |= {earlier["last"]: earlier["after"]} if earlier else {}
    before = hashes.get(first - 1, "")
    return {
        "first": first,
        "last": last,
        "count": last - first + 1,
        "before": before,
        "after": hashes[last],
    }


def facts_of(
    run: Run, *, checkpoints: First | None = None, events: First | None = None
) -> dict[str, Any]:
    """The line of what is about to be removed; the row behind removed checkpoints is
    given a snapshot.
    """
    facts: dict[str, Any] = {}
    if checkpoints:
        facts["checkpoints"] = stretch_of(Checkpoint, run, checkpoints)
        facts["snapshots"] = [give_snapshot(checkpoint_at(run, checkpoints[1] + 1))]
    if events:
        facts["events"] = stretch_of(RunEvent, run, events)
    return facts


def append_line(run: Run, facts: dict[str, Any]) -> None:
    """Leave the line in the run's log."""
    with transaction.atomic():
        line = NewEvent("history_removed", facts, actor="stella")
        locked_run.append_locked(locked_run.lock_run(run.id), [line], at=timezone.now())


def delete_rows(
    run: Run, *, checkpoints: First | None = None, events: First | None = None
) -> None:
    """Delete these rows, and say so nowhere."""
    for model, numbers in ((Checkpoint, checkpoints), (RunEvent, events)):
        if numbers:
            rows: Any = model
            rows.objects.filter(run=run, seq__range=numbers)._raw_delete("default")


def remove_history(
    run: Run, *, checkpoints: First | None = None, events: First | None = None
) -> dict[str, Any]:
    """Remove these rows, with one line for both. Gives what it says."""
    facts = facts_of(run, checkpoints=checkpoints, events=events)
    delete_rows(run, checkpoints=checkpoints, events=events)
    append_line(run, facts)
    return facts
