"""Runs the tasks of one superstep: threads, timeouts, retries, and the journal of write and external tasks.

The only place where user code runs. It returns each task's outcome to the loop and writes nothing but the journal.
"""

import heapq
import itertools
import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Entry
from checkpoints.models.task_result import Outcome, TaskResult
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import StaleLease, TamperedRow, WrongKey
from orchestrator.engine.frozen import frozen
from orchestrator.engine.plan import Start
from orchestrator.engine.reduce import Output
from orchestrator.execution import inline
from orchestrator.execution.attempt import Attempt, SuperstepContext
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.open_superstep import safe_again
from orchestrator.execution.threads import BoundedPool

LONGEST_PAUSE = 5.0
"""Seconds. A longer pause between two attempts gives the worker back."""

MOST_AT_ONCE = 32
"""Attempts at work in one superstep: each is a thread, and may hold a connection. The others wait their turn."""

WATCH_SECONDS = 0.25
"""How often a superstep in hand looks whether its lease is lost or its worker drains."""


class Draining(Exception):
    """The grace period is over: what runs is left as in a crash, and the run goes back to the queue."""


@frozen
class TaskOutcome:
    """How a task ended in this session: done, failed, unknown, or later (in `due_in` seconds, after `tries`)."""

    outcome: str
    output: Output | None = None
    error: dict[str, Any] | None = None
    attempt: int = 1
    ms: int = 0
    tries: int = 0
    due_in: float = 0.0
    asks_checkpoint: bool = False
    settled: bool = False


Next = tuple[Start, int, int]
"""An attempt to make: of what, its number, and how many were made before since a person last acted."""


