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
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task, canonical, write_id
from orchestrator.engine.frozen import frozen
from orchestrator.engine.output import Output, WriteValue

VERDICT = "not_needed"
LINE = "approval_not_needed"


@frozen
class Passed:
    """What a task returned whose gate needed nobody, the hash of what it saw, and the channels that the gate read;
    None where nobody wrote these down.
    """

    output: Output
    input_hash: str
    reads: Sequence[str] | None = None


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
    passed: Mapping[Task, Passed],
    state: Mapping[str, Mapping[str, Any]],
    *,
    first_seq: int,
    at: datetime,
) -> NotNeeded:
    """The decisions on the writes of the tasks whose gates needed nobody, by the system. `state` is that before. The
    line says what the task saw and where it went, for a replay, which does not run it.
    """
    made = NotNeeded(lease)
    before = {name: value for partition in ("scratch", "artifacts") for name, value in state[partition].items()}
    for offset, (task, one) in enumerate(passed.items()):
        rows = [
            _decision(
                lease,
                task,
                position,
                write,
                before.get(write.channel),
                event_seq=first_seq + offset,
                at=at,
                checked=None if one.reads is None else {"reads": list(one.reads)},
            )
            for position, write in enumerate(one.output.writes)
        ]
        seen = {"superstep": lease.superstep + 1, "input_hash": one.input_hash}
        facts = {"decisions": [str(row.id) for row in rows], **seen, **_ways(one.output, lease.protection)}
        made.events.append(NewEvent(LINE, facts, node=task.node, task=str(task)))
        made.decisions.extend(rows)
    sealed_rows.seal_and_encrypt(made.decisions, lease.protection)
    return made


def _ways(output: Output, protection: Protection) -> dict[str, Any]:
    """The goto of an output, and its sends by the hashes of what they carry: the frontier has that."""
    sends = [[target, payload_hash(payload, protection)] for target, payload in output.sends]
    return {**({"goto": list(output.goto)} if output.goto is not None else {}), **({"sends": sends} if sends else {})}


def payload_hash(payload: Any, protection: Protection) -> str:
    """What names the payload of a send in the log."""
    return protection.digest(canonical.encode(payload))


def _decision(
    lease: Lease,
    task: Task,
    position: int,
    write: WriteValue,
    before: Any,
    *,
    event_seq: int,
    at: datetime,
    checked: Mapping[str, Any] | None,
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
        checked=checked,
    )
