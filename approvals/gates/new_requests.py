"""Opening requests: one for each gate that a superstep reached, inside the commit that stages the writes.

Everything is computed before the transaction; `NewRequests.insert` only inserts. Title, facts, labels, policy and base
are fixed here, once: what people are shown later is what is stored now.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from approvals.models import ApprovalRequest, RequestReviewer
from checkpoints.core.ids import uuid7
from checkpoints.core.visible_text import LONGEST_LABEL
from checkpoints.db import statements
from checkpoints.event_log import NewEvent
from checkpoints.ledger import pending_writes
from checkpoints.models import PendingWrite
from checkpoints.models.fields import task_columns
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import pack_json
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import Gate, Task, canonical, write_id
from orchestrator.engine.compile import Compiled
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gate import Show, plain_label, present
from orchestrator.engine.held_patch import is_patch
from orchestrator.engine.reduce import HeldWrite
from orchestrator.engine.requests import reads_proposal, reviewers_on


class Asker(Protocol):
    """For whom requests are opened: whoever holds a run, or the line that begins."""

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
    """A gate reached by a task, and why it must be asked (the guard's reason, or its error); the hash of the task's
    input, and the checkpoint with the state that it read (None where no row is kept of that).

    `guard` is the node whose gate it is, and `reads` are the channels that its check looked at; None where nobody wrote
    them down. `reviewers` are named already where the gate was asked before and nothing may name others.
    """

    gate: Gate
    why: str | None = None
    all_or_nothing: bool = False
    input_hash: str = ""
    prepared_from: UUID | None = None
    guard: str = ""
    reads: Sequence[str] | None = ()
    reviewers: Sequence[str] | None = None


def patch_gate(gate: Gate, channels: Collection[str], why: str | None, *, guard: str) -> ReachedGate:
    """The gate of node `guard`, at which people are asked about values that somebody sets in channels that it guards.
    `why` says who.
    """
    # What a patch replaces counts as its base, whatever the channel's reducer does with other writes.
    gate = replace(gate, title=_patch_title(gate, channels), shows=sorted({*gate.shows, *channels}))
    # A fact that reads what the patch sets would tell the old value once somebody edits it.
    gate = replace(gate, facts=[one for one in gate.facts if not reads_proposal(Gate(facts=[one]), {*channels})])
    return ReachedGate(gate, why, all_or_nothing=True, guard=guard)


def _patch_title(gate: Gate, channels: Collection[str]) -> str:
    """The gate's own question; where it reads what the patch sets it would tell the old value after an edit."""
    if gate.title and not reads_proposal(Gate(title=gate.title), {*channels}):
        return gate.title
    return f"A patch sets {', '.join(channels)}"


def _named_by_gate(gate: Gate, proposal: Sequence[HeldWrite]) -> list[HeldWrite]:
    """The writes of a patch, called what the gate calls such a write; one that it has no name for keeps its own."""
    named = []
    for write in proposal:
        show = gate.writes.get(write.channel, Show())
        has_name = bool(show.label) and write.value is not None
        named.append(replace(write, label=None) if has_name else write)
    return named


@frozen
class NewRequests:
    """Rows and log lines that ride in the commit."""

    requests: list[ApprovalRequest] = field(default_factory=list)
    reviewers: list[RequestReviewer] = field(default_factory=list)
    writes: list[PendingWrite] = field(default_factory=list)
    events: list[NewEvent] = field(default_factory=list)

    def insert(self) -> None:
        """Three statements for some hundred rows, in the caller's transaction."""
        if self.requests:
            statements.insert_rows(ApprovalRequest, self.requests)
            statements.insert_rows(RequestReviewer, self.reviewers)
            statements.insert_rows(PendingWrite, self.writes)


@frozen
class Moment:
    """The commit that opens: the state after it, its superstep, the run's input, and when. `asked_on`: the state that
    functions for reviewers are given, where it is another. `unsigned` returns the sentence on who changed what of these
    channels without a signature, for functions that read them.
    """

    state: dict[str, dict[str, Any]]
    superstep: int
    input: Any
    at: datetime
    asked_on: dict[str, dict[str, Any]] | None = None
    unsigned: Callable[[Collection[str]], str] | None = None


def prepare_requests(
    asker: Asker, compiled: Compiled, reached: Mapping[Task, ReachedGate], held: Sequence[HeldWrite], moment: Moment
) -> NewRequests:
    """The requests of these tasks. Raises `InvalidValue` where a function for reviewers fails or names nobody."""
    opening = NewRequests()
    if not reached:
        return opening
    for task, gating in reached.items():
        proposal = [write for write in held if write.task == task]
        _open(opening, asker, compiled, task, gating, proposal, moment)
    sealed_rows.seal_and_encrypt(opening.requests, asker.protection)
    sealed_rows.seal_and_encrypt(opening.writes, asker.protection)
    return opening


def _open(
    opening: NewRequests,
    asker: Asker,
    compiled: Compiled,
    task: Task,
    gating: ReachedGate,
    proposal: list[HeldWrite],
    moment: Moment,
) -> None:
    if is_patch(task):
        proposal = _named_by_gate(gating.gate, proposal)
    policy = policy_of(compiled, gating, moment.asked_on or moment.state)
    policy_hash = canonical.digest(canonical.dumps(policy))
    shown = present(gating.gate, node=task.node, input=moment.input, state=moment.state, writes=proposal)
    request = ApprovalRequest(
        id=uuid7(),
        **task_columns(asker.id, asker.line, task),
        graph=asker.graph,
        superstep=moment.superstep,
        input_hash=gating.input_hash,
        prepared_from=gating.prepared_from,
        title=pack_json(shown["title"]),
        facts=pack_json(shown["facts"]),
        why=pack_json(why) if (why := _why(gating, policy, moment)) else b"",
        policy=policy,
        policy_hash=policy_hash,
        quorum=policy["quorum"],
        writes=len(proposal),
        opened_at=moment.at,
    )
    opening.requests.append(request)
    opening.reviewers.extend(RequestReviewer(request=request, principal=p) for p in policy["reviewers"])
    opening.writes.extend(
        _stage(asker, compiled, write, gating.gate, shown=shown, policy_hash=policy_hash, moment=moment)
        for write in proposal
    )
    ids = [str(write_id(asker.id, asker.line, task, write.position)) for write in proposal]
    facts = {"request": str(request.id), "writes": ids}
    opening.events.append(NewEvent("request_opened", facts, node=task.node, task=str(task)))


def _why(gating: ReachedGate, policy: Mapping[str, Any], moment: Moment) -> str:
    """Why people are asked, and who changed what decided that it is them."""
    why = gating.why or ""
    changed = moment.unsigned(policy["reads"] or ()) if moment.unsigned is not None else ""
    # A request that is staged anew may say so already.
    return why if changed in why else f"{why}. {changed}".removeprefix(". ")


def _stage(
    asker: Asker,
    compiled: Compiled,
    write: HeldWrite,
    gate: Gate,
    *,
    shown: dict[str, Any],
    policy_hash: str,
    moment: Moment,
) -> PendingWrite:
    task = write.task
    labels: dict[str, Any] = {name: shown[name] for name in ("title", "facts")}
    labels |= shown["writes"][write.position]
    base = pending_writes.Base.read(compiled, moment.state, write.channel, shows=gate.shows)
    return pending_writes.staged(
        write_id(asker.id, asker.line, task, write.position),
        task_columns(asker.id, asker.line, task),
        position=write.position,
        channel=write.channel,
        # A column that lists read: in an encrypted run it holds nothing of the value.
        label=(plain_label(gate, write) if asker.protection.encrypted else labels["label"])[:LONGEST_LABEL],
        value=write.value,
        base=base,
        shown=labels,
        policy_hash=policy_hash,
        superstep=moment.superstep,
        at=moment.at,
        protection=asker.protection,
    )


def policy_of(compiled: Compiled, gating: ReachedGate, state: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The policy that a request is opened under, JSON: a later deployment changes none of it."""
    gate = gating.gate
    reviewers, reads = _reviewers(compiled, gating, state)
    return {
        "gate": gating.guard,
        "reads": reads,
        "reviewers": reviewers,
        "quorum": gate.quorum,
        "reject_quorum": gate.reject_quorum,
        "four_eyes": gate.four_eyes,
        "all_or_nothing": gate.all_or_nothing or gating.all_or_nothing,
        "shows": sorted(gate.shows),
        "reason_required": sorted(name for name, show in gate.writes.items() if show.reason_required),
    }


def _reviewers(
    compiled: Compiled, gating: ReachedGate, state: dict[str, dict[str, Any]]
) -> tuple[list[str], list[str] | None]:
    """Whom the gate asks, and which channels its functions read; None where nobody wrote all of these down."""
    if gating.reviewers is not None:
        return list(gating.reviewers), None if gating.reads is None else list(gating.reads)
    reviewers = reviewers_on(compiled, gating.gate, state)
    if gating.reads is None:
        return reviewers.principals, None
    return reviewers.principals, sorted({*gating.reads, *reviewers.reads})
