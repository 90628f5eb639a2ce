"""The two sides of a comparison: what each run has to itself after the history that
both share, and how far they stay the same from there. `alignment` calls it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple
from uuid import UUID

from checkpoints.core.alignment import Stage, Visit
from checkpoints.core.state_paths import ABSENT, STATE, is_same
from checkpoints.ledger import reader
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import BEGINNINGS
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

Document = dict[str, Any]


class CheckpointOfRun(NamedTuple):
    """A checkpoint of a run."""

    run: UUID
    seq: int


@frozen
class OwnStretch:
    """The rows of a line that one run has and the other hasn't: those above one seq, up
    to `last` (None: to the end).
    """

    run: UUID
    line: int
    above: int
    last: int | None

    def has(self, row: Checkpoint) -> bool:
        """Return whether a row belongs to this stretch."""
        if (row.run_id, row.line) != (self.run, self.line):
            return False
        if row.seq <= self.above:
            return False
        return self.last is None or row.seq <= self.last


@frozen
class Side:
    """One of the two runs: its rows after the common origin, in order, and the compared
    document, which stands at `seq`. `patched`: the channels that patches changed, by
    run and line.
    """

    run: Run
    rows: list[Checkpoint]
    document: Document
    seq: int
    patched: Mapping[tuple[UUID, int], Sequence[str]]

    def was_patched(self, row: Checkpoint, channel: str) -> bool:
        """Return whether a row began a line with a patch of the channel."""
        if row.source not in BEGINNINGS:
            return False
        return channel in self.patched.get((row.run_id, row.line), ())


@frozen
class Shared:
    """How far two runs are the same: the last checkpoint that both have, as each has
    it; how many rows of each side belong to what they share; and, for each side, the
    channels that a patch changed before its first step.
    """

    split: tuple[CheckpointOfRun, CheckpointOfRun] | None
    skipped: tuple[int, int]
    patched: tuple[frozenset[str], frozenset[str]] = field(
        default=(frozenset(), frozenset())
    )


def parted(
    a: Sequence[Stretch], b: Sequence[Stretch]
) -> tuple[CheckpointOfRun | None, list[OwnStretch], list[OwnStretch]]:
    """Return the last checkpoint that two paths have in common, and what each has to
    itself after it. The paths begin with the oldest stretch.
    """
    common: CheckpointOfRun | None = None
    # Only the last stretch of a path has no end, so two paths part before the shorter
    # ends.
    for position, (of_a, of_b) in enumerate(zip(a, b, strict=False)):
        if (of_a.run, of_a.line) != (of_b.run, of_b.line):
            return common, _own_stretches(a[position:]), _own_stretches(b[position:])
        end = _earlier_end(of_a, of_b)
        if end is None:
            continue
        common = CheckpointOfRun(of_a.run, end)
        # One path leaves the line here, and the other goes on along it.
        if of_a.last != of_b.last:
            own_of_a = _own_stretches(a[position:], above=end)
            own_of_b = _own_stretches(b[position:], above=end)
            return common, own_of_a, own_of_b
    return common, [], []


def _earlier_end(a: Stretch, b: Stretch) -> int | None:
    """Return the last seq that both stretches of a line have; None: both have all."""
    if a.last is None:
        return b.last
    if b.last is None:
        return a.last
    return min(a.last, b.last)


def _own_stretches(
    stretches: Sequence[Stretch], *, above: int = -1
) -> list[OwnStretch]:
    """Return what lies above a seq of the first stretch, and the later ones whole;
    without stretches that have no rows there.
    """
    own_stretches: list[OwnStretch] = []
    for stretch in stretches:
        if stretch.last is None or stretch.last > above:
            own = OwnStretch(stretch.run, stretch.line, above, stretch.last)
            own_stretches.append(own)
        # Only the first stretch is shared in part.
        above = -1
    return own_stretches


def stage_of(row: Checkpoint) -> Stage:
    """Return a checkpoint as it is aligned."""
    visits: dict[Visit, tuple[str, str]] = {}
    for entry in row.nodes:
        visit = (str(entry["node"]), int(entry.get("visit", 1)))
        effect = str(entry.get("effect", ""))
        visits[visit] = (effect, str(entry.get("outcome", "")))
    return Stage(row.seq, str(row.source), visits)


def shared_history(
    runs: Sequence[Run],
    rows: Sequence[Sequence[Checkpoint]],
    common: CheckpointOfRun | None,
    base: Document | None,
) -> Shared:
    """Return how far the rows of both sides lead to the same state, from their common
    origin on (`base` is its document), or from the beginning. A row whose change was
    not read ends the shared history.
    """
    split = None if common is None else (common, common)
    run_a, run_b = runs
    rows_a, rows_b = rows
    documents_a = _documents_after(run_a, rows_a, base or {})
    documents_b = _documents_after(run_b, rows_b, base or {})
    skipped_a = 0
    skipped_b = 0

    # A fork's first row does not exist in its origin: while it
    # changes nothing, both still share their history.
    if base is not None:
        skipped_a, patched_a = _skip_beginnings(rows_a, documents_a, base)
        skipped_b, patched_b = _skip_beginnings(rows_b, documents_b, base)
        if patched_a or patched_b:
            return Shared(split, (skipped_a, skipped_b), (patched_a, patched_b))

    # From there they stay the same while the same visits lead to the same state.
    for row_a, row_b in zip(rows_a[skipped_a:], rows_b[skipped_b:], strict=False):
        document_a = next(documents_a, None)
        document_b = next(documents_b, None)
        if stage_of(row_a).marks() != stage_of(row_b).marks():
            break
        if not _is_same_state(document_a, document_b):
            break
        skipped_a += 1
        skipped_b += 1
        split = (
            CheckpointOfRun(row_a.run_id, row_a.seq),
            CheckpointOfRun(row_b.run_id, row_b.seq),
        )
    return Shared(split, (skipped_a, skipped_b))


def _skip_beginnings(
    rows: Sequence[Checkpoint],
    documents: Iterator[Document],
    base: Document,
) -> tuple[int, frozenset[str]]:
    """Return how many rows at the start began a line and left the state as it is in
    `base`; and the channels that were patched by the row that follows them, if that one
    began a line too. Advances `documents` by each row that it looks at.
    """
    skipped = 0
    for row in rows:
        if row.source not in BEGINNINGS:
            break
        document = next(documents, None)
        # Its change was not read.
        if document is None:
            break
        patched = _changed_channels(base, document)
        if patched:
            return skipped, patched
        skipped += 1
    return skipped, frozenset()


def _documents_after(
    run: Run,
    rows: Sequence[Checkpoint],
    document: Document,
) -> Iterator[Document]:
    """Yield the document after each row, as far as the changes were read."""
    protection = protection_of(run)
    last = None
    for row in rows:
        # It was too large to be read (`alignment.LARGEST_CHANGE`).
        if not row.change:
            return
        data = reader.bytes_of(row, "change", protection)
        reader.require_hashed(row, data, protection)
        is_next = last is None or row.parent == last.id
        if not is_next and not data.startswith(reader.WHOLE):
            # Rows between the two were removed, and what they changed isn't known.
            return
        last = row
        document = reader.changed_channels(document, canonical.loads(data))
        yield document


def _is_same_state(a: Document | None, b: Document | None) -> bool:
    # What wasn't read can't be shown to be the same.
    if a is None or b is None:
        return False
    return all(is_same(a[partition], b[partition]) for partition in STATE)


def _changed_channels(before: Document, after: Document) -> frozenset[str]:
    """Return the channels with another value, or that one document does not have."""
    changed: set[str] = set()
    for partition in STATE:
        values_before = before[partition]
        values_after = after[partition]
        for channel in values_before.keys() | values_after.keys():
            value_before = values_before.get(channel, ABSENT)
            value_after = values_after.get(channel, ABSENT)
            if not is_same(value_before, value_after):
                changed.add(channel)
    return frozenset(changed)
