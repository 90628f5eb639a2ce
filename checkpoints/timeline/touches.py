"""The checkpoints that set a channel, newest first, with the channel's value after
each: along a line and its ancestors and, for a fork, on into its origin.

Columns show which rows set it; only the payloads of these are read, and for each batch
the payload that it is folded from. Every row is verified against its seal. `path_log`
calls it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

from checkpoints.core.state_paths import (
    StatePath,
    changed_document,
    is_same,
    is_touched,
    narrowed,
    value_in,
)
from checkpoints.ledger import reader
from checkpoints.ledger.checkpoint_rows import content_hash
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import BEGINNINGS, Source
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.timeline.spans import Among, Spans, origin_of, spans_of, within_spans
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical
from orchestrator.engine.values.ops import Op

WINDOW = 200
"""The most rows whose columns are read in one query."""
BATCHES = (1, 16, 64, 256)
"""The least number of payloads in the first batch, the second, and so on: the first
mostly answers. A batch ends where the rows that are folded together end.
"""
STEPPED = frozenset({Source.SUPERSTEP, Source.SETTLEMENT, Source.FAILURE})
"""Sources of rows that list what they set."""


@frozen
class Touch:
    """A checkpoint that may have set a channel: its row without payload, its run, its
    change, and of the document after it the channel alone. `setting` is the position of
    the op in its change that last gave the path another value; None if no op shows it.
    Each superstep that left no row has an op in the change of the next row.
    """

    row: Checkpoint
    run: Run
    change: list[Op]
    document: dict[str, Any]
    setting: int | None = None

    @property
    def is_covered(self) -> bool:
        """Return whether the path was set by a superstep that left no row."""
        return self.setting is not None and self.setting < len(self.change) - 1


def covers_supersteps(row: Checkpoint, older: Checkpoint) -> bool:
    """Return whether supersteps that left no row lie between two rows, so that the
    newer one holds their changes too.
    """
    # A settlement and a failure have the number of the superstep before them.
    own_supersteps = 1 if row.source == Source.SUPERSTEP else 0
    return row.superstep - older.superstep > own_supersteps


def touches_back(
    run: Run,
    spans: Spans,
    path: StatePath,
    *,
    among: Among,
) -> Iterator[Touch]:
    """Yield the checkpoints of these spans that may have set the path's channel, newest
    first; then, for a fork, those of its origin, as far as the runs are `among` those
    that may be seen. Raises `TamperedRow`, `WrongKey`.
    """
    visited: set[UUID] = set()
    oldest_seq = -1
    while run.id not in visited:
        visited.add(run.id)
        for batch in _batches(_ranges(run, spans, path)):
            yield from _touches_of(run, batch, path)
            oldest_seq = batch[-1].seq
        # Where history was removed, the change before it is not known.
        if oldest_seq != 0:
            return
        origin = origin_of(run, among)
        if origin is None:
            return
        run = origin.run
        spans = spans_of(origin.run_id, origin.line, origin.seq)


def _ranges(
    run: Run,
    spans: Spans,
    path: StatePath,
) -> Iterator[list[Checkpoint]]:
    """Yield, for each range of rows that are folded together, those that may have set
    the channel. Leaves out ranges in which none has.
    """
    rows_back = _rows_back(run, spans)
    for (_, anchor), group in groupby(rows_back, key=_line_and_anchor):
        pairs = list(group)
        first, _ = pairs[-1]
        # No seal holds an anchor, and rows that are left out by a forged one must not
        # be passed over.
        if first.seq != anchor:
            raise _broken_history(first, "is not loaded from where it says")
        rows = [row for row, older in pairs if _may_set(row, older, path)]
        if rows:
            yield rows


def _line_and_anchor(pair: tuple[Checkpoint, Checkpoint | None]) -> tuple[int, int]:
    """Return what rows that are folded together have in common."""
    row, _ = pair
    return row.line, row.anchor


def _rows_back(
    run: Run,
    spans: Spans,
) -> Iterator[tuple[Checkpoint, Checkpoint | None]]:
    """Yield each kept row of the spans, newest first, with the one before it; both
    without payload. The first of all, and the first after a removed stretch, have none
    before them and are the last. Raises `TamperedRow` if rows are missing that nobody
    removed.
    """
    newer: Checkpoint | None = None
    for row in _verified_rows_back(run, spans):
        if newer is not None:
            # Between two rows that aren't child and parent, others are missing,
            # including where only the beginning of a line is gone.
            if newer.source not in BEGINNINGS and newer.parent != row.id:
                break
            yield newer, row
        newer = row

    if newer is None:
        return
    # A row that begins a run or a line continues no row that could be missing.
    if newer.seq != 0 and newer.source not in BEGINNINGS:
        _require_removal(run, newer)
    yield newer, None


def _verified_rows_back(
    run: Run,
    spans: Spans,
) -> Iterator[Checkpoint]:
    """Yield the kept rows of the spans, newest first, without payload. One query for
    each `WINDOW` of them.
    """
    rows = Checkpoint.objects.filter(within_spans(spans), run=run.id, kept=True)
    rows = rows.defer("change", "snapshot").order_by("-seq")
    protection = protection_of(run)
    window = list(rows[:WINDOW])
    while window:
        sealed_rows.verify_rows(window, protection)
        yield from window
        # The last window saves the query for an empty one.
        if len(window) < WINDOW:
            return
        window = list(rows.filter(seq__lt=window[-1].seq)[:WINDOW])


def _require_removal(run: Run, row: Checkpoint) -> None:
    """Raise `TamperedRow` if no log entry records that the rows before this one were
    removed. One query.
    """
    protection = protection_of(run)
    for entry in RunEvent.objects.filter(run=run.id, type="history_removed"):
        sealed_rows.verify_row(entry, protection)
        removed = read_value(entry, "payload").get("checkpoints") or {}
        if removed.get("last") != row.seq - 1:
            continue
        # The row must continue from the very content that was removed.
        expected = content_hash(row, removed["after"], protection)
        if expected == row.content_hash:
            return
    raise _broken_history(row, "has lost the checkpoints before it")


def _broken_history(row: Checkpoint, fault: str) -> TamperedRow:
    return TamperedRow(
        f"checkpoint {row} {fault}",
        row=sealed_rows.name_of(row),
        checkpoint=str(row.id),
        seq=row.seq,
    )


def _may_set(
    row: Checkpoint,
    older: Checkpoint | None,
    path: StatePath,
) -> bool:
    """Return whether a row may have set the channel, by its columns."""
    # The first row of a line has no row of this line to be compared with.
    if older is None or row.line != older.line:
        return True
    # Rows of other sources need not list what they set.
    if row.source not in STEPPED:
        return True
    # No row lists what it noted in the diagnostics.
    if path.partitions == ("diagnostics",):
        return True
    # A row lists only what its own superstep set.
    return path.channel in row.changed or covers_supersteps(row, older)


def _batches(ranges: Iterable[list[Checkpoint]]) -> Iterator[list[Checkpoint]]:
    """Yield whole ranges, as many as make a batch: the first batch mostly answers, and
    later ones save queries.
    """
    batch: list[Checkpoint] = []
    position = 0
    for rows in ranges:
        batch += rows
        if len(batch) >= BATCHES[position]:
            yield batch
            # A caller that goes on will mostly read much more.
            batch = []
            position = min(position + 1, len(BATCHES) - 1)
    if batch:
        yield batch


def _touches_of(
    run: Run,
    batch: Sequence[Checkpoint],
    path: StatePath,
) -> list[Touch]:
    """Return the rows of a batch, newest first, with the channel after each. Two
    queries.
    """
    protection = protection_of(run)
    oldest = batch[-1]
    base = Checkpoint.objects.get(run=run.id, seq=oldest.anchor)
    sealed_rows.verify_row(base, protection)
    document = narrowed(reader.folded(_proven_parts(base, protection)), path)

    touches: list[Touch] = []
    for row, change in _changes_of(run, batch[::-1], base, protection):
        if row.seq == base.seq:
            # The document is already the one after it.
            setting = _last_touching(change, path)
        else:
            document, setting = _applied(document, change, path)
        touches.append(Touch(row, run, change, document, setting))
    return touches[::-1]


def touch_at(
    row: Checkpoint,
    run: Run,
    document: dict[str, Any],
    path: StatePath,
    *,
    before: dict[str, Any] | None = None,
) -> Touch:
    """Return the touch of a row whose proven document is given, and the one before it
    if that is there. Raises `TamperedRow`, `WrongKey`.
    """
    change = _change_of(row, protection_of(run))
    if before is None:
        setting = _last_touching(change, path)
    else:
        _, setting = _applied(narrowed(before, path), change, path)
    return Touch(row, run, change, narrowed(document, path), setting)


def _applied(
    document: dict[str, Any],
    change: Iterable[Op],
    path: StatePath,
) -> tuple[dict[str, Any], int | None]:
    """Return the document after a change, and the position of the op that last gave the
    path another value.
    """
    setting = None
    for position, op in enumerate(change):
        before = document
        document = changed_document(document, [op], path)
        if not is_same(value_in(before, path), value_in(document, path)):
            setting = position
    return document, setting


def _last_touching(change: Iterable[Op], path: StatePath) -> int | None:
    """Return the position of the last op that names the path's channel, for a change
    before which the value is not read.
    """
    last = None
    for position, op in enumerate(change):
        if op["op"] == "within" and is_touched(op, path):
            last = position
    return last


def _proven_parts(base: Checkpoint, protection: Protection) -> list[bytes]:
    """Return the snapshot of a row, verified against its hash."""
    [part] = reader.parts_of([base], protection)
    reader.require_hashed(base, part, protection, begins=True)
    return [part]


def _changes_of(
    run: Run,
    rows: Sequence[Checkpoint],
    base: Checkpoint,
    protection: Protection,
) -> Iterator[tuple[Checkpoint, list[Op]]]:
    """Yield each row with its change. One query, none if `base` is the only row."""
    stored_changes = {base.seq: base.change}
    others = [row.seq for row in rows if row.seq != base.seq]
    if others:
        stored = Checkpoint.objects.filter(run=run.id, seq__in=others)
        stored_changes |= dict(stored.values_list("seq", "change"))
    for row in rows:
        row.change = stored_changes.get(row.seq, b"")
        yield row, _change_of(row, protection)


def _change_of(row: Checkpoint, protection: Protection) -> list[Op]:
    """Return a row's change, verified against its hash."""
    if not row.change:
        # Its snapshot stands for it.
        if not row.snapshot_hash:
            raise reader.altered_payload(row)
        document = reader.folded(_proven_parts(row, protection))
        return [{"op": "set", "value": document}]
    data = reader.bytes_of(row, "change", protection)
    reader.require_hashed(row, data, protection)
    change: list[Op] = canonical.loads(data)
    return change
