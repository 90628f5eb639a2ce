"""The decision "not needed", which the system makes if a gate's `needs_approval`
returned `False`. One row for each write, in the commit that passes the writes, so that
it outlives the log of its run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from approvals.models import Decision
from checkpoints.audit import lines as audit_log
from checkpoints.core.ids import uuid7
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Task, write_id
from orchestrator.engine.frozen import frozen
from orchestrator.engine.step.output import Output, WriteValue
from orchestrator.engine.values import canonical

VERDICT = "not_needed"
LINE = "approval_not_needed"


@frozen
class Passed:
    """The output of a task whose gate needed nobody, the hash of its input, and the
    channels that the gate read; None if they were not recorded.
    """

    output: Output
    input_hash: str
    reads: Sequence[str] | None = None


@frozen
class NotNeeded:
    """Rows and events that ride in the commit. The events are numbered without a gap,
    the first as `first_seq`.
    """

    lease: Lease
    events: list[NewEvent] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    def insert(self) -> None:
        """Insert the decisions and their line of the audit log, in the caller's
        transaction: two statements, none if no task passed a gate.
        """
        if not self.decisions:
            return
        statements.insert_rows(Decision, self.decisions)
        audit_log.record_act(
            "not_needed",
            self.lease,
            actor=None,
            # There is no receipt, so the line finds its decisions by their numbers.
            seq=self.decisions[0].event_seq,
            last=self.decisions[-1].event_seq,
            verdicts={VERDICT: len(self.decisions)},
        )


def prepare_not_needed(
    lease: Lease,
    passed: Mapping[Task, Passed],
    state: Mapping[str, Mapping[str, Any]],
    *,
    first_seq: int,
    at: datetime,
) -> NotNeeded:
    """Return the system's decisions on the writes of the tasks whose gates needed
    nobody. `state` is that before the commit. Each event says what the task saw and
    where it went, for a replay, which does not run it.
    """
    not_needed = NotNeeded(lease)
    old_values = {**state["scratch"], **state["artifacts"]}
    # Each task has one event, whose number all of its decisions bear.
    for seq, (task, task_passed) in enumerate(passed.items(), start=first_seq):
        reads = task_passed.reads
        decisions = [
            _decision(
                lease,
                task,
                position,
                write,
                old_values.get(write.channel),
                event_seq=seq,
                at=at,
                # None is not an empty list: a gate without a record may have read any
                # channel.
                checked=None if reads is None else {"reads": list(reads)},
            )
            for position, write in enumerate(task_passed.output.writes)
        ]
        not_needed.decisions.extend(decisions)
        facts = {
            "decisions": [str(decision.id) for decision in decisions],
            # The lease has the superstep of the last commit, and these ride in the
            # next.
            "superstep": lease.superstep + 1,
            "input_hash": task_passed.input_hash,
            **_ways(task_passed.output, lease.protection),
        }
        not_needed.events.append(NewEvent(LINE, facts, node=task.node, task=str(task)))
    sealed_rows.seal_and_encrypt(not_needed.decisions, lease.protection)
    return not_needed


def _ways(output: Output, protection: Protection) -> dict[str, Any]:
    """Return the goto of an output, and its sends. These carry only hashes of their
    payloads, because the frontier has the payloads.
    """
    ways: dict[str, Any] = {}
    if output.goto is not None:
        ways["goto"] = list(output.goto)
    if output.sends:
        ways["sends"] = [
            [target, payload_hash(payload, protection)]
            for target, payload in output.sends
        ]
    return ways


def payload_hash(payload: Any, protection: Protection) -> str:
    """Return the hash that stands for the payload of a send in the log."""
    return protection.digest(canonical.encode(payload))


def _decision(
    lease: Lease,
    task: Task,
    position: int,
    write: WriteValue,
    old_value: Any,
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
        # Nothing was held, and nobody saw anything.
        revision=0,
        seen_hash="",
        verdict=VERDICT,
        old_value=pack_json(old_value),
        proposed_value=value,
        final_value=value,
        reason=pack_json("the gate said that no approval is needed"),
        by_name="",
        at=at,
        event_seq=event_seq,
        checked=checked,
    )
