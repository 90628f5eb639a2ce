"""One stretch of a run's checkpoints removed: the row behind it is anchored anew, the rows go, and one line of the log
says what was there. One short transaction under the lock of the run.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from checkpoints.db import query_cache
from checkpoints.db.query_cache import Query
from checkpoints.event_log import NewEvent
from checkpoints.ledger import checkpoint_rows, locked_run
from checkpoints.models import Checkpoint, Run
from checkpoints.payloads import DATABASE
from checkpoints.retention.archive import Archived
from checkpoints.retention.kept_points import OLD, classified
from checkpoints.retention.new_anchors import NewAnchor, make_anchor, row_behind, set_anchor
from checkpoints.retention.rule import Rule, facts_of, rule_from
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.removed_history import KIND, removed_history
from orchestrator.engine.errors import TamperedRow, WrongStatus
from orchestrator.engine.frozen import frozen

MOST = 500
"""Rows that one transaction removes. A longer stretch goes in pieces, from its end, each with its line."""


TRIES = 3
"""How often a removal is begun anew because the run went on."""


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
    `WrongStatus` where the run goes on all the while, `OperationalError` where somebody else keeps the run locked;
    then nothing is removed.
    """
    anchor: NewAnchor | None = None
    for _ in range(1 + TRIES):
        elsewhere: list[Checkpoint] = []
        with transaction.atomic():
            run = locked_run.lock_run(run_id)
            stretch, more = _last_stretch(_going(rule, run, archived))
            if not stretch:
                return None
            wanted = row_behind(run, stretch[0][0])
            snapshots = _anchored(run, stretch[0][0], wanted, anchor)
            if snapshots is not None:
                removed = RemovedRows(len(stretch), sum(size for _, size in stretch), more=more)
                elsewhere = _removed(run, stretch, snapshots, by_name=by_name, archived=archived)
                inside(removed)
        if snapshots is not None:
            for row in elsewhere:
                checkpoint_rows.delete_payloads(row)
            return removed
        # Without the lock, for payloads are read and put. Most stretches need none.
        anchor = make_anchor(run, wanted) if wanted else None
    raise WrongStatus(f"run {run_id} goes on while its history is removed", run=str(run_id))


def _anchored(run: Run, last: int, wanted: UUID | None, anchor: NewAnchor | None) -> list[list[str]] | None:
    """Set the anchor where a load of the row behind checkpoint `last` needs one, which is `wanted`; gives what the line
    of the log says of that: [[checkpoint, snapshot hash]]. None where that of `anchor` is not there, or has moved.
    """
    if wanted is None:
        return []
    if anchor is None or anchor.row.id != wanted or not set_anchor(run, last, anchor):
        return None
    return [[str(wanted), anchor.row.snapshot_hash]]


def _removed(
    run: Run,
    stretch: Sequence[tuple[int, int]],
    snapshots: list[list[str]],
    *,
    by_name: str,
    archived: Archived | None,
) -> list[Checkpoint]:
    """Remove the rows, with a line in the log. Gives those whose bytes are elsewhere."""
    first, last = stretch[-1][0], stretch[0][0]
    rows = Checkpoint.objects.filter(run=run.id, seq__range=(first, last))
    # With the one before them, if that has not gone already.
    found = {seq: (hash_, backend) for seq, hash_, backend in query_cache.select_values(_span, run.id, first - 1, last)}
    away = any(backend != DATABASE for seq, (_, backend) in found.items() if seq >= first)
    elsewhere = list(rows.exclude(backend=DATABASE).only("run_id", "backend", "change", "snapshot")) if away else []
    facts = {
        "checkpoints": _facts(run, first, last, {seq: one[0] for seq, one in found.items()}),
        "snapshots": snapshots,
    }
    facts |= {"bundle": archived.name} if archived else {}
    rows.delete()
    locked_run.append_locked(run, [NewEvent(KIND, facts, actor=by_name)], at=timezone.now())
    return elsewhere


def _going(rule: Rule, run: Run, archived: Archived | None) -> list[tuple[int, int]]:
    """(seq, bytes) of rows that go, the newest first, at most `MOST`."""
    before = archived.head_seq if archived else run.head_seq
    found = query_cache.select_values(_rows_that_go(json.dumps(facts_of(rule), sort_keys=True)), run.id, before)
    return [(int(seq), int(size)) for seq, size in found]


@lru_cache(maxsize=20)
def _rows_that_go(facts: str) -> Query:
    """The same function for the same rule, so that its text, which is long, is compiled once and not under the lock."""
    rule = rule_from(json.loads(facts))
    rows = classified(rule).filter(why=OLD).order_by("-seq").values_list("seq", "stored_size")
    return lambda run, before: rows.filter(run=run, seq__lt=before)[:MOST]


def _last_stretch(going: Sequence[tuple[int, int]]) -> tuple[list[tuple[int, int]], bool]:
    """Those of the newest of these rows that follow each other without a gap, and whether there may be more."""
    found: list[tuple[int, int]] = []
    for seq, size in going:
        if found and seq != found[-1][0] - 1:
            break
        found.append((seq, size))
    return found, len(going) == MOST or len(found) < len(going)


def _span(run: Any, first: Any, last: Any) -> "QuerySet[Any]":
    rows = Checkpoint.objects.filter(run=run, seq__gte=first, seq__lte=last).order_by()
    return rows.values_list("seq", "content_hash", "backend")


def _row_before(run: Run, first: int) -> tuple[int, str]:
    if first == 0:
        return -1, ""
    row = Checkpoint.objects.filter(run=run.id, seq__lt=first).order_by("-seq").values_list("seq", "content_hash")
    return row.first() or (-1, "")


def _facts(run: Run, first: int, last: int, hashes: Mapping[int, str]) -> dict[str, Any]:
    """What the line says of rows that go: their numbers, and the hash of the row before them and of the last."""
    after = hashes[last]
    seq, before = (first - 1, hashes[first - 1]) if first - 1 in hashes else _row_before(run, first)
    if seq != first - 1:
        gone = removed_history(run.id, protection_of(run)).checkpoints
        seq, before = gone.follow(seq, before, first)
    if seq != first - 1:
        what = f"checkpoints of run {run.key} before {first} are gone, and no line of its log says so"
        raise TamperedRow(what, run=str(run.id))
    return {"first": first, "last": last, "count": last - first + 1, "before": before, "after": after}
