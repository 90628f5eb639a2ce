"""What became of one path of the state: where it was set last and by whom, and each checkpoint that changed it.

A path is written as `diff` writes it, with or without its partition: `scratch.payout.amount`, `payout.lines[2].amount`.
Paths of the input and of the diagnostics begin with `input.` and `diagnostics.`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from checkpoints.core.arguments import checked_number
from checkpoints.core.diff import ADDED, CHANGED, REMOVED, written
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.core.state_paths import ABSENT, StatePath, is_same, parsed_path, value_at, value_in
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import run_row
from checkpoints.timeline.setters import Setter, setters_of, starter_of
from checkpoints.timeline.spans import Among, Spans, check_among, origin_of, spans_of
from checkpoints.timeline.touches import Touch, touches_back
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.frozen import frozen

MOST = 200
"""Changes of a path in one window."""


class Blame(NamedTuple):
    """Where a path was set last. `node`: names of the nodes, empty where none set it (a default, a patch, the input).
    `person`: user names of who patched it, started the run with it, edited it or signed for it, else empty.
    """

    checkpoint: Checkpoint
    node: str
    person: str


@frozen
class PathChange:
    """One checkpoint that changed a path, with its values; None for the one that is not there. Node and person as in
    `Blame`.
    """

    checkpoint: Checkpoint
    kind: str
    before: Any
    after: Any
    node: str
    person: str


def blame(checkpoint_id: UUID | str, path: str, *, among: Among = None) -> Blame:
    """The last checkpoint, up to this one, in which the value at this very path differs from its parent's.

    It follows the line's ancestry, and for a fork goes on in its origin, where that is `among` the runs that may be
    seen. Raises `InvalidValue` for what is no path, `UnknownThing` where nothing ever was at it, `TamperedRow`,
    `WrongKey`.
    """
    check_among(among)
    wanted, at = parsed_path(path), _kept(checkpoint_id)
    if wanted.partitions == ("input",):
        return _blame_of_input(at, wanted, among)
    for newer, older in _steps(at.run, spans_of(at.run_id, at.line, at.seq), wanted, among):
        if not is_same(_value(newer, wanted), _value(older, wanted)):
            [setter] = setters_of(newer.run, [newer], wanted, among=among)
            return Blame(_with_run(newer), setter.node, setter.person)
    raise _never(wanted)


def history(
    run_id: UUID | str, path: str, *, limit: int = MOST, before: int | None = None, among: Among = None
) -> list[PathChange]:
    """The newest `limit` changes of a path on the run's current line, below seq `before` (None: up to the newest),
    oldest first. The first checkpoint of a fork is compared with its origin's. Raises as `blame` does; a path at which
    nothing ever was has no changes.
    """
    check_among(among)
    wanted, run = parsed_path(path), _run(run_id)
    most = checked_number(limit, "limit", least=1, most=MOST)
    last = None if before is None else checked_number(before, "before", most=2**31) - 1
    if wanted.partitions == ("input",):
        return []
    spans = spans_of(run.id, run.line, last)
    found = list(islice(_differing(run, spans, wanted, among), most))
    setters = setters_of(run, [newer for newer, _ in found], wanted, among=among)
    pairs = zip(found, setters, strict=True)
    return [_change(newer, older, wanted, setter) for (newer, older), setter in pairs][::-1]


def neighbours(checkpoint: Checkpoint, path: str, *, among: Among = None) -> tuple[int | None, int | None]:
    """The seqs of the nearest checkpoints before and after this one in which the path changed; None where none did.

    On the run's current line, or on the checkpoint's own where it belongs to another. Raises as `blame` does.
    """
    wanted, run = parsed_path(path), _run(checkpoint.run_id)
    spans = spans_of(run.id, run.line)
    if not any(checkpoint.line == line and (upto is None or checkpoint.seq <= upto) for line, upto in spans):
        spans = spans_of(run.id, checkpoint.line)
    after: int | None = None
    if wanted.partitions == ("input",):
        return None, None
    for newer, _ in _differing(run, spans, wanted, among):
        if newer.row.seq < checkpoint.seq:
            return newer.row.seq, after
        if newer.row.seq > checkpoint.seq:
            after = newer.row.seq
    return None, after


def _differing(run: Run, spans: Spans, path: StatePath, among: Among) -> Iterator[tuple[Touch, Touch | None]]:
    """Of this run alone: where the path differs, newest first, with the touch before."""
    for newer, older in _steps(run, spans, path, among):
        if newer.run.id != run.id:
            return
        if not is_same(_value(newer, path), _value(older, path)):
            yield newer, older


def _steps(run: Run, spans: Spans, path: StatePath, among: Among) -> Iterator[tuple[Touch, Touch | None]]:
    """Each touch of the channel with the one before it, newest first; None before the first of all."""
    newer: Touch | None = None
    for touch in touches_back(run, spans, path, among=among):
        if newer is not None:
            yield newer, touch
        newer = touch
    if newer is not None:
        yield newer, None


def _value(touch: Touch | None, path: StatePath) -> Any:
    return ABSENT if touch is None else value_in(touch.document, path)


def _change(newer: Touch, older: Touch | None, path: StatePath, setter: Setter) -> PathChange:
    before, after = _value(older, path), _value(newer, path)
    kind = ADDED if before is ABSENT else REMOVED if after is ABSENT else CHANGED
    old, new = (None if value is ABSENT else value for value in (before, after))
    return PathChange(_with_run(newer), kind, old, new, setter.node, setter.person)


def _with_run(touch: Touch) -> Checkpoint:
    """The row as the module's other functions give one: no query for its run, its payload is read when asked for."""
    touch.row.run = touch.run
    for column in ("change", "snapshot"):
        touch.row.__dict__.pop(column, None)
    return touch.row


def _blame_of_input(at: Checkpoint, path: StatePath, among: Among) -> Blame:
    """An input never changes: it was set where the run began, or the first of its origins."""
    if value_at(run_row.input_of(at.run), path.parts) is ABSENT:
        raise _never(path)
    run, seen = at.run, {at.run_id}
    while (origin := origin_of(run, among)) is not None and origin.run_id not in seen:
        run = origin.run
        seen.add(run.id)
    first = Checkpoint.objects.filter(run=run.id, seq=0, kept=True).defer("change", "snapshot").first()
    if first is None:
        raise unknown_thing("checkpoint", at.id)
    first.run = run
    return Blame(first, "", starter_of(run))


def _kept(checkpoint_id: UUID | str) -> Checkpoint:
    wanted = uuid_of(checkpoint_id, "checkpoint")
    found = Checkpoint.objects.filter(id=wanted, kept=True, run__isnull=False)
    at = found.select_related("run").defer("change", "snapshot").first()
    if at is None:
        raise unknown_thing("checkpoint", checkpoint_id)
    return at


def _run(run_id: UUID | str) -> Run:
    found = Run.objects.filter(id=uuid_of(run_id, "run")).defer("input").first()
    if found is None:
        raise unknown_thing("run", run_id)
    return found


def _never(path: StatePath) -> UnknownThing:
    return UnknownThing(f"there never was a value at {written(path.parts)}", path=str(path))
