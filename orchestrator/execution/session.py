"""One run laid out for work, between the runner and its commits."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from approvals.gates import settlement
from approvals.gates.request_state import RequestState
from approvals.gates.unsigned_changes import Changes, sentence_of, unsigned_changes
from approvals.models import RequestStatus
from checkpoints import lines
from checkpoints.journal.results import Entry
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import ConcurrentUpdate, Head
from checkpoints.memory.replay_shelf import overlay_after
from checkpoints.models.checkpoint import Source
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import is_patch, is_patch_held, undecided_patches
from orchestrator.engine.plan import Frontier, Planned, plan
from orchestrator.engine.reduce import Step
from orchestrator.engine.trace import Landing, is_memory
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.open_superstep import FinishedTask, OpenSuperstep
from orchestrator.execution.replay import Replay

T = TypeVar("T")


@frozen
class SuperstepResult:
    """A superstep all of whose tasks have a result: what they shared, what was planned, what was open before, and what
    came out.
    """

    context: SuperstepContext
    planned: Planned
    before: OpenSuperstep
    kept: Mapping[Task, FinishedTask]
    step: Step
    asks_checkpoint: bool
    took_ms: int


@frozen
class PendingCommit:
    """A superstep's commit on its way: what waits for it, the head before it, and the result that it commits."""

    wait: Callable[[], None]
    before: Head
    worked: SuperstepResult


@dataclass(slots=True)
class Session:
    """One leased run while a slice works on it.

    `entries` are the journal entries of a superstep that was cut off, `asked` the open requests, `retried` the attempts
    of this superstep that were followed by another. `next_plan` is what the last commit planned, so that it is planned
    once; `pending_commit` is that commit while it is on its way. `stops` are nodes that do not start without a yes.
    `replay` knows what was recorded, where nothing outside is done.
    """

    lease: Lease
    graph: Compiled
    head: Head
    input: Any
    entries: dict[Task, Entry] = field(default_factory=dict)
    asked: list[RequestState] = field(default_factory=list)
    retried: list[tuple[Task, TaskOutcome]] = field(default_factory=list)
    next_plan: Planned | None = None
    planned: Planned | None = None
    pending_commit: PendingCommit | None = None
    stops: frozenset[str] = frozenset()
    replay: Replay | None = None
    _unsigned: Changes | None = None

    def unsigned_change(self, reads: Collection[str], *, decides: str) -> str:
        """Return the sentence on who changed what of these channels without a signature; empty where nobody did. It
        reads once a slice, and only where a gate read something: nobody patches or settles what a worker holds.
        """
        if not reads or self.replay is not None:
            return ""
        if self._unsigned is None:
            self._unsigned = unsigned_changes(lines.past(self.lease.id, self.lease.line))
        return sentence_of(self._unsigned, reads, decides=decides)

    def who_chose_reviewers(self, reads: Collection[str]) -> str:
        """Return the sentence on who changed what decided whom a gate asks, as `unsigned_change` does."""
        return self.unsigned_change(reads, decides="whom it asks")

    @property
    def frontier(self) -> Frontier:
        return Frontier.from_json(self.head.payload.frontier)

    def plan_after(self, frontier: Frontier) -> Planned:
        """The superstep that follows this frontier. One that was left open begins again whole, or not at all."""
        return plan(self.graph, frontier, stops=self.stops)

    def stopped_before(self, frontier: Frontier) -> list[str]:
        """The nodes that would start on this frontier if they had a yes, sorted."""
        if not self.stops:
            return []
        targets = [self.graph.edge[id].target for id in frontier.tokens] + [target for target, _ in frontier.sends]
        settled = [one.task.node for one in self.asked if one.request.status == RequestStatus.SETTLED]
        return sorted(self.stops & {*targets, *settled})

    def open_requests(self) -> list[RequestState]:
        """The requests that wait on this line; read anew only where something moved since the last look."""
        if self.replay is not None:
            return []
        if self.lease.moved:
            payload = self.head.payload
            waits = payload.frontier["waiting"] or payload.open
            tasks = self.frontier.gated() | OpenSuperstep.from_json(payload.open).asked if waits else set()
            self.asked = settlement.waiting_requests(self.lease, tasks) if tasks else []
            self.lease.moved = False
        return self.asked

    def overlay_after(self, landings: Sequence[Landing] = ()) -> dict[str, Any]:
        """What the next checkpoint's `open` carries of a replay's own memory: nothing for any other run."""
        if self.replay is None:
            return {}
        overlay = overlay_after(self.head.payload.open.get("overlay", {}), landings)
        return {"overlay": overlay} if overlay else {}

    def has_settled_gate(self) -> bool:
        """Whether a settled gate can be applied."""
        return bool(self.settled_gates())

    def settled_gates(self, after: Frontier | None = None) -> list[RequestState]:
        """The settled gates that can be applied now, or on the frontier `after` the step in hand; not what would land
        again in memory without a yes. While a patch waits only patches are, for what was decided beside it and what
        routers read is to be the state behind it; and while a superstep is in hand, which waits for patches
        too. A patch is applied once each of its gates has decided.
        """
        settled = [one for one in self.open_requests() if one.request.status == RequestStatus.SETTLED]
        if not settled:
            return []
        frontier = after or self.frontier
        patches = is_patch_held(frontier) or (after is None and self.in_hand)
        undecided = undecided_patches(frontier, [one.task for one in settled])
        whole = [one for one in settled if not (is_patch(one.task) and one.task.visit in undecided)]
        return [one for one in whole if (is_patch(one.task) or not patches) and self._may_land(one)]

    def _may_land(self, one: RequestState) -> bool:
        return one.task.node not in self.stops or not any(is_memory(row.channel) for row in one.writes)

    @property
    def in_hand(self) -> bool:
        """Whether a superstep failed, or was cut off after its first intent: it is in hand until it commits."""
        return self.opened or bool(self.entries)

    @property
    def opened(self) -> bool:
        """Whether a superstep is open."""
        return bool(OpenSuperstep.from_json(self.head.payload.open).superstep)

    def advance_to(self, head: Head) -> None:
        """Take this head; requests may have been opened or applied. A superstep that was in hand is over, unless a
        patch was applied before it goes on.
        """
        entries = self.entries if head.source == Source.SETTLEMENT else {}
        self.head, self.entries, self.retried = head, entries, []
        self.planned, self.next_plan = self.next_plan, None
        self.lease.moved = True


def retry_when_log_moved(lease: Lease, act: Callable[[], T]) -> T:
    """Do a fenced act; where the log moved meanwhile, look again, let the act build itself anew, and repeat."""
    while True:
        try:
            return act()
        except ConcurrentUpdate:
            ledger.refresh_lease(lease)
            lease.moved = True
