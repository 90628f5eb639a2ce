"""Re-opening: a steward has an open request asked again under the policy that its graph
has now. Its signatures stay as rows, and count no more.

The old request is withdrawn, and another one asks about the same proposals, in one
transaction under the run's lock. No node runs for it, and the run waits as before; it
is woken only where something may sign by itself, which a worker sees to.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from approvals.drafts import forget_drafts
from approvals.gates.new_requests import (
    Moment,
    NewRequests,
    ReachedGate,
    prepare_requests,
)
from approvals.gates.policy_changes import changed_parts, policy_changes
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.request_state import load_states
from approvals.gates.stored_proposals import (
    Presented,
    proposal_of,
    revisions_of,
    who_re_opened,
    why_at_first,
)
from approvals.gates.unsigned_changes import sentence_of, unsigned_changes
from approvals.gates.withdrawal import mark_withdrawn, withdrawn_events
from approvals.models import ApprovalRequest
from approvals.notice_rows import REOPENED, write_notices
from approvals.people.acts import RequestAct, act_on, require_open, require_right
from checkpoints import lines, timeline, versions
from checkpoints.audit import lines as audit_log
from checkpoints.core.arguments import checked_person, checked_text
from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.models import Run
from checkpoints.queue import notify
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.versions import newest_versions
from orchestrator.discovery import note_version
from orchestrator.engine import Gate, Task, registry
from orchestrator.engine.errors import (
    IncompatibleGraph,
    InvalidValue,
    UnknownThing,
    WrongStatus,
)
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.gates.requests import is_applied_as_one
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.standing_policy import signs_by_itself
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.engine.versions.judgement import MIGRATED
from orchestrator.engine.versions.pending_parts import Pending
from orchestrator.execution.memory import memory_values

LONGEST_REASON = 10_000
REOPENED_EVENT = "request_reopened"

Policy = Mapping[str, Any]


@frozen
class _Asker:
    """The run for which the new request is opened."""

    run: Run

    @property
    def id(self) -> UUID:
        return self.run.id

    @property
    def line(self) -> int:
        return self.run.line

    @property
    def graph(self) -> str:
        return self.run.graph

    @property
    def protection(self) -> Protection:
        return protection_of(self.run)


def reopen(request_id: UUID | str, *, by: Any, reason: str) -> ApprovalRequest:
    """Open an open request again under the policy that its graph has now, and return
    the new request. Its signatures no longer count, and edits are put back to what the
    node proposed; who had signed hears of it.

    Raises, having changed nothing: `Forbidden` (leaves an audit line), `InvalidValue`
    (no reason, or a function of the gate failed), `WrongStatus` (nothing can be decided
    in it, the policy asks for the same, it asks about a patch or what a node acts on, or
    silence would approve), `IncompatibleGraph` (the run cannot go on under the present
    version), `UnknownThing`, `TamperedRow`, `WrongKey`.
    """
    by = checked_person(by, "by")
    checked_text(reason, "reason", most=LONGEST_REASON)
    if not reason.strip():
        raise InvalidValue("say why: the reason is kept in the log", path="reason")
    with act_on(request_id, by=by) as act:
        require_right(act, "reassign")
        why = who_re_opened(by.get_username(), reason)
        opening = _opening(act.run, act.request, at=act.at, why=why)
        [opened] = opening.requests
        _require_change(act.request, opened)
        _replace(act, opening, opened, reason)
        return opened


def changes_of_reopening(request: ApprovalRequest, *, at: datetime) -> list[str]:
    """Return in words how the policy that a request's graph has now differs from its
    own. Reads `request.run`. Raises as `reopen` does where it cannot be re-opened.
    """
    require_open(request)
    opening = _opening(request.run, request, at=at, why="")
    [opened] = opening.requests
    _require_change(request, opened)
    return list(policy_changes(request.policy, opened.policy))


def _require_change(request: ApprovalRequest, opened: ApprovalRequest) -> None:
    """Raise `WrongStatus` unless the new policy asks for something else, and nothing
    passes by silence that the old one would have held.
    """
    if not changed_parts(request.policy, opened.policy):
        raise WrongStatus(
            "the policy of its graph asks for what this request asks for already",
            status=request.run.status,
        )
    _require_own_veto(request.run, request.policy, opened.policy)
    # The version that the run is of was not examined for what silence would let act.
    silence = "approve"
    was_silent = request.policy.get("on_deadline") == silence
    if opened.policy.get("on_deadline") == silence and not was_silent:
        raise WrongStatus(
            "under the policy of its graph silence would approve, which no open request "
            "is turned into",
            status=request.run.status,
        )


def _require_own_veto(run: Run, old: Policy, new: Policy) -> None:
    """Raise `WrongStatus` where a veto would come in that the run's own version, which
    is asked for it, need not have: then nothing could be approved.
    """
    veto = new.get("veto")
    if veto is None or veto == old.get("veto"):
        return
    if registry.current(run.graph).fingerprint != run.fingerprint:
        raise WrongStatus(
            f"the policy of its graph has the veto {veto}, which the version that the run "
            "is pinned to need not have",
            status=run.status,
        )


def _opening(
    run: Run, request: ApprovalRequest, *, at: datetime, why: str
) -> NewRequests:
    """Return the rows of the request that asks again."""
    compiled = _present_version(run)
    run_input = read_value(run, "input")
    gate = gate_on_run(compiled, _present_gate(compiled, request), run_input)
    protection = protection_of(run)
    # Whatever is there must be as it was written.
    load_states([request], protection)
    first, newest = revisions_of(request, protection)
    head = timeline.head_state(run.id)
    state = memory_values(protection, head, [row.channel for row in first])
    task = Task(request.node, request.visit, request.index)
    presented = Presented(run_input, state, protection.encrypted)
    held = proposal_of(task, gate, first, presented)
    channels = [write.channel for write in held]
    reached = ReachedGate(
        gate,
        ". ".join(filter(None, [why_at_first(request, protection), why])) or None,
        all_or_nothing=is_applied_as_one(compiled, request.node, channels),
        input_hash=request.input_hash,
        prepared_from=request.prepared_from,
        guard=request.policy.get("gate") or "",
        reads=request.policy.get("reads"),
        ordinal=_askings(request),
        revisions={row.position: row.revision + 1 for row in newest},
    )
    changes = unsigned_changes(lines.past(run.id, run.line))
    unsigned = partial(_sentence, changes)
    moment = Moment(state, run.superstep, presented.input, at, unsigned=unsigned)
    return prepare_requests(_Asker(run), compiled, {task: reached}, held, moment)


def _sentence(changes: Any, reads: Any, decides: str) -> str:
    return sentence_of(changes, reads, decides=decides)


def _askings(request: ApprovalRequest) -> int:
    """Return how often the task of a request has asked on its line."""
    rows = ApprovalRequest.objects.filter(
        run=request.run_id,
        line=request.line,
        node=request.node,
        visit=request.visit,
        index=request.index,
    )
    return rows.count()


def _present_version(run: Run) -> Compiled:
    """Return the version for new runs, if the run could go on with it as it stands, and
    no process has a newer one. Raises `IncompatibleGraph`.
    """
    try:
        compiled = registry.current(run.graph)
    except UnknownThing:
        raise IncompatibleGraph(
            f"this process has no version of the graph {run.graph}", graph=run.graph
        ) from None
    # Noted first, as where a version takes over a run: it may be the newest itself.
    note_version(compiled)
    if newest_versions({run.graph}).get(run.graph) != compiled.fingerprint:
        raise IncompatibleGraph(
            f"this process has version {compiled.version} of the graph {run.graph}, which "
            "is not the newest that is known",
            graph=run.graph,
            version=compiled.version,
        )
    if compiled.fingerprint == run.fingerprint:
        return compiled
    judgement = versions.judgement_of(run, compiled, Pending.from_text(run.pending))
    if not judgement.adopted or judgement.verdict == MIGRATED:
        raise IncompatibleGraph(
            f"the run could not go on with version {compiled.version} of its graph, "
            "so no request of it is asked under that",
            graph=run.graph,
            version=compiled.version,
        )
    return compiled


def _present_gate(compiled: Compiled, request: ApprovalRequest) -> Gate:
    """Return the gate that asks now. Raises `WrongStatus`."""
    if request.kind == AUTHORITY_KIND:
        raise WrongStatus(
            "it asks again about what a node acts on, under the rules by which that was "
            "approved",
            status=request.run.status,
        )
    if request.node == PATCH:
        raise WrongStatus(
            "it asks about a patch; fork or rewind the run again instead",
            status=request.run.status,
        )
    guard = request.policy.get("gate") or request.node
    if guard != request.node:
        raise WrongStatus(
            "it asks about an output that a person gave when settling what happened, "
            f"under the rules of the gate of {guard}",
            status=request.run.status,
        )
    node = compiled.nodes.get(request.node)
    if node is None or node.gate is None:
        raise WrongStatus(
            f"version {compiled.version} of the graph has no gate at {request.node}",
            status=request.run.status,
        )
    return node.gate


def _replace(
    act: RequestAct, opening: NewRequests, opened: ApprovalRequest, reason: str
) -> None:
    """Withdraw the request of an act and open the other one, with the lines of both
    logs and the notice to those who had signed.
    """
    request = act.request
    facts = {"request": str(request.id), "opened": str(opened.id), "reason": reason}
    reopened = NewEvent(
        REOPENED_EVENT,
        facts,
        node=request.node,
        task=request.task,
        actor=act.by.get_username(),
    )
    seq = act.run.event_seq + 1
    events = [reopened, *withdrawn_events([request]), *opening.events]
    # A worker asks the policies that may sign there by themselves.
    wakes = notify.woken() if signs_by_itself(opened.policy) else {}
    locked_run.append_locked(act.run, events, at=act.at, **wakes)
    mark_withdrawn([request])
    opening.insert()
    forget_drafts(
        act.run, None, signed=[], settled=[row.write for row in opening.writes]
    )
    audit_log.record_act(
        REOPENED_EVENT,
        act.run,
        actor=act.by,
        seq=seq,
        request=request.id,
        opened=str(opened.id),
        changed=changed_parts(request.policy, opened.policy),
    )
    write_notices(request, [(REOPENED, None)], at=act.at)
    if wakes:
        notify.notify_workers()