@dataclass(slots=True)
class Executor:
    """Executes the tasks of one superstep in one session."""

    lease: Lease
    graph: Compiled
    context: SuperstepContext
    heart: Heartbeat
    draining: Callable[[], bool]
    finished: dict[Task, TaskOutcome] = field(default_factory=dict)
    retried: list[tuple[Task, TaskOutcome]] = field(default_factory=list)
    _running: dict[Task, Attempt] = field(default_factory=dict)
    _later: list[tuple[float, int, Next]] = field(default_factory=list)
    _count: Any = field(default_factory=itertools.count)
    _results: "queue.SimpleQueue[Attempt]" = field(default_factory=queue.SimpleQueue)
    _look_at: float = math.inf
    _drained_at: float | None = None
    _pool: BoundedPool[Attempt] = field(init=False)

    def __post_init__(self) -> None:
        self._pool = BoundedPool(MOST_AT_ONCE, self._stopped)

    def run(
        self,
        starts: Sequence[Start],
        entries: Mapping[Task, Entry],
        tries: Mapping[Task, int],
        due: Mapping[Task, float],
    ) -> dict[Task, TaskOutcome]:
        """Execute each of these tasks to its outcome. `due` (seconds since the epoch) are moments before which the next
        attempt is not made. Raises `StaleLease` and `Draining`.
        """
        for start in starts:
            entry, tried = entries.get(start.task), tries.get(start.task, 0)
            known = self._known(start, entry) if entry else None
            if known:
                self.finished[start.task] = known
            else:
                wait = due[start.task] - self.lease.now().timestamp() if start.task in due else 0.0
                self._queue((start, (entry.attempt if entry else tried) + 1, tried), wait)
        try:
            return self._sit()
        except BaseException:
            # First nobody begins any more; only then what may fail: to keep evidence.
            ended = [one for one in self._running.values() if one.leave()]
            for one in ended:
                one.keep()
            raise

    def _queue(self, attempt: Next, wait: float) -> None:
        """Plan an attempt in `wait` seconds. A long pause that a notification cut short goes on."""
        start, number, tried = attempt
        if wait > LONGEST_PAUSE:
            self.finished[start.task] = TaskOutcome("later", attempt=number - 1, tries=tried, due_in=wait)
        else:
            heapq.heappush(self._later, (time.monotonic() + wait, next(self._count), attempt))

    def _sit(self) -> dict[Task, TaskOutcome]:
        self._begin(self._due())
        while self._running or self._later:
            self._collect(self._wait())
            self._time_out()
            if self._running or self._later:
                self._watch()
            self._begin(self._due())
        return self.finished

    def _known(self, start: Start, entry: Entry) -> TaskOutcome | None:
        """What the journal says of a task: its result, that it is unknown, or (None) that it runs."""
        if entry.outcome == Outcome.DONE:
            # Where a person settled it, he has said that this output is the one.
            if not entry.settled and entry.input_hash != self.context.input_hash(start):
                changed = {"type": "InputChanged", "message": f"{start.task} has a recorded result for another input"}
                return TaskOutcome("unknown", error=changed, attempt=entry.attempt)
            output = Output.from_json(entry.output or {})
            return TaskOutcome("done", output=output, attempt=entry.attempt, ms=entry.took_ms, settled=entry.settled)
        lost = entry.outcome == Outcome.OPEN and not safe_again(self.graph, start.task)
        if lost or entry.outcome == Outcome.UNKNOWN:
            what = f"{start.task} would act, and died before it wrote down that it had"
            error = entry.error or {"type": "Lost", "message": f"the worker wrote down that {what}"}
            return TaskOutcome("unknown", error=error, attempt=entry.attempt)
        return None

    def _begin(self, begin: Sequence[Next]) -> None:
        """Start these attempts: the intents of all journaled ones in one commit, then the threads. Of a run that
        somebody began before and did not get on with, nothing is done here.
        """
        if not begin:
            return
        intents = self._intents(begin)
        written = journal.write_intents(self.lease, intents) if intents else {}
        made = [self._attempt(start, number, tried + 1, written.get(start.task)) for start, number, tried in begin]
        # Nor beside others at work: somebody must watch them, and what is stuck here may end the process.
        alone = not self._running and self.lease.claims <= 1 and inline.may_be_here()
        if alone and all(inline.is_quick(self.graph.nodes[one.task.node]) for one in made):
            made = self._made_here(made)
        if made:
            self._running.update((one.task, one) for one in made)
            self._pool.put(made)

    def _made_here(self, quick: list[Attempt]) -> list[Attempt]:
        """Make these attempts. Returns those that there was no time for; when no more may begin, they wait."""
        until = time.monotonic() + inline.LONGEST
        try:
            for n, one in enumerate(quick):
                if n and self._stopped():
                    self._put_off(quick[n:])
                    break
                if (now := time.monotonic()) > until:
                    return quick[n:]
                self.heart.busy_until = now + one.timeout
                inline.attempt_inline(one)
                self._take(one)
        finally:
            self.heart.busy_until = math.inf
        return []

    def _attempt(self, start: Start, number: int, tries: int, intent: TaskResult | None) -> Attempt:
        timeout = self.context.timeout(start.task.node)
        # None is out of time earlier, for it has yet to begin.
        self._look_at = min(self._look_at, time.monotonic() + timeout)
        return Attempt(self.context, start, number, tries, timeout, self._results, intent)

    def _intents(self, begin: Sequence[Next]) -> list[Intent]:
        return [
            Intent(
                start.task,
                number,
                self.graph.nodes[start.task.node].effect,
                self.context.input_hash(start),
                self.context.timeout(start.task.node),
            )
            for start, number, _ in begin
            if self.graph.nodes[start.task.node].journaled
        ]

    def _wait(self) -> list[Attempt]:
        """The attempts that have ended, after waiting for at least one or for the next thing to look at."""
        now = time.monotonic()
        until = min(now + WATCH_SECONDS, self._look_at)
        if self._later and self._has_room(self._later[0][2]):
            until = min(until, self._later[0][0])
        try:
            return [self._results.get(timeout=max(0.0, until - now)), *self._ready()]
        except queue.Empty:
            return []

    def _ready(self) -> list[Attempt]:
        ended: list[Attempt] = []
        while not self._results.empty():
            ended.append(self._results.get_nowait())
        return ended

    def _collect(self, ended: Sequence[Attempt]) -> None:
        """Record what journaled attempts returned, all in one commit, then take each."""
        mine = [one for one in ended if self._running.get(one.task) is one]
        endings = [one.ending() for one in mine if self.graph.nodes[one.task.node].journaled and not one.recorded]
        try:
            late = {ending.task for ending in journal.write_results(self.lease, endings)} if endings else set()
        except (StaleLease, TamperedRow, WrongKey):
            for one in mine:
                one.recorded = True  # as evidence
            raise
        for one in mine:
            del self._running[one.task]
            self._pool.give_up(one)
            if one.task in late:
                self._take_recorded(one)
            else:
                self._take(one)

    def _take_recorded(self, one: Attempt) -> None:
        """The journal has the result of an atomic attempt that was given up, or whose commit was not acknowledged."""
        entry = journal.entries(self.lease).get(one.task)
        known = self._known(one.start, entry) if entry else None
        if known is None:
            raise StaleLease("the attempt is over", run=str(self.lease.id), task=str(one.task))
        self.finished[one.task] = known

    def _take(self, one: Attempt) -> None:
        done = one.outcome == Outcome.DONE and not one.looped
        inline.note(self.graph.nodes[one.task.node], one.ms, done=done)
        if one.refused is not None:
            raise one.refused
        if one.outcome == Outcome.DONE:
            asks = one.asks_checkpoint
            self.finished[one.task] = TaskOutcome("done", one.output, None, one.number, one.ms, 0, 0.0, asks)
        elif one.outcome == Outcome.UNKNOWN:
            self.finished[one.task] = TaskOutcome("unknown", error=one.error, attempt=one.number, ms=one.ms)
        else:
            self._failed(one)

    def _failed(self, one: Attempt) -> None:
        """Plan the next attempt, near or far; or let the task have failed."""
        retry = self.graph.nodes[one.task.node].retry
        over = retry is None or one.tries >= retry.attempts or self.context.cancelled.is_set()
        if retry is None or over or not one.retriable(retry):
            self.finished[one.task] = TaskOutcome("failed", None, one.error, one.number, one.ms, one.tries)
            return
        pause = self.context.pause(retry, one.tries, one.task)
        later = TaskOutcome("later", error=one.error, attempt=one.number, tries=one.tries, due_in=pause)
        if pause > LONGEST_PAUSE:
            self.finished[one.task] = later
        else:
            self._queue((one.start, one.number + 1, one.tries), pause)
            self.retried.append((one.task, later))

    def _due(self) -> list[Next]:
        """The attempts whose time has come, as far as they may begin or wait for a thread. Oldest first."""
        due: list[Next] = []
        now = time.monotonic()
        while self._later and self._later[0][0] <= now and self._has_room(self._later[0][2], len(due)):
            due.append(heapq.heappop(self._later)[2])
        return due

    def _has_room(self, attempt: Next, others: int = 0) -> bool:
        """Whether an attempt may be given to the shift. What may simply be made again may wait there for its turn; any
        other begins at once, for its intent is written and it must not be unknown after a crash that came before.
        """
        if self._drained_at is not None:
            return False
        return safe_again(self.graph, attempt[0].task) or len(self._running) + others < MOST_AT_ONCE

    def _time_out(self) -> None:
        """Give up attempts that are past their time. Their threads cannot be ended; what they still do is late."""
        now = time.monotonic()
        if now <= self._look_at:
            return
        for one in list(self._running.values()):
            over = one.begun is not None and now > one.begun + one.timeout
            if over and one.abandon(f"no result within {one.timeout:g} s"):
                self._collect([one])
        ends = [(now if one.begun is None else one.begun) + one.timeout for one in self._running.values()]
        self._look_at = min(ends, default=math.inf)

    def _stopped(self) -> bool:
        """Whether no attempt may begin any more that has no place yet."""
        return self.heart.lost.is_set() or self.draining()

    def _put_off(self, attempts: Sequence[Attempt]) -> None:
        """These have not begun."""
        for one in attempts:
            self._queue((one.start, one.number, one.tries - 1), 0.0)

    def _watch(self) -> None:
        if self.heart.lost.is_set():
            self.context.cancelled.set()
            raise StaleLease("the lease was lost", run=str(self.lease.id), epoch=self.lease.epoch)
        if self.heart.cancelling.is_set():
            # Tasks may look and leave; what they return is committed like any other's.
            self.context.cancelled.set()
        if not self.draining():
            return
        self._drained_at = self._drained_at or time.monotonic()
        back = self._pool.take_back()
        for one in back:
            del self._running[one.task]
        self._put_off(back)
        # No new attempt: what was planned for later is for the next worker, like everything past the grace period.
        if time.monotonic() - self._drained_at > self.context.conf.grace_seconds or not self._running:
            self.context.cancelled.set()
            self._collect(self._ready())
            raise Draining
