"""Opening requests: one for each gate that a superstep reached, inside the commit that
stages the writes.

Everything is computed before the transaction; `NewRequests.insert` only inserts. Title,
facts, labels, policy and base are fixed here, once: people are shown later exactly what
is stored now.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Subquery

from approvals.gates.deadline_jobs import AskingPlace, add_request_jobs, with_time
from approvals.gates.renewals import AUTHORITY_KIND, renewed_at
from approvals.gates.reviewer_rows import reviewer_rows
from approvals.models import (
    ApprovalRequest,
    DoorMessage,
    MessageStatus,
    RequestReviewer,
)
from checkpoints.core.ids import uuid7
from checkpoints.core.status import Status
from checkpoints.core.visible_text import LONGEST_LABEL
from checkpoints.db import statements
from checkpoints.db.clock import read_now
from checkpoints.event_log import NewEvent
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite, Run
from checkpoints.models.fields import task_columns
from checkpoints.queue import jobs
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Gate, Task, write_id
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gates.deadlines import GateDeadline, deadline_on
from orchestrator.engine.gates.requests import reads_proposal, reviewers_on
from orchestrator.engine.graphs.auto import auto_policy, window_policy
from orchestrator.engine.graphs.call import AUTHORITY, CALL
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.confirmation import confirmation_policy
from orchestrator.engine.graphs.consideration import consideration_policy
from orchestrator.engine.graphs.gate import (
    Show,
    plain_label,
    present,
    reports_policy,
)
from orchestrator.engine.graphs.question import shown_of
from orchestrator.engine.graphs.review_claim import claim_policy
from orchestrator.engine.graphs.standing_policy import standing_policy
from orchestrator.engine.graphs.tiers import next_tier_at, tiers_policy
from orchestrator.engine.graphs.veto import veto_policy
from orchestrator.engine.graphs.write import named_effect, shown_form
from orchestrator.engine.step.held_patch import is_patch
from orchestrator.engine.step.reduce import HeldWrite
from orchestrator.engine.values import canonical

DELIVER_MESSAGES = "deliver_messages"
"""The kind of the jobs that deliver what came at a door. Their fact `message` is the id
of a message for the run.
"""


class Asker(Protocol):
    """The run for which requests are opened, as its lease or a beginning line has
    it.
    """

    @property
    def id(self) -> UUID: ...
    @property
    def line(self) -> int: ...
    @property
    def graph(self) -> str: ...
    @property
    def protection(self) -> Protection: ...


@frozen
class ReachedGate:
    """A gate that a task reached, and why it must ask (the guard's reason, or its
    error); the hash of the task's input, and the checkpoint with the state that it read
    (None if no row of that is kept).

    `gate` asks for what its terms say in this run, where it has any (`gate_on_run`).
    `guard` is the node whose gate it is, and `reads` are the channels that its check
    looked at, None if they were not recorded. `reviewers` are named already if the gate
    was asked before and nothing may name others. If the task had asked on this line
    before, `ordinal` says how often, and `revisions` have the next revision of each of
    its writes, by position; the revisions and verdicts of those in `kept_from` stay, by
    the decisions in its requests from that ordinal on, by position. `shown` is
    what `present` returns, where it is known from an earlier request; `renews` names
    that.
    """

    gate: Gate
    why: str | None = None
    all_or_nothing: bool = False
    input_hash: str = ""
    prepared_from: UUID | None = None
    guard: str = ""
    reads: Sequence[str] | None = ()
    reviewers: Sequence[str] | None = None
    ordinal: int = 0
    revisions: Mapping[int, int] = field(default_factory=dict)
    kept_from: Mapping[int, int] = field(default_factory=dict)
    shown: Mapping[str, Any] | None = None
    renews: UUID | None = None


def patch_gate(
    gate: Gate, channels: Collection[str], why: str | None, *, guard: str
) -> ReachedGate:
    """Return the gate of node `guard`, at which people are asked about values that a
    person sets in channels that it guards. `why` names that person.
    """
    patched = {*channels}
    at_patch = replace(
        gate,
        title=_patch_title(gate, channels),
        # What a patch replaces counts as its base, whatever the channel's reducer does
        # with other writes.
        shows=sorted({*gate.shows, *channels}),
        # A fact that reads what the patch sets would show the old value after an edit.
        facts=[
            fact
            for fact in gate.facts
            if not reads_proposal(Gate(facts=[fact]), patched)
        ],
    )
    return ReachedGate(at_patch, why, all_or_nothing=True, guard=guard)


def _patch_title(gate: Gate, channels: Collection[str]) -> str:
    """Return the gate's own question, unless it reads what the patch sets: then it
    would show the old value after an edit.
    """
    if gate.title and not reads_proposal(Gate(title=gate.title), {*channels}):
        return gate.title
    return f"A patch sets {', '.join(channels)}"


def _named_by_gate(gate: Gate, proposal: Sequence[HeldWrite]) -> list[HeldWrite]:
    """Return the writes of a patch, labelled as the gate labels such writes; one for
    which it has no label keeps its own.
    """
    writes = []
    for write in proposal:
        show = gate.writes.get(write.channel, Show())
        # A label may quote fields of the value, and null has none.
        has_label = bool(show.label) and write.value is not None
        writes.append(replace(write, label=None) if has_label else write)
    return writes


@frozen
class NewRequests:
    """Rows and log lines that ride in the commit."""

    requests: list[ApprovalRequest] = field(default_factory=list)
    reviewers: list[RequestReviewer] = field(default_factory=list)
    writes: list[PendingWrite] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)

    def insert(self) -> None:
        """Insert the rows in the caller's transaction: three statements for some
        hundred rows, and the jobs of those that have a deadline or tiers. One query
        more if people are asked for values: messages may have come before.
        """
        if self.requests:
            statements.insert_rows(ApprovalRequest, self.requests)
            statements.insert_rows(RequestReviewer, self.reviewers)
            statements.insert_rows(PendingWrite, self.writes)
            add_request_jobs(self.requests)
            _add_message_job(self.requests)


def _add_message_job(requests: Sequence[ApprovalRequest]) -> None:
    """Queue the job that delivers what came at a door before this run, which the
    caller's transaction has locked, asked for a value.
    """
    if not any(request.policy.get("asks") for request in requests):
        return
    request = requests[0]
    key = Run.objects.filter(id=request.run_id).order_by().values("key")[:1]
    waiting = DoorMessage.objects.filter(
        key=Subquery(key), graph=request.graph, status=MessageStatus.KEPT
    )
    # The newest, for older ones are removed before it.
    message = waiting.order_by("-at").values_list("id", flat=True).first()
    if message is not None:
        # Without a name: a job that runs may have looked too early.
        jobs.add_job(DELIVER_MESSAGES, message=str(message))


@frozen
class Moment:
    """The commit that opens the requests: the state after it, its superstep, the run's
    input, and its time. `asked_on` is the state that functions for reviewers are given,
    if it differs from `state`. `unsigned` returns the sentence on who changed which of
    these channels without a signature, and on what that decided ("whom it asks"), for
    functions that read them. `behind` is the place from which the line of the requests
    departs, where that has no rows yet.
    """

    state: State
    superstep: int
    input: Any
    at: datetime
    asked_on: State | None = None
    unsigned: Callable[[Collection[str], str], str] | None = None
    behind: AskingPlace | None = None


def prepare_requests(
    asker: Asker,
    compiled: Compiled,
    reached: Mapping[Task, ReachedGate],
    held: Sequence[HeldWrite],
    moment: Moment,
) -> NewRequests:
    """Return the requests of these tasks. Raises `InvalidValue` if a function for
    reviewers fails or names nobody.
    """
    opening = NewRequests()
    if not reached:
        return opening
    place = moment.behind or AskingPlace(asker.id, asker.line)
    deadlines = _deadlines(compiled, reached, moment.asked_on or moment.state, place)
    for task, reached_gate in reached.items():
        proposal = [write for write in held if write.task == task]
        if _kind_of(proposal) == AUTHORITY_KIND:
            proposal = renewed_at(reached_gate.ordinal, proposal)
        _open(
            opening,
            asker,
            compiled,
            task,
            reached_gate,
            proposal,
            moment,
            deadlines.get(task, GateDeadline()),
        )
    sealed_rows.seal_and_encrypt(opening.requests, asker.protection)
    sealed_rows.seal_and_encrypt(opening.writes, asker.protection)
    return opening


def _open(
    opening: NewRequests,
    asker: Asker,
    compiled: Compiled,
    task: Task,
    reached: ReachedGate,
    proposal: list[HeldWrite],
    moment: Moment,
    deadline: GateDeadline,
) -> None:
    """Add the request of one task, with its reviewers, its writes and its event."""
    if is_patch(task):
        proposal = _named_by_gate(reached.gate, proposal)
    asked_on = moment.asked_on or moment.state
    reviewers, reads = _reviewers(compiled, reached, asked_on)
    policy = policy_of(task, reached, reviewers, reads, deadline)
    policy |= _policy_on(proposal, reached.gate) | _policy_on_questions(proposal)
    policy |= _policy_on_effects(proposal)
    policy_hash = canonical.digest(canonical.dumps(policy))
    shown = reached.shown or present(
        reached.gate,
        node=task.node,
        input=moment.input,
        state=moment.state,
        writes=proposal,
    )
    why = _why(reached, reads, moment, deadline)
    request = ApprovalRequest(
        id=uuid7(),
        **task_columns(asker.id, asker.line, task),
        graph=asker.graph,
        kind=_kind_of(proposal),
        ordinal=reached.ordinal,
        superstep=moment.superstep,
        input_hash=reached.input_hash,
        prepared_from=reached.prepared_from,
        title=pack_json(shown["title"]),
        facts=pack_json(shown["facts"]),
        why=pack_json(why) if why else b"",
        policy=policy,
        policy_hash=policy_hash,
        quorum=policy["quorum"],
        writes=len(proposal),
        opened_at=moment.at,
        deadline=deadline.at,
        tier_at=deadline.tier_at,
    )
    opening.requests.append(request)
    opening.reviewers.extend(
        reviewer_rows(request, policy["reviewers"], status=Status.PAUSED.value)
    )

    revisions = _new_revisions(
        asker, compiled, reached, proposal, shown, policy_hash, moment
    )
    opening.writes.extend(revisions)
    write_ids = [
        str(write_id(asker.id, asker.line, task, write.position)) for write in proposal
    ]
    facts: dict[str, Any] = {"request": str(request.id), "writes": write_ids}
    if reached.renews is not None:
        facts["renews"] = str(reached.renews)
    opening.events.append(
        NewEvent("request_opened", facts, node=task.node, task=str(task))
    )
    if deadline.fault:
        warning = {"code": "no_deadline", "message": deadline.fault}
        opening.events.append(
            NewEvent("warning", warning, node=task.node, task=str(task))
        )


def _new_revisions(
    asker: Asker,
    compiled: Compiled,
    reached: ReachedGate,
    proposal: Sequence[HeldWrite],
    shown: Mapping[str, Any],
    policy_hash: str,
    moment: Moment,
) -> Iterator[PendingWrite]:
    """Yield the revisions about which a request asks."""
    for write, shown_write in zip(proposal, shown["writes"], strict=True):
        # Its newest revision is the one that people settled.
        if write.position in reached.kept_from:
            continue
        yield _stage(
            asker,
            compiled,
            write,
            reached.gate,
            # Title and facts are shown beside every write, and are part of what is signed.
            shown_beside={
                "title": shown["title"],
                "facts": shown["facts"],
                **shown_write,
                **shown_of(write.question),
                **shown_form(write.form),
            },
            policy_hash=policy_hash,
            moment=moment,
            revision=reached.revisions.get(write.position, 1),
        )


def _policy_on(proposal: Sequence[HeldWrite], gate: Gate) -> dict[str, Any]:
    """Return what a policy says of what is asked about: whether it may be skipped."""
    # A value that was proposed, or acted on before, cannot be left undone.
    if gate.skip and _kind_of(proposal) == "call":
        return {"skip": True}
    return {}


def _policy_on_questions(proposal: Sequence[HeldWrite]) -> dict[str, Any]:
    """Return what a policy says of questions: the positions of the writes for whose
    values people are asked.
    """
    positions = [write.position for write in proposal if write.question is not None]
    return {"asks": positions} if positions else {}


def _policy_on_effects(proposal: Sequence[HeldWrite]) -> dict[str, Any]:
    """Return what a policy says of the effects that writes name themselves, which no
    edit changes: {effects: {channel: {effect: number of writes}}}.
    """
    effects: dict[str, dict[str, int]] = {}
    for write in proposal:
        named = named_effect(write.form)
        if named:
            of_channel = effects.setdefault(write.channel, {})
            of_channel[named] = of_channel.get(named, 0) + 1
    return {"effects": effects} if effects else {}


def _kind_of(proposal: Sequence[HeldWrite]) -> str:
    """Return what a request asks about: a call before its node runs, what a node acts
    on, or writes.
    """
    channels = {write.channel for write in proposal}
    if AUTHORITY in channels:
        return AUTHORITY_KIND
    return "call" if CALL in channels else "writes"


def _deadlines(
    compiled: Compiled,
    reached: Mapping[Task, ReachedGate],
    state: State,
    place: AskingPlace,
) -> dict[Task, GateDeadline]:
    """Return the deadlines and first tiers of requests that are opened on this state.
    One query on PostgreSQL, none if no gate has either; more where the moment that a
    gate names has passed.
    """
    timed: dict[Task, Gate] = {}
    for task, reached_gate in reached.items():
        if reached_gate.gate.deadline or reached_gate.gate.tiers:
            timed[task] = reached_gate.gate
    if not timed:
        return {}
    now = read_now()
    deadlines: dict[Task, GateDeadline] = {}
    for task, declared in timed.items():
        guard = reached[task].guard or task.node
        gate = with_time(declared, guard, now, place)
        deadline = deadline_on(compiled, gate, state, now)
        tier_at = next_tier_at(tiers_policy(gate), 0, now, deadline.at)
        deadlines[task] = deadline._replace(tier_at=tier_at)
    return deadlines


def _why(
    reached: ReachedGate,
    reads: Sequence[str] | None,
    moment: Moment,
    deadline: GateDeadline,
) -> str:
    """Return why people are asked, who changed what made the gate ask them, and why
    they have no deadline though the gate has one.
    """
    why = _why_asked(reached, reads, moment, deadline)
    return _with_sentence(why, deadline.fault)


def _why_asked(
    reached: ReachedGate,
    reads: Sequence[str] | None,
    moment: Moment,
    deadline: GateDeadline,
) -> str:
    """Return why people are asked, and who changed what made the gate ask them, or
    decided until when. `reads` are the channels that decided whom.
    """
    why = reached.why or ""
    if moment.unsigned is None or reads is None:
        return why
    why = _with_sentence(why, moment.unsigned(reads, "whom it asks"))
    until_when = sorted({*deadline.reads}.difference(reads))
    return _with_sentence(why, moment.unsigned(until_when, "until when it asks"))


def _with_sentence(why: str, sentence: str) -> str:
    # A request that is staged again may say so already.
    if sentence in why:
        return why
    return f"{why}. {sentence}" if why else sentence


def _stage(
    asker: Asker,
    compiled: Compiled,
    write: HeldWrite,
    gate: Gate,
    *,
    shown_beside: dict[str, Any],
    policy_hash: str,
    moment: Moment,
    revision: int,
) -> PendingWrite:
    """Return the revision of a held write about which people are asked."""
    task = write.task
    label = shown_beside["label"]
    # A column that lists read: in an encrypted run it holds nothing of the value.
    if asker.protection.encrypted:
        label = plain_label(gate, write, node=task.node)
    base = pending_writes.StoredBase.read(
        compiled, moment.state, write.channel, shows=gate.shows
    )
    return pending_writes.staged(
        write_id(asker.id, asker.line, task, write.position),
        task_columns(asker.id, asker.line, task),
        position=write.position,
        channel=write.channel,
        label=label[:LONGEST_LABEL],
        value=write.value,
        base=base,
        shown=shown_beside,
        policy_hash=policy_hash,
        superstep=moment.superstep,
        at=moment.at,
        protection=asker.protection,
        revision=revision,
    )


def policy_of(
    task: Task,
    reached: ReachedGate,
    reviewers: Sequence[str],
    reads: Sequence[str] | None,
    deadline: GateDeadline,
) -> dict[str, Any]:
    """Return the policy that a request is opened under, as JSON. A later deployment
    changes none of it. `reads` are the channels that decided who the reviewers are.
    """
    gate = reached.gate
    if reads is not None:
        reads = sorted({*reads, *deadline.reads})
    reason_required: list[str] = []
    needs: dict[str, list[str]] = {}
    for channel, show in gate.writes.items():
        if show.reason_required:
            reason_required.append(channel)
        if show.needs:
            needs[channel] = sorted(set(show.needs))
    policy: dict[str, Any] = {
        "gate": reached.guard,
        "reads": reads,
        "reviewers": list(reviewers),
        "quorum": gate.quorum,
        "reject_quorum": gate.reject_quorum,
        "four_eyes": gate.four_eyes,
        "all_or_nothing": gate.all_or_nothing or reached.all_or_nothing,
        "shows": sorted(gate.shows),
        "reason_required": sorted(reason_required),
        "needs": needs,
    }
    # Policies without it are hashed as before there were deadlines.
    if deadline.at is not None:
        policy["on_deadline"] = _on_deadline(gate, task, reached)
    if reached.kept_from:
        positions = sorted(reached.kept_from)
        policy["kept"] = positions
        # Processes of older versions know one number for all.
        policy["kept_since"] = min(reached.kept_from.values())
        policy["kept_from"] = [reached.kept_from[position] for position in positions]
    # Values that a person brought in wait for people.
    if reached.guard in ("", task.node):
        policy.update(auto_policy(gate))
        policy.update(standing_policy(gate))
        policy.update(window_policy(gate))
    return {
        **policy,
        **confirmation_policy(gate),
        **consideration_policy(gate),
        **claim_policy(gate),
        **tiers_policy(gate),
        **veto_policy(gate),
        **reports_policy(gate),
    }


def _on_deadline(gate: Gate, task: Task, reached: ReachedGate) -> str:
    """Return what the deadline does. It approves only what the gate's own node
    proposed: a value that a person brought in is rejected instead.
    """
    is_own = reached.guard in ("", task.node)
    if gate.on_deadline == "approve" and not is_own:
        return "reject"
    return gate.on_deadline


def _reviewers(
    compiled: Compiled, reached: ReachedGate, state: State
) -> tuple[list[str], list[str] | None]:
    """Return whom the gate asks, and which channels its functions read; None if these
    were not all recorded.
    """
    if reached.reviewers is not None:
        # The state may have been changed since, and a change must not name others.
        recorded = None if reached.reads is None else list(reached.reads)
        return list(reached.reviewers), recorded
    reviewers = reviewers_on(compiled, reached.gate, state)
    if reached.reads is None:
        return reviewers.principals, None
    return reviewers.principals, sorted({*reached.reads, *reviewers.reads})
