"""Revisions of pending writes: what a signature is bound to. The runner stages and re-bases, a reviewer's edit revises.

Rows are built here and inserted by the caller, in his transaction. Nothing here changes a row.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from checkpoints.core import codec
from checkpoints.core.visible_text import LONGEST_LABEL
from checkpoints.models import PendingWrite
from checkpoints.models.pending_write import Reason
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection, decrypted
from orchestrator.engine import base as bases
from orchestrator.engine import canonical


class Base(bases.Base):
    """A base as rows keep it."""

    __slots__ = ()

    def kept(self) -> bytes:
        return pack_json(self.to_json())


def base_of(row: PendingWrite) -> Base:
    """The base that a revision was made from."""
    return Base(**sealed_columns.read_value(row, "base"))


def staged(
    write: UUID,
    of_task: Mapping[str, Any],
    *,
    position: int,
    channel: str,
    label: str,
    value: Any,
    base: Base,
    shown: dict[str, Any],
    policy_hash: str,
    superstep: int,
    at: datetime,
    protection: Protection,
) -> PendingWrite:
    """Revision 1: what a task (`task_columns`) proposed. All rows made here are plain until `seal_and_encrypt`."""
    row = PendingWrite(
        write=write,
        revision=1,
        **of_task,
        position=position,
        channel=channel,
        label=label,
        shown=pack_json(shown),
        policy_hash=policy_hash,
        superstep=superstep,
    )
    return _filled(row, value, base, Reason.PROPOSAL, author=None, at=at, protection=protection)


def edited(
    row: PendingWrite, *, value: Any, shown: dict[str, Any], author: int, at: datetime, protection: Protection
) -> PendingWrite:
    """The next revision, with a person's value and what people are shown of it. In an encrypted run the label that
    lists read stays as it was, for it must not hold anything of the value.
    """
    fresh = _next(row)
    fresh.shown = pack_json(shown)
    if not protection.encrypted:
        fresh.label = str(shown["label"])[:LONGEST_LABEL]
    return _filled(fresh, value, base_of(row), Reason.EDIT, author=author, at=at, protection=protection)


def rebased(row: PendingWrite, *, base: Base, at: datetime, protection: Protection) -> PendingWrite:
    """The next revision, on a new base. Its author stays: he still shaped the value."""
    value, author = sealed_columns.read_value(row, "value"), row.author_id
    return _filled(_next(row), value, base, Reason.REBASE, author=author, at=at, protection=protection)


def retold(row: PendingWrite, *, texts: Mapping[str, Any], at: datetime, protection: Protection) -> PendingWrite:
    """The next revision, beside which other texts (title, facts) are shown. Value, base and author stay."""
    fresh, value = _next(row), sealed_columns.read_value(row, "value")
    fresh.shown = _with_texts(fresh, texts)
    return _filled(fresh, value, base_of(row), Reason.TEXTS, author=row.author_id, at=at, protection=protection)


def put_texts(row: PendingWrite, texts: Mapping[str, Any], protection: Protection) -> None:
    """Put title and facts beside a revision that was made here and not inserted yet."""
    row.shown = _with_texts(row, texts)
    row.hash = hash_of(row, protection)


def _with_texts(row: PendingWrite, texts: Mapping[str, Any]) -> bytes:
    return pack_json({**(sealed_columns.read_value(row, "shown") or {}), **texts})


def _next(row: PendingWrite) -> PendingWrite:
    copied = (
        "write", "run_id", "line", "node", "visit", "index", "position", "channel", "label", "policy_hash", "superstep",
    )  # fmt: skip
    fresh = PendingWrite(**{name: getattr(row, name) for name in copied})
    fresh.revision, fresh.shown = row.revision + 1, decrypted(row, "shown")
    return fresh


def _filled(
    row: PendingWrite, value: Any, base: Base, reason: str, *, author: int | None, at: datetime, protection: Protection
) -> PendingWrite:
    data = canonical.dumps(value)
    row.value, row.size, row.base, row.bound_hash = codec.pack(data), len(data), base.kept(), base.hash(protection)
    row.reason, row.author_id, row.staged_at = reason, author, at
    row.hash = hash_of(row, protection)
    return row


def hash_of(row: PendingWrite, protection: Protection) -> str:
    """The hash over run, line, task, position, revision, channel, value, bound base, policy and what is shown."""
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
    """Of these rows only each write's newest revision."""
    last = PendingWrite.objects.filter(write=OuterRef("write")).order_by("-revision").values("revision")[:1]
    return rows.filter(revision=Subquery(last))


def of_tasks(run: UUID, line: int, tasks: Sequence[tuple[str, int]]) -> "QuerySet[PendingWrite]":
    """The newest revisions of the writes of these visits (node, visit) on a line, in order of task and position."""
    nodes = {node for node, _ in tasks}
    rows = PendingWrite.objects.filter(run=run, line=line, node__in=nodes, visit__in={visit for _, visit in tasks})
    return newest(rows).order_by("node", "visit", "index", "position")
