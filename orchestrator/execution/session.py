"""The session of a slice: one leased run with all that the loop and its commits share."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from approvals.answers.windows import Asking, askings, unasked_writes
from approvals.gates import expired_requests, settlement
from approvals.gates.bound_channels import (
    BoundChannels,
    bound_channels,
    memory_channels,
)
from approvals.gates.expired_requests import ExpiredRequest
from approvals.gates.request_state import RequestState
from approvals.gates.unsigned_changes import Changes, sentence_of, unsigned_changes
from approvals.models import RequestStatus
from checkpoints import lines
from checkpoints.db.clock import read_now
from checkpoints.journal.results import Entry
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import ConcurrentUpdate, Head
from checkpoints.lines import Stretch
from checkpoints.memory.replay_shelf import overlay_after
from checkpoints.models.checkpoint import Source
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.auto import window_by
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.standing_policy import signs_by_itself
from orchestrator.engine.graphs.trace import Landing, is_memory
from orchestrator.engine.step.held_patch import (
    is_patch,
    is_patch_held,
    undecided_patches,
)
from orchestrator.engine.step.plan import Frontier, Planned, plan
from orchestrator.engine.step.reduce import StepResult
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.replay import Replay

T = TypeVar("T")


@frozen
class SuperstepResult:
    """A superstep all of whose tasks have a result: what they shared, what was planned,
    what was open before, and the results.
    """

    context: SuperstepContext
    planned: Planned
    before: OpenSuperstep
    results: Mapping[Task, FinishedTask]
    step: StepResult
    asks_checkpoint: bool
    took_ms: int


@frozen
class PendingCommit:
    """A superstep's commit that was sent: how to wait for its answer, the head before
    it, and the result that it commits.
    """

    wait: Callable[[], None]
    before: Head
    worked: SuperstepResult


@dataclass(slots=True)
class Session:
    """One leased run while a slice works on it.

    `entries` are the journal entries of a superstep that was cut off, `requests` the
    open requests, `expired` those that a deadline has closed, `memory_held` the channels
    of memory that the open ones hold writes to, `retried` the attempts of this
    superstep that were followed by another. `next_plan` is what the last commit
    planned, so that it is planned once; `pending_commit` is that commit while it is on
    its way. `stops` are nodes that do not start without a
    yes. `replay` has the records from which a replay, which has no outside, takes its
    outcomes.
    """

    lease: Lease
    graph: Compiled
    head: Head
    input: Any
    entries: dict[Task, Entry] = field(default_factory=dict)
    requests: list[RequestState] = field(default_factory=list)
    expired: list[ExpiredRequest] = field(default_factory=list)
    memory_held: frozenset[str] = frozenset()
    retried: list[tuple[Task, TaskOutcome]] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set once the tasks of this slice may leave: nothing begins after them."""
    next_plan: Planned | None = None
    planned: Planned | None = None
    pending_commit: PendingCommit | None = None
    stops: frozenset[str] = frozenset()
    replay: Replay | None = None
    _way: Sequence[Stretch] | None = None
    _unsigned: Changes | None = None
    _compared: bool = False
    """Whether a commit has compared the bases of `requests` with the state of the head."""
    _bound: BoundChannels | None = None
    _askings: list[Asking] | None = None
    """When the policies of `requests` are to be asked; None if that was not looked up."""

    def way(self) -> Sequence[Stretch]:
        """Return the way to the current line. Read once a slice, and only if a gate asks
        for it.
        """
        if self._way is None:
            self._way = lines.past(self.lease.id, self.lease.line)
        return self._way

    def unsigned_change(self, reads: Collection[str], decides: str) -> str:
        """Return the sentence on who changed which of these channels without a
        signature; empty if nobody did. It reads once a slice, and only if a gate read
        something: nobody patches or settles what a worker holds.
        """
        # A replay asks nobody, so nothing can decide whom it asks.
        if not reads or self.replay is not None:
            return ""
        if self._unsigned is None:
            self._unsigned = unsigned_changes(self.way())
        return sentence_of(self._unsigned, reads, decides=decides)

    def who_let_act(self, reads: Collection[str]) -> str:
        """Return the sentence on who changed what decided that a node may still act, as
        `unsigned_change` does.
        """
        return self.unsigned_change(reads, decides="that it may still be acted on")

    @property
    def frontier(self) -> Frontier:
        return Frontier.from_json(self.head.payload.frontier)

    def plan_after(self, frontier: Frontier) -> Planned:
        """Return the superstep that follows this frontier. One that was left open
        begins again as a whole, or not at all.
        """
        return plan(self.graph, frontier, stops=self.stops)

    def stopped_before(self, frontier: Frontier) -> list[str]:
        """Return the nodes that would start on this frontier if they had a yes, sorted."""
        if not self.stops:
            return []
        nodes = {self.graph.edge[id].target for id in frontier.tokens}
        nodes.update(task.node for task in frontier.ready_calls())
        nodes.update(target for target, _ in frontier.sends)
        # A settled gate whose writes would land in memory once more waits for a yes
        # too.
        for settled in _with_status(self.requests, RequestStatus.SETTLED):
            nodes.add(settled.task.node)
        return sorted(self.stops & nodes)

    def open_requests(self) -> list[RequestState]:
        """Return the requests that wait on this line; they are read again only if the
        log moved since the last look.
        """
        if self.replay is not None:
            return []
        if self.lease.moved:
            self.requests = []
            self.expired = []
            self.memory_held = frozenset()
            self._compared = False
            self._bound = None
            self._askings = None
            payload = self.head.payload
            # Otherwise nobody can be asked on this line, and the query is saved.
            if payload.frontier["waiting"] or payload.open:
                open_ = OpenSuperstep.from_json(payload.open)
                tasks = self.frontier.gated() | open_.tasks_asked
                if tasks:
                    self.requests = settlement.waiting_requests(self.lease, tasks)
                    self.memory_held = memory_channels(self.requests)
                    self.expired = expired_requests.expired_requests(
                        self.lease, tasks, self.requests
                    )
            self.lease.moved = False
        return self.requests

    def reread_requests(self) -> None:
        """Mark the open requests to be read again at the next look, if commits of this
        slice have relied on them. A run about to pause would wait forever for a request
        whose row is gone, because that adds no line to its log.
        """
        if self._compared:
            self.lease.moved = True

    def requests_bound_to(self, changed: Iterable[str]) -> Sequence[RequestState]:
        """Return the open requests that a step which changes these channels may bring
        back to their reviewers.
        """
        requests = self.open_requests()
        if not (requests and self._compared):
            return requests
        # Listed once for all supersteps until the requests are read again.
        if self._bound is None:
            self._bound = bound_channels(requests, self.graph)
        # Other runs change memory too, and no step of this one shows it.
        return self._bound.requests_bound_to({*changed, *self.memory_held})

    def overlay_after(self, landings: Sequence[Landing] = ()) -> dict[str, Any]:
        """Return what the next checkpoint's `open` carries of a replay's own memory:
        nothing for any other run.
        """
        if self.replay is None:
            return {}
        overlay = overlay_after(self.head.payload.open.get("overlay", {}), landings)
        return {"overlay": overlay} if overlay else {}

    def has_settled_gate(self) -> bool:
        """Return whether a settled gate can be applied."""
        return bool(self.open_requests() and self.settled_gates())

    def settled_gates(self, after: Frontier | None = None) -> list[RequestState]:
        """Return the settled gates that can be applied now, or on the frontier `after`
        the current step; not what would land in memory again without a yes.

        While a patch waits, only patches are applied, because the decisions beside it
        and the routers must see the state after it; likewise while a superstep is in
        hand, which waits for patches too. A patch is applied once each of its gates has
        decided.
        """
        settled = _with_status(self.open_requests(), RequestStatus.SETTLED)
        if not settled:
            return []
        frontier = after or self.frontier
        # On the frontier `after`, the current step is over.
        only_patches = is_patch_held(frontier) or (after is None and self.in_hand)
        undecided = undecided_patches(frontier, [gate.task for gate in settled])
        applicable: list[RequestState] = []
        for gate in settled:
            is_held = only_patches
            if is_patch(gate.task):
                is_held = gate.task.visit in undecided
            if not is_held and self._may_land(gate):
                applicable.append(gate)
        return applicable

    def _may_land(self, gate: RequestState) -> bool:
        """Return whether a settled gate's writes to memory, if any, have their yes."""
        if gate.task.node not in self.stops:
            return True
        return not any(is_memory(row.channel) for row in gate.writes)

    @property
    def in_hand(self) -> bool:
        """Return whether a superstep is in hand: it failed, or was cut off after its
        first intent, and has yet to commit.
        """
        return self.opened or bool(self.entries)

    @property
    def has_expired(self) -> bool:
        """Return whether a deadline has closed a request, with which the run fails or
        which it reopens. What has begun ends first: it must be listed. What an open
        superstep kept is listed, so that one is no hindrance.
        """
        return bool(self.expired) and not self.entries

    @property
    def has_more_to_ask(self) -> bool:
        """Return whether a deadline has closed a request, or a gate's automatic policy
        was not asked about something that waits.
        """
        # Most runs wait for nobody, and then nothing is looked at.
        if self.requests and self.unasked_of_policies():
            return True
        return bool(self.expired) and not self.entries

    def has_policies(self) -> bool:
        """Return whether something may sign by itself: at a gate of this version, or in
        a request that was opened under another.
        """
        if self.graph.has_policies:
            return True
        requests = self.open_requests()
        return any(signs_by_itself(waiting.request.policy) for waiting in requests)

    def unasked_of_policies(self) -> list[RequestState]:
        """Return the open requests about which their policies are to be asked now. A
        replay asks nobody, and while a patch is held the state lacks it. The database's
        clock is asked only if a window is over by the lease's.
        """
        if self._askings is None or self.lease.moved:
            unasked = self.with_unasked_policies()
            # It is looked up once for all supersteps until the requests are read again.
            self._askings = askings(unasked)
        if not self._askings:
            return []
        due = _due(self._askings, self.lease.now())
        return _due(self._askings, self.moment_of(due)) if due else []

    def with_unasked_policies(self) -> list[RequestState]:
        """Return the open requests about which their policies were not asked as they
        are now, including those that people may still decide first.
        """
        if is_patch_held(self.frontier):
            return []
        requests = self.open_requests()
        return [waiting for waiting in requests if unasked_writes(waiting)]

    def moment_of(self, requests: Iterable[RequestState]) -> datetime:
        """Return the moment at which policies are asked in these requests: by the
        database's clock where one of them has a window, which costs a query.
        """
        if any(window_by(waiting.request.policy) for waiting in requests):
            return read_now()
        return datetime.now(UTC)

    @property
    def opened(self) -> bool:
        """Return whether a superstep is open."""
        return bool(OpenSuperstep.from_json(self.head.payload.open).superstep)

    def advance_to(self, head: Head) -> None:
        """Advance to this head. Requests are read again only if its commit may have
        opened or applied one: a signature moves the log, which the next fence notices.
        """
        if _changes_requests(self.head, head):
            self.lease.moved = True
        else:
            self._compared = True
        # A superstep that was in hand is over, unless a patch was applied before it
        # continues.
        if head.source != Source.SETTLEMENT:
            self.entries = {}
        self.head = head
        self.retried = []
        self.planned = self.next_plan
        self.next_plan = None


def _changes_requests(before: Head, after: Head) -> bool:
    """Return whether a commit between these heads may have opened or applied a request."""
    if after.source == Source.SETTLEMENT:
        return True
    if after.payload.open != before.payload.open:
        return True
    waiting_before = before.payload.frontier["waiting"]
    return bool(after.payload.frontier["waiting"] != waiting_before)


def _due(planned: Iterable[Asking], now: datetime) -> list[RequestState]:
    return [asking.state for asking in planned if asking.moment <= now]


def _with_status(requests: Sequence[RequestState], status: str) -> list[RequestState]:
    return [waiting for waiting in requests if waiting.request.status == status]


def retry_when_log_moved(lease: Lease, act: Callable[[], T]) -> T:
    """Return the result of a fenced act. If the log moved in the meantime, the lease is
    refreshed and the act is repeated, which then builds everything from the new rows.
    """
    while True:
        try:
            return act()
        except ConcurrentUpdate:
            ledger.refresh_lease(lease)
            lease.moved = True
