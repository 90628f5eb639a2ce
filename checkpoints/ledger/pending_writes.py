"""Revisions of pending writes, to which signatures are bound. The runner stages and
re-bases, a reviewer's edit revises.

Rows are built here and inserted by the caller, in its transaction. No stored row is
changed.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from checkpoints.core import codec
from checkpoints.core.visible_text import LONGEST_LABEL
from checkpoints.db import query_cache
from checkpoints.models import PendingWrite
from checkpoints.models.pending_write import RevisionReason
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection, decrypted
from orchestrator.engine.graphs.question import is_unanswered
from orchestrator.engine.step import base as bases
from orchestrator.engine.values import canonical


class StoredBase(bases.Base):
    """A base as rows store it."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        return pack_json(self.to_json())


def base_of(row: PendingWrite) -> StoredBase:
    """Return the base that a revision was made from."""
    return StoredBase(**sealed_columns.read_value(row, "base"))


def is_shown_unanswered(row: PendingWrite) -> bool:
    """Return whether lists say of a revision that nobody has answered it: not of one
    that cannot be opened.
    """
    shown = sealed_columns.read_or_reason(row, "shown")
    return isinstance(shown, dict) and is_unanswered(shown)


def staged(  # noqa: PLR0913
    write: UUID,
    of_task: Mapping[str, Any],
    *,
    position: int,
    channel: str,
    label: str,
    value: Any,
    base: StoredBase,
    shown: dict[str, Any],
    policy_hash: str,
    superstep: int,
    at: datetime,
    protection: Protection,
    revision: int = 1,
) -> PendingWrite:
    """Return the proposal of a task (`task_columns`), a later `revision` if people are
    asked about it again. All rows made here are plain until `seal_and_encrypt`.
    """
    row = PendingWrite(
        write=write,
        revision=revision,
        **of_task,
        position=position,
        channel=channel,
        label=label,
        shown=pack_json(shown),
        policy_hash=policy_hash,
        superstep=superstep,
    )
    return _filled(
        row,
        value,
        base,
        RevisionReason.PROPOSAL,
        author=None,
        at=at,
        protection=protection,
    )


def edited(
    row: PendingWrite,
    *,
    value: Any,
    shown: dict[str, Any],
    author: int,
    at: datetime,
    protection: Protection,
) -> PendingWrite:
    """Return the next revision, with a person's value and what people are shown of it.
    In an encrypted run the label that lists read stays as it was, for it must not hold
    anything of the value.
    """
    revision = _next_revision(row)
    revision.shown = pack_json(shown)
    if not protection.encrypted:
        revision.label = str(shown["label"])[:LONGEST_LABEL]
    return _filled(
        revision,
        value,
        base_of(row),
        RevisionReason.EDIT,
        author=author,
        at=at,
        protection=protection,
    )


def rebased(
    row: PendingWrite,
    *,
    base: StoredBase,
    at: datetime,
    protection: Protection,
) -> PendingWrite:
    """Return the next revision, on a new base. Its author stays: the value is still
    theirs.
    """
    return _filled(
        _next_revision(row),
        sealed_columns.read_value(row, "value"),
        base,
        RevisionReason.REBASE,
        author=row.author_id,
        at=at,
        protection=protection,
    )


def retold(
    row: PendingWrite,
    *,
    texts: Mapping[str, Any],
    at: datetime,
    protection: Protection,
) -> PendingWrite:
    """Return the next revision, beside which other texts (title, facts) are shown.
    Value, base and author stay.
    """
    revision = _next_revision(row)
    revision.shown = _with_texts(revision, texts)
    return _filled(
        revision,
        sealed_columns.read_value(row, "value"),
        base_of(row),
        RevisionReason.TEXTS,
        author=row.author_id,
        at=at,
        protection=protection,
    )


def restored(
    row: PendingWrite,
    first: PendingWrite,
    *,
    at: datetime,
    protection: Protection,
) -> PendingWrite:
    """Return the next revision, with what the node had proposed in its `first` one and
    what people were shown beside that. The base stays.
    """
    revision = _next_revision(row)
    revision.shown = decrypted(first, "shown")
    revision.label = first.label
    return _filled(
        revision,
        sealed_columns.read_value(first, "value"),
        base_of(row),
        RevisionReason.PROPOSAL,
        author=None,
        at=at,
        protection=protection,
    )


