"""One stretch of a run's checkpoints removed: the row behind it is anchored anew, the rows go, and one line of the log
says what was there. One short transaction under the lock of the run.
"""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from checkpoints.db import query_cache
from checkpoints.db.query_cache import Query
from checkpoints.event_log import NewEvent
from checkpoints.ledger import checkpoint_rows, locked_run, reader
from checkpoints.ledger.checkpoint_rows import RunHeader
from checkpoints.models import Checkpoint, Run
from checkpoints.payloads import DATABASE
from checkpoints.retention.archive import Archived
from checkpoints.retention.kept_points import OLD, classified
from checkpoints.retention.rule import Rule, facts_of, rule_from
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.removed_history import KIND, removed_history
from orchestrator.engine import canonical
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen

MOST = 500
"""Rows that one transaction removes. A longer stretch goes in pieces, from its end, each with its line."""


@frozen
class RemovedRows:
    """What one transaction took away: how many checkpoints, the bytes that they kept, and how many whole runs. `more`:
    there may be another stretch.
    """

    count: int
    bytes: int
    runs: int = 0
    more: bool = False


Inside = Any
"""Called with `RemovedRows` in the transaction: what else stands or falls with it."""


def remove_stretch(
    rule: Rule, run_id: UUID, *, by_name: str, archived: Archived | None = None, inside: Inside
) -> RemovedRows | None:
    """Remove the last stretch of a run's checkpoints that the rule does not keep; None where it keeps all. Where they
    were `archived`, only what that bundle holds goes, and the line of the log names it.

    Raises `TamperedRow` and `WrongKey` where what must be read does not verify, `UnknownThing`, `SaveFailed`,
    `OperationalError` where somebody else keeps the run locked; then nothing is removed.
    """
    elsewhere: list[Checkpoint] = []
    with transaction.atomic():
        run = locked_run.lock_run(run_id)
        going = _going(rule, run, before=archived.head_seq if archived else run.head_seq)
        if not going:
            return None
        stretch = _last_stretch(going)
        first, last = stretch[-1][0], stretch[0][0]
        rows = Checkpoint.objects.filter(run=run.id, seq__range=(first, last))
        elsewhere = list(rows.exclude(backend=DATABASE).only("run_id", "backend", "change", "snapshot"))
        snapshots = _anchor_behind(run, last)
        facts = {"checkpoints": _facts(run, first, last), "snapshots": snapshots}
        facts |= {"bundle": archived.name} if archived else {}
        rows.delete()
        locked_run.append_locked(run, [NewEvent(KIND, facts, actor=by_name)], at=timezone.now())
        more = len(going) == MOST or len(stretch) < len(going)
        removed = RemovedRows(len(stretch), sum(size for _, size in stretch), more=more)
        inside(removed)
    for row in elsewhere:
        checkpoint_rows.delete_payloads(row)
    return removed


def _going(rule: Rule, run: Run, *, before: int) -> list[tuple[int, int]]:
    """(seq, bytes) of rows that go, of those before a number, the newest first, at most `MOST`."""
    found = query_cache.select_values(_rows_that_go(json.dumps(facts_of(rule), sort_keys=True)), run.id, before)
    return [(int(seq), int(size)) for seq, size in found]


@lru_cache(maxsize=20)
def _rows_that_go(facts: str) -> Query:
    """The same function for the same rule, so that its text, which is long, is compiled once and not under the lock."""
    rule = rule_from(json.loads(facts))
    rows = classified(rule).filter(why=OLD).order_by("-seq").values_list("seq", "stored_size")
    return lambda run, before: rows.filter(run=run, seq__lt=before)[:MOST]


def _last_stretch(going: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of the newest of these rows that follow each other without a gap."""
    found: list[tuple[int, int]] = []
    for seq, size in going:
        if found and seq != found[-1][0] - 1:
            break
        found.append((seq, size))
    return found


def _facts(run: Run, first: int, last: int) -> dict[str, Any]:
    """What the line says of rows that go: their numbers, and the hash of the row before them and of the last."""
    after = Checkpoint.objects.filter(run=run.id, seq=last).values_list("content_hash", flat=True).get()
    row = Checkpoint.objects.filter(run=run.id, seq__lt=first).order_by("-seq").values_list("seq", "content_hash")
    seq, before = row.first() or (-1, "")
    if seq != first - 1:
        gone = removed_history(run.id, protection_of(run)).checkpoints
        seq, before = gone.follow(seq, before, first)
    if seq != first - 1:
        what = f"checkpoints of run {run.key} before {first} are gone, and no line of its log says so"
        raise TamperedRow(what, run=str(run.id))
    return {"first": first, "last": last, "count": last - first + 1, "before": before, "after": after}


def _anchor_behind(run: Run, last: int) -> list[list[str]]:
    """Give the next row of the line a snapshot where a load of it reads rows up to `last`; gives what the line of the
    log says of that: [[checkpoint, snapshot hash]].
    """
    line = Checkpoint.objects.filter(run=run.id, seq=last).values_list("line", flat=True).get()
    behind = Checkpoint.objects.filter(run=run.id, line=line, seq__gt=last).order_by("seq")
    first = behind.values("id", "seq", "anchor").first()
    if first is None or first["anchor"] > last:
        return []
    header = RunHeader.of(run)
    rows = reader.range_of(first["id"])
    row, document = rows[-1], reader.proven(rows, header.protection)
    row.save(update_fields=checkpoint_rows.anchor_anew(header, row, canonical.encode(document)))
    _begin_with(header, row, [(pk, bytes(seal or b"")) for pk, seal in _loaded_before(behind, row)])
    return [[str(row.id), row.snapshot_hash]]


def _loaded_before(behind: Any, row: Checkpoint) -> Any:
    return behind.filter(seq__gt=row.seq, anchor__lt=row.seq).values_list("id", "seal")


def _begin_with(header: RunHeader, row: Checkpoint, behind: Sequence[tuple[UUID, bytes]]) -> None:
    """The rows behind that were loaded from an earlier one begin with this row. A seal of the first format covers
    that, so such a row is verified and sealed anew.
    """
    plain = [pk for pk, seal in behind if len(seal) != sealed_rows.MAC_BYTES]
    Checkpoint.objects.filter(id__in=plain).update(anchor=row.seq)
    for one in Checkpoint.objects.filter(id__in={pk for pk, _ in behind} - set(plain)):
        sealed_rows.verify_row(one, header.protection)
        one.anchor = row.seq
        one.save(update_fields=checkpoint_rows.reseal_anchor(header, one))
