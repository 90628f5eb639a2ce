"""Removes one stretch of a run's checkpoints in one short transaction under the run's
lock: the row after it gets a new anchor if it needs one, the rows go, and one event of
the log records what was there.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
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
from checkpoints.retention.kept_points import gone_by_themselves
from checkpoints.retention.new_anchors import (
    NewAnchor,
    make_anchor,
    row_behind,
    set_anchor,
)
from checkpoints.retention.rule import Rule, facts_of, rule_from
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.removed_history import KIND, removed_history
from orchestrator.engine.errors import TamperedRow, WrongStatus
from orchestrator.engine.frozen import frozen

MOST = 500
"""The most rows that one transaction removes. A longer stretch goes in pieces, from its
end, each with its event.
"""
TRIES = 3
"""How often a removal is begun again because the run went on."""


@frozen
class RemovedRows:
    """The rows that one transaction removed: how many checkpoints, their bytes, and how
    many whole runs. `may_be_more`: there may be another stretch.
    """

    count: int
    bytes: int
    runs: int = 0
    may_be_more: bool = False


Inside = Any
"""Called with `RemovedRows` in the transaction, so that both are committed or none."""
Choose = Callable[[Run], Sequence[tuple[int, int]]]
"""Returns the (number, bytes) of checkpoints of a locked run that go, the newest first,
at most `MOST`; the head is never among them.
"""


def remove_stretch(
    rule: Rule,
    run_id: UUID,
    *,
    by_name: str,
    archived: Archived | None = None,
    inside: Inside,
) -> RemovedRows | None:
    """Remove the last stretch of a run's checkpoints that the rule does not keep.
    Returns what was removed, None if the rule keeps all. If they were `archived`, only
    what that bundle holds goes, and the event of the log names it. Raises as
    `remove_chosen` does.
    """
    return remove_chosen(
        partial(_going, rule, archived=archived),
        run_id,
        by_name=by_name,
        archived=archived,
        inside=inside,
    )


def remove_chosen(
    choose: Choose,
    run_id: UUID,
    *,
    by_name: str,
    archived: Archived | None = None,
    inside: Inside,
) -> RemovedRows | None:
    """Remove the last stretch of the checkpoints that are chosen of a locked run.
    Returns what was removed, None if nothing was chosen.

    Raises `TamperedRow` and `WrongKey` if what must be read does not verify,
    `UnknownThing`, `SaveFailed`, `WrongStatus` if the run goes on all the while,
    `OperationalError` if another transaction keeps the run locked; then nothing is
    removed.
    """
    anchor: NewAnchor | None = None
    for _ in range(1 + TRIES):
        elsewhere: list[Checkpoint] = []
        with transaction.atomic():
            run = locked_run.lock_run(run_id)
            # Chosen again at each attempt, since holds, pins and forks may have come.
            stretch, may_be_more = _last_stretch(choose(run))
            if not stretch:
                return None
            last, _ = stretch[0]
            to_anchor = row_behind(run, last)
            # None at the first attempt that needs an anchor, which only then is known.
            snapshots = _anchored(run, last, to_anchor, anchor)
            if snapshots is not None:
                size = sum(row_size for _, row_size in stretch)
                removed = RemovedRows(len(stretch), size, may_be_more=may_be_more)
                elsewhere = _removed(
                    run, stretch, snapshots, by_name=by_name, archived=archived
                )
                # The progress of the job is committed with the rows, or neither is.
                inside(removed)
        if snapshots is not None:
            # Only now: a transaction that is rolled back still needs the bytes.
            for row in elsewhere:
                checkpoint_rows.delete_payloads(row)
            return removed
        # Made without the lock, for payloads are read and stored. Most stretches need
        # none.
        anchor = make_anchor(run, to_anchor) if to_anchor else None
    raise WrongStatus(
        f"run {run_id} goes on while its history is removed", run=str(run_id)
    )


def _anchored(
    run: Run, last: int, to_anchor: UUID | None, anchor: NewAnchor | None
) -> list[list[str]] | None:
    """Set the anchor if the row after checkpoint `last`, which is `to_anchor`, cannot
    be loaded without one. Returns the fact of the log about that: [[checkpoint,
    snapshot hash]]. None if `anchor` was not made for that row, or the row has changed.
    """
    if to_anchor is None:
        return []
    if anchor is None or anchor.row.id != to_anchor:
        return None
    if not set_anchor(run, last, anchor):
        return None
    return [[str(to_anchor), anchor.row.snapshot_hash]]


def _removed(
    run: Run,
    stretch: Sequence[tuple[int, int]],
    snapshots: list[list[str]],
    *,
    by_name: str,
    archived: Archived | None,
) -> list[Checkpoint]:
    """Remove the rows, with an event in the log. Returns those whose bytes a backend
    keeps elsewhere.
    """
    first, _ = stretch[-1]
    last, _ = stretch[0]
    rows = Checkpoint.objects.filter(run=run.id, seq__range=(first, last))

    # With the row before them, if that has not gone already.
    hashes = {}
    are_elsewhere = False
    for seq, hash_, backend in query_cache.select_values(
        _span, run.id, first - 1, last
    ):
        hashes[seq] = hash_
        if seq >= first and backend != DATABASE:
            are_elsewhere = True

    elsewhere = []
    if are_elsewhere:
        names = ("run_id", "backend", "change", "snapshot")
        elsewhere = list(rows.exclude(backend=DATABASE).only(*names))
    facts = {"checkpoints": _facts(run, first, last, hashes), "snapshots": snapshots}
    if archived:
        facts["bundle"] = archived.name
    rows.delete()
    event = NewEvent(KIND, facts, actor=by_name)
    locked_run.append_locked(run, [event], at=timezone.now())
    return elsewhere


def _going(rule: Rule, run: Run, *, archived: Archived | None) -> list[tuple[int, int]]:
    """Return (seq, bytes) of rows that go, the newest first, at most `MOST`."""
    # The run may have gone on since, and the bundle lacks what it did.
    before = archived.head_seq if archived else run.head_seq
    # Only an age for whole runs can make a row go that `keep_last` would keep.
    if rule.keep_last is not None and run.status not in rule.ended:
        before = min(before, run.head_seq - rule.keep_last + 1)
    query = _rows_that_go(json.dumps(facts_of(rule), sort_keys=True))
    rows = query_cache.select_values(query, run.id, before)
    return [(int(seq), int(size)) for seq, size in rows]


@lru_cache(maxsize=20)
def _rows_that_go(facts: str) -> Query:
    """Return the same function for the same rule, so that its text, which is long, is
    compiled once and not under the lock.
    """
    unkept = gone_by_themselves(rule_from(json.loads(facts)))
    rows = unkept.order_by("-seq").values_list("seq", "stored_size")

    def rows_that_go(run: Any, before: Any) -> "QuerySet[Any, Any]":
        return rows.filter(run=run, seq__lt=before)[:MOST]

    return rows_that_go


def _last_stretch(
    going: Sequence[tuple[int, int]],
) -> tuple[list[tuple[int, int]], bool]:
    """Return the newest of these rows that form a sequence without gaps, and whether
    there may be more.
    """
    stretch: list[tuple[int, int]] = []
    for seq, size in going:
        if stretch and seq != stretch[-1][0] - 1:
            break
        stretch.append((seq, size))
    # A full page may be cut in the middle of a stretch; a gap shows an older one.
    may_be_more = len(going) == MOST or len(stretch) < len(going)
    return stretch, may_be_more


def _span(run: Any, first: Any, last: Any) -> "QuerySet[Any]":
    rows = Checkpoint.objects.filter(run=run, seq__gte=first, seq__lte=last).order_by()
    return rows.values_list("seq", "content_hash", "backend")


def _row_before(run: Run, first: int) -> tuple[int, str]:
    if first == 0:
        return -1, ""
    rows = Checkpoint.objects.filter(run=run.id, seq__lt=first).order_by("-seq")
    return rows.values_list("seq", "content_hash").first() or (-1, "")


def _facts(
    run: Run, first: int, last: int, hashes: Mapping[int, str]
) -> dict[str, Any]:
    """Return the facts of the event about rows that go: their numbers, and the hash of
    the row before them and of the last. Raises `TamperedRow` if rows before them are
    gone without an event.
    """
    after = hashes[last]
    if first - 1 in hashes:
        seq = first - 1
        before = hashes[seq]
    else:
        seq, before = _row_before(run, first)
    # The rows in between may have been removed by an earlier piece.
    if seq != first - 1:
        history = removed_history(run.id, protection_of(run))
        seq, before = history.checkpoints.follow(seq, before, first)
    if seq != first - 1:
        message = (
            f"checkpoints of run {run.key} before {first} are gone, "
            "and no line of its log says so"
        )
        raise TamperedRow(message, run=str(run.id))
    return {
        "first": first,
        "last": last,
        "count": last - first + 1,
        "before": before,
        "after": after,
    }
