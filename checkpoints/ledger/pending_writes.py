"""Revisions of pending writes: what a signature is bound to. The runner stages and re-bases, a reviewer's edit revises.

Rows are built here and inserted by the caller, in his transaction. Nothing here changes a row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from checkpoints.core import codec
from checkpoints.models import PendingWrite
from checkpoints.models.pending_write import Reason
from checkpoints.sealing import sealed_columns
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection, decrypted
from orchestrator.engine import canonical
from orchestrator.engine.trace import is_memory


@dataclass(frozen=True, slots=True)
class Base:
    """What a decision on a write looks at: the channel's value (`bound`: whether it binds) and those of `shows`."""

    value: Any
    shows: dict[str, Any]
    bound: bool
    version: int | None = None

    def hash(self, protection: Protection) -> str:
        """Hash of the part that binds. A base has moved when this differs."""
        part: dict[str, Any] = {"shows": self.shows}
        if self.bound:
            part["value"] = self.value
        part |= self._versioned()
        return protection.digest(canonical.dumps(part))

    def kept(self) -> bytes:
        return pack_json({"value": self.value, "shows": self.shows, "bound": self.bound, **self._versioned()})

    def _versioned(self) -> dict[str, int]:
        return {} if self.version is None else {"version": self.version}


def base_in(state: dict[str, dict[str, Any]], channel: str, *, bound: bool, shows: Iterable[str]) -> Base:
    """The base of a write to `channel` in this state, {"scratch": {...}, "artifacts": {...}}; where it is a write to
    memory the state has a partition "memory" too, {channel: {value, version}}.
    """
    values = {**state["scratch"], **state["artifacts"]}
    shown = {name: values.get(name) for name in sorted(shows)}
    if is_memory(channel):
        return Base(shows=shown, bound=bound, **state["memory"][channel])
    return Base(values.get(channel), shown, bound)


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
        fresh.label = str(shown["label"])[:300]
    return _filled(fresh, value, base_of(row), Reason.EDIT, author=author, at=at, protection=protection)


def rebased(row: PendingWrite, *, base: Base, at: datetime, protection: Protection) -> PendingWrite:
    """The next revision, on a new base. Its author stays: he still shaped the value."""
    value, author = sealed_columns.read_value(row, "value"), row.author_id
    return _filled(_next(row), value, base, Reason.REBASE, author=author, at=at, protection=protection)


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
