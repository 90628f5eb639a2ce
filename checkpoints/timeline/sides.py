"""The two sides of a comparison: what each run has of its own behind the history that both share, and how far they go
on being the same from there. `alignment` calls it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple
from uuid import UUID

from checkpoints.core.alignment import Stage
from checkpoints.core.state_paths import STATE, is_same
from checkpoints.ledger import reader
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import BEGINNINGS
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import canonical
from orchestrator.engine.frozen import frozen

Document = dict[str, Any]


class Place(NamedTuple):
    """A checkpoint of a run."""

    run: UUID
    seq: int


@frozen
class OwnStretch:
    """Rows of a line that one run alone has: above one seq, up to another (None: to the end)."""

    run: UUID
    line: int
    above: int
    last: int | None

    def has(self, row: Checkpoint) -> bool:
        on = (row.run_id, row.line) == (self.run, self.line)
        return on and row.seq > self.above and (self.last is None or row.seq <= self.last)


@frozen
class Side:
    """One run of the two: its rows behind what both share by origin, in order, and the document that is compared, which
    stands at `seq`. `patched`: the channels that patches changed, by run and line.
    """

    run: Run
    rows: list[Checkpoint]
    document: Document
    seq: int
    patched: Mapping[tuple[UUID, int], Sequence[str]]

    def was_patched(self, row: Checkpoint, channel: str) -> bool:
        """Whether a row began a line with a patch of the channel."""
        return row.source in BEGINNINGS and channel in self.patched.get((row.run_id, row.line), ())


@frozen
class Shared:
    """How far both are the same: the last checkpoint that both have, as each has it; how many of the rows of each side
    belong to it; and which channels a copy changed at once, by side.
    """

    split: tuple[Place, Place] | None
    skipped: tuple[int, int]
    patched: tuple[frozenset[str], frozenset[str]] = field(default=(frozenset(), frozenset()))


def parted(a: Sequence[Stretch], b: Sequence[Stretch]) -> tuple[Place | None, list[OwnStretch], list[OwnStretch]]:
    """The last checkpoint that two ways have in common, and what each has of its own behind it. The ways begin with the
    oldest stretch.
    """
    common: Place | None = None
    for n, (one, other) in enumerate(zip(a, b, strict=False)):
        if (one.run, one.line) != (other.run, other.line):
            return common, _own(a[n:]), _own(b[n:])
        ends = [last for last in (one.last, other.last) if last is not None]
        if one.last != other.last and ends:
            common = Place(one.run, min(ends))
            return common, _own(a[n:], common.seq), _own(b[n:], common.seq)
        common = Place(one.run, min(ends)) if ends else common
    return common, [], []


def _own(stretches: Sequence[Stretch], above: int = -1) -> list[OwnStretch]:
    """What lies above a seq of the first of these stretches, and the others whole."""
    found = [OwnStretch(one.run, one.line, -1 if n else above, one.last) for n, one in enumerate(stretches)]
    return [one for one in found if one.last is None or one.last > one.above]


def stage_of(row: Checkpoint) -> Stage:
    """A row as it is aligned."""
    visits = {
        (str(entry["node"]), int(entry.get("visit", 1))): (str(entry.get("effect", "")), str(entry.get("outcome", "")))
        for entry in row.nodes
    }
    return Stage(row.seq, str(row.source), visits)


def shared_history(
    runs: Sequence[Run], rows: Sequence[Sequence[Checkpoint]], common: Place | None, base: Document | None
) -> Shared:
    """How far the rows of both sides come to the same state, from their common origin on (`base` is its document), or
    from the beginning. A row whose change was not read ends it.
    """
    split = None if common is None else (common, common)
    walks = [_documents_after(run, own, base or {}) for run, own in zip(runs, rows, strict=True)]
    skipped, patched = [0, 0], [frozenset[str](), frozenset[str]()]
    for side, own in enumerate(rows):
        while base is not None and skipped[side] < len(own) and own[skipped[side]].source in BEGINNINGS:
            document = next(walks[side], None)
            patched[side] = _changed_channels(base, document)
            if document is None or patched[side]:
                break
            skipped[side] += 1
    if any(patched):
        return Shared(split, (skipped[0], skipped[1]), (patched[0], patched[1]))
    for one, other in zip(rows[0][skipped[0] :], rows[1][skipped[1] :], strict=False):
        after = [next(walk, None) for walk in walks]
        if stage_of(one).marks() != stage_of(other).marks() or not _is_same_state(*after):
            break
        skipped = [skipped[0] + 1, skipped[1] + 1]
        split = (Place(one.run_id, one.seq), Place(other.run_id, other.seq))
    return Shared(split, (skipped[0], skipped[1]))


def _documents_after(run: Run, rows: Sequence[Checkpoint], document: Document) -> Iterator[Document | None]:
    """The document after each row, as far as changes were read."""
    protection, last = protection_of(run), None
    for row in rows:
        if not row.change:
            return
        data = reader.bytes_of(row, "change", protection)
        reader.require_hashed(row, data, protection)
        if last is not None and row.parent != last.id and not data.startswith(reader.WHOLE):
            return  # what was removed between them is not known
        last = row
        document = reader.changed_channels(document, canonical.loads(data))
        yield document


def _is_same_state(one: Document | None, other: Document | None) -> bool:
    return one is not None and other is not None and all(is_same(one[name], other[name]) for name in STATE)


def _changed_channels(base: Document, document: Document | None) -> frozenset[str]:
    if document is None:
        return frozenset()
    return frozenset(
        name
        for part in STATE
        for name in base[part].keys() | document[part].keys()
        if name not in base[part] or name not in document[part] or not is_same(base[part][name], document[part][name])
    )
