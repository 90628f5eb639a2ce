"""The log of one path of the state: where it was set last and by whom, and each
checkpoint that changed it.

A path is written as `diff` writes it, with or without its partition:
`scratch.payout.amount`, `payout.lines[2].amount`. Paths of the input and of the
diagnostics begin with `input.` and `diagnostics.`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple
from uuid import UUID

from checkpoints.core.arguments import checked_number
from checkpoints.core.diff import ADDED, CHANGED, REMOVED, written
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.core.state_paths import (
    ABSENT,
    StatePath,
    is_same,
    parsed_path,
    value_at,
    value_in,
)
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import run_row
from checkpoints.timeline.last_settings import last_settings
from checkpoints.timeline.setters import Setter, setters_of, starter_of
from checkpoints.timeline.spans import (
    Among,
    Spans,
    check_among,
    is_within,
    origin_of,
    spans_of,
)
from checkpoints.timeline.states import read_checkpoint
from checkpoints.timeline.touches import Touch, touches_back
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.frozen import frozen

MOST = 200
"""The most changes of a path in one window."""


class Blame(NamedTuple):
    """The place where a path was set last. `node`: names of the nodes, empty if none
    set it (a default, a patch, the input). `person`: user names of the people who
    patched it, started the run with it, edited it or signed for it, else empty.
    """

    checkpoint: Checkpoint
    node: str
    person: str


@frozen
class PathChange:
    """One checkpoint that changed a path, with the value before and after; None for the
    one that is absent. Node and person as in `Blame`.
    """

    checkpoint: Checkpoint
    kind: str
    before: Any
    after: Any
    node: str
    person: str


def blame(checkpoint_id: UUID | str, path: str, *, among: Among = None) -> Blame:
    """Return the last checkpoint, up to this one, in which the value at this very path
    differs from its parent's.

    The search follows the line's ancestry, and for a fork goes on in its origin, where
    that is `among` the runs that may be seen. It costs as much for a channel that was
    set long ago as for one that was set just now. Raises `InvalidValue` for a text that
    is no path, `UnknownThing` if there never was a value at it, `TamperedRow`,
    `WrongKey`.
    """
    check_among(among)
    state_path = parsed_path(path)
    checkpoint = _find_checkpoint(checkpoint_id)
    if state_path.partitions == ("input",):
        return _blame_of_input(checkpoint, state_path, among)

    newer = _last_change(checkpoint, state_path, among)
    if newer is None:
        raise _never_set(state_path)
    [setter] = setters_of(newer.run, [newer], state_path, among=among)
    return Blame(_with_run(newer), setter.node, setter.person)


def _last_change(
    checkpoint: Checkpoint,
    path: StatePath,
    among: Among,
) -> Touch | None:
    """Return the last touch up to a checkpoint that changed the path; None where there
    never was a value.
    """
    # A change of the channel need not be one of this path.
    for newer, older in last_settings(checkpoint, path, among=among):
        if _has_changed(newer, older, path):
            return newer
    run = checkpoint.run
    spans = spans_of(run.id, checkpoint.line, checkpoint.seq)
    for newer, older in _steps(run, spans, path, among):
        if _has_changed(newer, older, path):
            return newer
    return None


def history(
    run_id: UUID | str,
    path: str,
    *,
    limit: int = MOST,
    before: int | None = None,
    among: Among = None,
) -> list[PathChange]:
    """Return the newest `limit` changes of a path on the run's current line, below seq
    `before` (None: up to the newest), oldest first. The first checkpoint of a fork is
    compared with its origin's. Raises as `blame` does; a path at which there never was
    a value has no changes.
    """
    check_among(among)
    state_path = parsed_path(path)
    run = _find_run(run_id)
    most = checked_number(limit, "limit", least=1, most=MOST)
    last = None
    if before is not None:
        last = checked_number(before, "before", most=2**31) - 1
    # An input never changes.
    if state_path.partitions == ("input",):
        return []

    spans = spans_of(run.id, run.line, last)
    steps = list(islice(_changing_steps(run, spans, state_path, among), most))
    touches = [newer for newer, _ in steps]
    setters = setters_of(run, touches, state_path, among=among)
    path_changes: list[PathChange] = []
    for (newer, older), setter in zip(steps, setters, strict=True):
        path_changes.append(_path_change(newer, older, state_path, setter))
    return path_changes[::-1]


def neighbours(
    checkpoint: Checkpoint,
    path: str,
    *,
    among: Among = None,
) -> tuple[int | None, int | None]:
    """Return the seqs of the nearest checkpoints before and after this one in which the
    path changed; None if it did not.

    They are on the run's current line, or on the checkpoint's own if it isn't on the
    current one. Raises as `blame` does.
    """
    check_among(among)
    state_path = parsed_path(path)
    run = _find_run(checkpoint.run_id)
    # An input never changes.
    if state_path.partitions == ("input",):
        return None, None

    spans = spans_of(run.id, run.line)
    # A line that was left keeps its own neighbours.
    if not is_within(checkpoint.seq, checkpoint.line, spans):
        spans = spans_of(run.id, checkpoint.line)
    seq_after: int | None = None
    for newer, _ in _changing_steps(run, spans, state_path, among):
        seq = newer.row.seq
        if seq < checkpoint.seq:
            return seq, seq_after
        if seq > checkpoint.seq:
            seq_after = seq
    return None, seq_after


def _changing_steps(
    run: Run,
    spans: Spans,
    path: StatePath,
    among: Among,
) -> Iterator[tuple[Touch, Touch | None]]:
    """Yield the steps of this run alone in which the path changed, newest first."""
    for newer, older in _steps(run, spans, path, among):
        # From here on it is an origin's.
        if newer.run.id != run.id:
            return
        if _has_changed(newer, older, path):
            yield newer, older


def _steps(
    run: Run,
    spans: Spans,
    path: StatePath,
    among: Among,
) -> Iterator[tuple[Touch, Touch | None]]:
    """Yield each touch of the channel with the one before it, newest first; None before
    the first of all.
    """
    newer: Touch | None = None
    for touch in touches_back(run, spans, path, among=among):
        if newer is not None:
            yield newer, touch
        newer = touch
    if newer is not None:
        yield newer, None


def _has_changed(newer: Touch, older: Touch | None, path: StatePath) -> bool:
    return not is_same(_value_after(newer, path), _value_after(older, path))


def _value_after(touch: Touch | None, path: StatePath) -> Any:
    """Return the value at a path after a touch; `ABSENT` for no touch."""
    if touch is None:
        return ABSENT
    return value_in(touch.document, path)


def _path_change(
    newer: Touch,
    older: Touch | None,
    path: StatePath,
    setter: Setter,
) -> PathChange:
    before = _value_after(older, path)
    after = _value_after(newer, path)
    kind = CHANGED
    if before is ABSENT:
        kind = ADDED
        before = None
    elif after is ABSENT:
        kind = REMOVED
        after = None
    return PathChange(
        _with_run(newer),
        kind,
        before,
        after,
        node=setter.node,
        person=setter.person,
    )


def _with_run(touch: Touch) -> Checkpoint:
    """Return the row as other functions of the timeline do: without a query for its
    run, and with a payload that is read when it is needed.
    """
    touch.row.run = touch.run
    for column in ("change", "snapshot"):
        touch.row.__dict__.pop(column, None)
    return touch.row


def _blame_of_input(
    checkpoint: Checkpoint,
    path: StatePath,
    among: Among,
) -> Blame:
    """Return where an input was set: it never changes, so where the run began, or the
    first of its origins.
    """
    if value_at(run_row.input_of(checkpoint.run), path.parts) is ABSENT:
        raise _never_set(path)
    run = _first_origin(checkpoint.run, among)
    rows = Checkpoint.objects.filter(run=run.id, seq=0, kept=True)
    first = rows.defer("change", "snapshot").first()
    if first is None:
        raise unknown_thing("checkpoint", checkpoint.id)
    first.run = run
    return Blame(first, "", starter_of(run))


def _first_origin(run: Run, among: Among) -> Run:
    """Return the first run on the way back that may be seen; the run itself if it has
    no origin. One query for each origin.
    """
    visited = {run.id}
    origin = origin_of(run, among)
    # A forged origin may lead around in a circle.
    while origin is not None and origin.run_id not in visited:
        run = origin.run
        visited.add(run.id)
        origin = origin_of(run, among)
    return run


def _find_checkpoint(checkpoint_id: UUID | str) -> Checkpoint:
    """Return a kept checkpoint with its run, its payload read and not yet proven."""
    row = read_checkpoint(uuid_of(checkpoint_id, "checkpoint"))
    if row is None:
        raise unknown_thing("checkpoint", checkpoint_id)
    return row


def _find_run(run_id: UUID | str) -> Run:
    run = Run.objects.filter(id=uuid_of(run_id, "run")).defer("input").first()
    if run is None:
        raise unknown_thing("run", run_id)
    return run


def _never_set(path: StatePath) -> UnknownThing:
    return UnknownThing(
        f"there never was a value at {written(path.parts)}", path=str(path)
    )