def put_texts(
    row: PendingWrite,
    texts: Mapping[str, Any],
    protection: Protection,
) -> None:
    """Put title and facts beside a revision that was made here and not inserted yet."""
    row.shown = _with_texts(row, texts)
    row.hash = hash_of(row, protection)


def _with_texts(row: PendingWrite, texts: Mapping[str, Any]) -> bytes:
    shown = sealed_columns.read_value(row, "shown") or {}
    return pack_json({**shown, **texts})


_SAME_FOR_ALL_REVISIONS = (
    "write",
    "run_id",
    "line",
    "node",
    "visit",
    "index",
    "position",
    "channel",
    "label",
    "policy_hash",
    "superstep",
)
"""The columns of a revision that the next one takes over, until an edit changes the
label.
"""


def _next_revision(row: PendingWrite) -> PendingWrite:
    """Return the next revision without value, base, reason, author and hash."""
    revision = PendingWrite(
        **{name: getattr(row, name) for name in _SAME_FOR_ALL_REVISIONS}
    )
    revision.revision = row.revision + 1
    # The new row is encrypted again when it is sealed.
    revision.shown = decrypted(row, "shown")
    return revision


def _filled(
    row: PendingWrite,
    value: Any,
    base: StoredBase,
    reason: str,
    *,
    author: int | None,
    at: datetime,
    protection: Protection,
) -> PendingWrite:
    """Fill in what differs between revisions, and return the row. Its hash comes last,
    because it covers the rest.
    """
    data = canonical.dumps(value)
    row.value = codec.pack(data)
    row.size = len(data)
    row.base = base.to_bytes()
    row.bound_hash = base.hash(protection)
    row.reason = reason
    row.author_id = author
    row.staged_at = at
    row.hash = hash_of(row, protection)
    return row


def hash_of(row: PendingWrite, protection: Protection) -> str:
    """Return the hash over run, line, task, position, revision, channel, value, bound
    base, policy and what is shown.
    """
    # Over plain, unpacked bytes: the same content is encrypted to other bytes each
    # time, and a rotation of keys must not change what people signed.
    return protection.framed_hash(
        str(row.run_id),
        row.line,
        row.task,
        row.position,
        row.revision,
        row.channel,
        codec.unpack(decrypted(row, "value")),
        base_of(row).hash(protection),
        row.policy_hash,
        codec.unpack(decrypted(row, "shown")),
    )


def newest(rows: "QuerySet[PendingWrite]") -> "QuerySet[PendingWrite]":
    """Return only each write's newest revision of these rows."""
    # Among all revisions, whatever the rows passed here were filtered by.
    revisions = PendingWrite.objects.filter(write=OuterRef("write"))
    newest_revision = revisions.order_by("-revision").values("revision")[:1]
    return rows.filter(revision=Subquery(newest_revision))


def of_tasks(
    run: UUID,
    line: int,
    tasks: Sequence[tuple[str, int]],
) -> list[PendingWrite]:
    """Return the newest revisions of the writes of these visits (node, visit) on a
    line, in order of task and position. One query.
    """
    if not tasks:
        return []
    nodes = query_cache.padded({node for node, _ in tasks})
    visits = query_cache.padded({visit for _, visit in tasks})
    query = _query_of_tasks(len(nodes))
    return query_cache.select(PendingWrite, query, run, line, *nodes, *visits)


@cache
def _query_of_tasks(count: int) -> query_cache.Query:
    """Return the builder of the query for the writes of so many nodes and of visits."""

    def query(run: UUID, line: int, *values: Any) -> "QuerySet[PendingWrite]":
        # The lists may also meet visits that nobody named: callers pick their rows by
        # task.
        rows = PendingWrite.objects.filter(
            run=run,
            line=line,
            node__in=values[:count],
            visit__in=values[count:],
        )
        return newest(rows).order_by("node", "visit", "index", "position")

    return query
