"""The checkpoints that set a channel, newest first, with the channel's value after each: along a line, its ancestors
and, for a fork, on in its origin.

Which rows set it is told by columns; only their payloads are read, and of each batch the one that it is folded from.
Every row is proven to be what was sealed. `path_log` calls it.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from checkpoints.core.state_paths import StatePath, changed_document, is_same, is_touched, narrowed, value_in
from checkpoints.ledger import reader
from checkpoints.ledger.checkpoint_rows import content_hash
from checkpoints.models import Checkpoint, Run, RunEvent
from checkpoints.models.checkpoint import BEGINNINGS, Source
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.timeline.spans import Among, Spans, origin_of, spans_of, within_spans
from orchestrator.engine import canonical
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.frozen import frozen
from orchestrator.engine.ops import Op

WINDOW = 200
"""Rows whose columns are read in one query."""
BATCHES = (1, 16, 64, 256)
"""Payloads of one batch, at least, up to the end of what is folded together: mostly the first answers."""
_STEPPED = frozenset({Source.SUPERSTEP, Source.SETTLEMENT, Source.FAILURE})
"""Sources of rows that list what they set."""


@frozen
class Touch:
    """A checkpoint that may have set a channel: its row without payload, its run, its change, and of the document after
    it the channel alone. `setting` is the place of the op in its change that last gave the path another value; None
    where no op tells. Each superstep that left no row of its own has an op of its own.
    """

    row: Checkpoint
    run: Run
    change: list[Op]
    document: dict[str, Any]
    setting: int | None = None

    @property
    def is_covered(self) -> bool:
        """Return whether a superstep set the path that left no row of its own."""
        return self.setting is not None and self.setting < len(self.change) - 1


def touches_back(run: Run, spans: Spans, path: StatePath, *, among: Among) -> Iterator[Touch]:
    """The checkpoints of these spans that may have set the path's channel, newest first; then, for a fork, those of its
    origin, as far as the runs are `among` those that may be seen. Raises `TamperedRow`, `WrongKey`.
    """
    seen = set()
    first = -1
    while run.id not in seen:
        seen.add(run.id)
        for batch in _batches(_ranges(run, spans, path)):
            yield from _valued(run, batch, path)
            first = batch[-1].seq
        # Where history was removed, nobody knows what came before.
        origin = origin_of(run, among) if first == 0 else None
        if origin is None:
            return
        run, spans = origin.run, spans_of(origin.run_id, origin.line, origin.seq)


def _ranges(run: Run, spans: Spans, path: StatePath) -> Iterator[list[Checkpoint]]:
    """Of rows that are folded together, those that may have set the channel."""
    for (_, anchor), pairs in groupby(_rows_back(run, spans), key=lambda pair: (pair[0].line, pair[0].anchor)):
        rows = list(pairs)
        if rows[-1][0].seq != anchor:
            # No seal holds an anchor: rows that another one leaves out must not be passed over.
            raise _missing(rows[-1][0], "is not loaded from where it says")
        if found := [row for row, older in rows if _may_set(row, older, path)]:
            yield found


def _rows_back(run: Run, spans: Spans) -> Iterator[tuple[Checkpoint, Checkpoint | None]]:
    """Each kept row of the spans, newest first, with the one before it, without their payloads. The first of all, and
    the first behind what was removed, have none and end it.
    """
    rows = Checkpoint.objects.filter(within_spans(spans), run=run.id, kept=True).defer("change", "snapshot")
    protection, newer = protection_of(run), None
    while True:
        older = rows if newer is None else rows.filter(seq__lt=newer.seq)
        window = list(older.order_by("-seq")[:WINDOW])
        sealed_rows.verify_rows(window, protection)
        for row in window:
            if newer is not None and newer.line == row.line and newer.parent != row.id:
                break
            if newer is not None:
                yield newer, row
            newer = row
        else:
            if len(window) == WINDOW:
                continue
        break
    if newer is not None:
        if newer.seq and newer.source not in BEGINNINGS:
            _require_removal(run, newer)
        yield newer, None


def _require_removal(run: Run, row: Checkpoint) -> None:
    """Raise `TamperedRow` where no line of the log says that the rows before this one were removed. One query."""
    protection = protection_of(run)
    for line in RunEvent.objects.filter(run=run.id, type="history_removed"):
        sealed_rows.verify_row(line, protection)
        gone = read_value(line, "payload").get("checkpoints") or {}
        if gone.get("last") == row.seq - 1 and content_hash(row, gone["after"], protection) == row.content_hash:
            return
    raise _missing(row, "has lost the checkpoints before it")


def _missing(row: Checkpoint, what: str) -> TamperedRow:
    name = sealed_rows.name_of(row)
    return TamperedRow(f"checkpoint {row} {what}", row=name, checkpoint=str(row.id), seq=row.seq)


def _may_set(row: Checkpoint, older: Checkpoint | None, path: StatePath) -> bool:
    """Whether a row may have set the channel. A row lists what its own superstep set; where rows before it did not stay
    in the timeline, it holds their changes too.
    """
    if older is None or row.line != older.line or row.source not in _STEPPED or path.partitions == ("diagnostics",):
        return True
    own = 1 if row.source == Source.SUPERSTEP else 0
    return path.channel in row.changed or row.superstep - older.superstep > own


def _batches(ranges: Iterable[list[Checkpoint]]) -> Iterator[list[Checkpoint]]:
    """Whole ranges, as many as make a batch: the first answers most questions, and many are read at once."""
    batch: list[Checkpoint] = []
    made = 0
    for rows in ranges:
        batch += rows
        if len(batch) >= BATCHES[min(made, len(BATCHES) - 1)]:
            yield batch
            batch, made = [], made + 1
    if batch:
        yield batch


def _valued(run: Run, batch: Sequence[Checkpoint], path: StatePath) -> list[Touch]:
    """The rows of a batch, newest first, with the channel after each. Two queries."""
    protection, oldest = protection_of(run), batch[-1]
    base = Checkpoint.objects.get(run=run.id, seq=oldest.anchor)
    sealed_rows.verify_row(base, protection)
    document = narrowed(reader.folded(_proven_parts(base, protection)), path)
    found = []
    for row, change in _changes_of(run, batch[::-1], base, protection):
        if row.seq == base.seq:
            setting = _last_touching(change, path)
        else:
            document, setting = _applied(document, change, path)
        found.append(Touch(row, run, change, document, setting))
    return found[::-1]


def _applied(document: dict[str, Any], change: Sequence[Op], path: StatePath) -> tuple[dict[str, Any], int | None]:
    """The document after a change, and the place of the op that last gave the path another value."""
    setting = None
    for place, op in enumerate(change):
        before, document = document, changed_document(document, [op], path)
        if not is_same(value_in(before, path), value_in(document, path)):
            setting = place
    return document, setting


def _last_touching(change: Sequence[Op], path: StatePath) -> int | None:
    """The place of the last op that says something of the path's channel, where the value before is not read."""
    places = [place for place, op in enumerate(change) if op["op"] == "within" and is_touched(op, path)]
    return places[-1] if places else None


def _proven_parts(base: Checkpoint, protection: Protection) -> list[bytes]:
    [part] = reader.parts_of([base], protection)
    reader.require_hashed(base, part, protection, begins=True)
    return [part]


def _changes_of(
    run: Run, rows: Sequence[Checkpoint], base: Checkpoint, protection: Protection
) -> Iterator[tuple[Checkpoint, list[Op]]]:
    """Each row with its change."""
    kept = {base.seq: base.change}
    others = [row.seq for row in rows if row.seq != base.seq]
    if others:
        kept |= dict(Checkpoint.objects.filter(run=run.id, seq__in=others).values_list("seq", "change"))
    for row in rows:
        row.change = kept.get(row.seq, b"")
        yield row, _change_of(row, protection)


def _change_of(row: Checkpoint, protection: Protection) -> list[Op]:
    if not row.change:
        # Its snapshot stands for it.
        if not row.snapshot_hash:
            raise reader.altered_payload(row)
        return [{"op": "set", "value": reader.folded(_proven_parts(row, protection))}]
    data = reader.bytes_of(row, "change", protection)
    reader.require_hashed(row, data, protection)
    change: list[Op] = canonical.loads(data)
    return change
