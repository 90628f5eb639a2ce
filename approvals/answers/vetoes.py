"""The answers of vetoes, as rows in a runner's slice: what a gate's veto answered after
people had approved what the gate holds. Nothing is written before `insert`, which rides
in the commit.

Each is a decision row, so that a receipt still shows it a year later, and so that
changes to what the veto read are guarded.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from datetime import datetime
from uuid import UUID

from approvals.gates.request_state import RequestState
from approvals.gates.settlement import reopen_requests
from approvals.models import BY_VETO, NO_VETO, VETO, ApprovalRequest, Decision
from approvals.signing import signed_decision
from checkpoints.audit import lines as audit_log
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import decrypted
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.effect import APPROVED


@frozen
class VetoAnswer:
    """A veto's answer on the writes of a settled request that would be applied: why
    they stay open, empty if they may be applied; and the channels that it read.
    """

    state: RequestState
    why: str
    reads: Sequence[str]


@frozen
class VetoRows:
    """Rows and events that ride in the commit. The events are numbered without a gap."""

    lease: Lease
    events: list[NewEvent] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    reopened: list[ApprovalRequest] = field(default_factory=list)

    def insert(self) -> None:
        """Insert the answers and their line of the audit log, and reopen what stays
        open, in the caller's transaction. Does nothing if no veto was asked.
        """
        if not self.decisions:
            return
        statements.insert_rows(Decision, self.decisions)
        audit_log.record_act(
            "veto_asked",
            self.lease,
            actor=None,
            # There is no receipt, so the line finds its decisions by their numbers.
            seq=self.decisions[0].event_seq,
            last=self.decisions[-1].event_seq,
            verdicts=dict(Counter(row.verdict for row in self.decisions)),
        )
        reopen_requests(self.reopened)


def prepare_vetoes(
    lease: Lease,
    answers: Sequence[VetoAnswer],
    *,
    first_seq: int,
    at: datetime,
) -> VetoRows:
    """Return the rows of these answers: a decision for each write that would be applied.
    The first event is numbered `first_seq`.
    """
    rows = VetoRows(lease)
    for answer in answers:
        _add_answer(rows, answer, at)
        if answer.why:
            rows.reopened.append(answer.state.request)
    for seq, decision in enumerate(rows.decisions, start=first_seq):
        decision.event_seq = seq
    sealed_rows.seal_and_encrypt(rows.decisions, lease.protection)
    return rows


def _add_answer(rows: VetoRows, answer: VetoAnswer, at: datetime) -> None:
    state = answer.state
    for row in state.writes:
        if state.standings[row.write].verdict != APPROVED:
            continue
        decision, event = signed_decision(
            state.request,
            row,
            VETO if answer.why else NO_VETO,
            at=at,
            by_name=BY_VETO,
            proposed_value=decrypted(row, "value"),
            reason=pack_json(answer.why) if answer.why else b"",
            checked={"reads": sorted(answer.reads)},
        )
        rows.decisions.append(decision)
        rows.events.append(event)


def reasons_shown(state: RequestState) -> set[str]:
    """Return the reasons that vetoes gave of the present revisions of what is approved,
    where people have decided on each of these writes since, and so have seen the
    reasons. Raises `TamperedRow`, `WrongKey`.
    """
    approved: dict[UUID, int] = {}
    for row in state.writes:
        if state.standings[row.write].verdict == APPROVED:
            approved[row.write] = row.revision
    # A deadline decides too, but has seen no reason.
    last_signed: dict[UUID, int] = {}
    for decision in state.decisions:
        is_present = approved.get(decision.write) == decision.revision
        if is_present and decision.by_id is not None:
            last_signed[decision.write] = decision.event_seq

    shown: set[str] = set()
    unseen: set[str] = set()
    for answer in state.answers:
        is_present = approved.get(answer.write) == answer.revision
        if answer.verdict != VETO or not is_present:
            continue
        reason = str(read_value(answer, "reason"))
        if last_signed.get(answer.write, 0) > answer.event_seq:
            shown.add(reason)
        else:
            unseen.add(reason)
    return shown - unseen
