"""The checkpoints that set a channel last, found without reading the history: each
state keeps by channel the number of the checkpoint that did. `path_log` calls it, and
walks back where these numbers don't lead to an answer.
"""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from checkpoints.core.state_paths import STATE, StatePath, is_same, value_in
from checkpoints.db import query_cache
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import UNLISTED
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.spans import Among, is_within, origin_of, spans_of
from checkpoints.timeline.states import snapshot_of
from checkpoints.timeline.touches import Touch, touch_at
from orchestrator.engine.frozen import frozen

MOST = 4
"""This many settings of a channel are read one by one. If none of them changed the
path, reading many at once takes fewer queries.
"""


@frozen
class _ProvenRow:
    """A checkpoint with its run and its proven document."""

    row: Checkpoint
    run: Run
    document: dict[str, Any]


def last_settings(
    checkpoint: Checkpoint,
    path: StatePath,
    *,
    among: Among,
) -> Iterator[tuple[Touch, Touch | None]]:
    """Yield the newest `MOST` touches of the path's channel up to a checkpoint, each
    with the state before it as another touch; None before the first of all. For a fork
    those of its origin follow, if that is `among` the runs that may be seen.

    It ends early where history was removed or erased. Three queries for each, however
    many checkpoints lie between. Raises `TamperedRow`, `WrongKey`.
    """
    # The notes of diagnostics have no stored number.
    if not set(path.partitions).issubset(STATE):
        return
    point: _ProvenRow | None = None
    if checkpoint.run.erasure is None:
        point = _ProvenRow(checkpoint, checkpoint.run, snapshot_of(checkpoint))
    for _ in range(MOST):
        if point is None:
            return
        setting = _setting_point(point, path)
        if setting is None or not _is_unchanged_since(setting, point, path):
            return
        before = _point_before(setting, among)
        # Only the first of a run has none before it.
        if before is None and setting.row.seq != 0:
            return
        yield _step(setting, before, path)
        point = before


def _point_of(run: Run, rows: list[Checkpoint]) -> _ProvenRow | None:
    """Return the kept checkpoint at the end of a range of rows, proven; None where
    there is none in this run, or values of the run were erased.
    """
    if not rows or run.erasure is not None:
        return None
    row = rows[-1]
    if not row.kept or row.run_id != run.id:
        return None
    return _ProvenRow(row, run, reader.proven(rows, protection_of(run)))


def _setting_point(point: _ProvenRow, path: StatePath) -> _ProvenRow | None:
    """Return the newest checkpoint, up to this one, that may have set the channel; None
    where it was removed or erased.
    """
    run = point.run
    # A channel without a number has the value with which the run began.
    seq = point.document["versions"].get(path.channel, 0)
    seq = max(seq, _newest_unlisted(point, after=seq))
    if seq == point.row.seq:
        return point
    return _point_of(run, reader.range_at(run.id, seq))


def _is_unchanged_since(
    setting: _ProvenRow, point: _ProvenRow, path: StatePath
) -> bool:
    """Return whether the path has the same value at both; in rows of another make the
    numbers may be missing.
    """
    before = value_in(setting.document, path)
    return is_same(before, value_in(point.document, path))


def _newest_unlisted(point: _ProvenRow, *, after: int) -> int:
    """Return the seq of the newest checkpoint on the way to this one at which channels
    may have got values without their numbers; `after` where there is none behind that.
    """
    row = point.row
    records = query_cache.select_values(_query_unlisted, point.run.id, after, row.seq)
    if not records:
        return after
    spans = spans_of(point.run.id, row.line, row.seq)
    for seq, line in records:
        if is_within(seq, line, spans):
            return int(seq)
    return after


def _query_unlisted(run: UUID, after: int, upto: int) -> "QuerySet[Any, Any]":
    rows = Checkpoint.objects.filter(
        run=run, source__in=UNLISTED, seq__gt=after, seq__lte=upto
    )
    return rows.order_by("-seq").values_list("seq", "line")


def _point_before(setting: _ProvenRow, among: Among) -> _ProvenRow | None:
    """Return the checkpoint before this one: for the first of a fork that of its origin
    where it left, if that may be seen. None where there is none, or it was removed or
    erased.
    """
    run = setting.run
    before = setting.row.parent
    if setting.row.seq == 0:
        origin = origin_of(run, among)
        if origin is None:
            return None
        run = origin.run
        before = origin.id
    if before is None:
        return None
    return _point_of(run, reader.range_of(before))


def _step(
    setting: _ProvenRow, before: _ProvenRow | None, path: StatePath
) -> tuple[Touch, Touch | None]:
    if before is None:
        return touch_at(setting.row, setting.run, setting.document, path), None
    newer = touch_at(
        setting.row, setting.run, setting.document, path, before=before.document
    )
    return newer, touch_at(before.row, before.run, before.document, path)
