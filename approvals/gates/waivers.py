"""The decision "not needed": what the system decides where a gate's `needs_approval` said `False`. One row a write, in
the commit that lets the writes flow, so it outlives the log of its run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from approvals.models import Decision
from checkpoints import audit_log
from checkpoints.core.ids import uuid7
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator.engine import Task, write_id
from orchestrator.engine.frozen import frozen
from orchestrator.engine.output import WriteValue

VERDICT = "not_needed"
LINE = "approval_not_needed"


@frozen
class NotNeeded:
    """Rows and log lines that ride in the commit. The lines stand one behind the other, the first as `first_seq`."""

    lease: Lease
    events: list[NewEvent] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def insert(self) -> None:
        """Two statements, in the caller's transaction: the decisions, and their line of the audit log; none where
        nothing was passed.
        """
        if not self.decisions:
            return
        statements.insert_rows(Decision, self.decisions)
        first, last = self.decisions[0].event_seq, self.decisions[-1].event_seq
        count = {VERDICT: len(self.decisions)}
        audit_log.record_act("not_needed", self.lease, actor=None, seq=first, last=last, verdicts=count)


def prepare_not_needed(
    lease: Lease,
    passed: Mapping[Task, Sequence[WriteValue]],
    state: Mapping[str, Mapping[str, Any]],
    *,
    first_seq: int,
    at: datetime,
) -> NotNeeded:
    """The decisions on the writes of the tasks whose gates needed nobody, by the system. `state` is that before."""
    made = NotNeeded(lease)
    before = {name: value for partition in ("scratch", "artifacts") for name, value in state[partition].items()}
    for offset, (task, writes) in enumerate(passed.items()):
        rows = [
            _decision(lease, task, position, write, before.get(write.channel), event_seq=first_seq + offset, at=at)
            for position, write in enumerate(writes)
        ]
        facts = {"decisions": [str(row.id) for row in rows]}
        made.events.append(NewEvent(LINE, facts, node=task.node, task=str(task)))
        made.decisions.extend(rows)
    sealed_rows.seal_and_encrypt(made.decisions, lease.protection)
    return made


def _decision(
    lease: Lease, task: Task, position: int, write: WriteValue, before: Any, *, event_seq: int, at: datetime
) -> Decision:
    value = pack_json(write.value)
    return Decision(
        id=uuid7(),
        run=lease.id,
        line=lease.line,
        task=str(task),
        write=write_id(lease.id, lease.line, task, position),
        position=position,
        channel=write.channel,
        revision=0,
        seen_hash="",
        verdict=VERDICT,
        old_value=pack_json(before),
        proposed_value=value,
        final_value=value,
        reason=pack_json("the gate said that no approval is needed"),
        by_name="",
        at=at,
        event_seq=event_seq,
    )
