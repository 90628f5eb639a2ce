"""Execution of the tasks of one superstep: threads, timeouts, retries, and the journal
of write and external tasks.

The only place where user code runs. It returns each task's outcome to the loop and
writes nothing but the journal.
"""

import heapq
import itertools
import math
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from approvals.authority import Loss, NotAuthorised
from checkpoints.journal import results as journal
from checkpoints.journal.intents import Intent
from checkpoints.journal.results import Entry
from checkpoints.models.task_result import Outcome, TaskResult
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.errors import AuthorityLost, StaleLease, TamperedRow, WrongKey
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.step.plan import Start
from orchestrator.engine.step.reduce import Output, WriteValue
from orchestrator.execution import inline
from orchestrator.execution.attempt import Attempt, SuperstepContext
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.open_superstep import cure_of
from orchestrator.execution.threads import BoundedPool

LONGEST_PAUSE = 5.0
"""Seconds. For a longer pause between two attempts the worker is given back."""

MOST_AT_ONCE = 32
"""The most attempts at work at once in one superstep: each is a thread, and may hold a
connection. The others wait their turn.
"""

WATCH_SECONDS = 0.25
"""How often a superstep in hand checks whether its lease is lost or its worker drains.
"""


class Draining(Exception):
    """The grace period is over: what still runs is left as in a crash, and the run goes
    back to the queue.
    """


@frozen
class TaskOutcome:
    """How a task ended in this session: done, failed, unknown, later (in `due_in`
    seconds, after `tries`), or held: it did not begin, because of this `loss`.
    """

    outcome: str
    output: Output | None = None
    error: dict[str, Any] | None = None
    attempt: int = 1
    ms: int = 0
    tries: int = 0
    due_in: float = 0.0
    asks_checkpoint: bool = False
    settled: bool = False
    loss: Loss | None = None


class NextAttempt(NamedTuple):
    """An attempt to make: of which task, its number, and how many attempts came before
    it since a person last acted. `node` is what it runs. `recovers`: the one before it
    was cut off, and may have acted.
    """

    start: Start
    node: Node
    number: int
    tries_before: int
    recovers: bool = False


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
    _later: list[tuple[float, int, NextAttempt]] = field(default_factory=list)
    """A heap by due moment; the number in the middle keeps equal moments in order."""
    _count: Any = field(default_factory=itertools.count)
    _results: "queue.SimpleQueue[Attempt]" = field(default_factory=queue.SimpleQueue)
    _look_at: float = math.inf
    """The earliest moment, on the monotonic clock, at which a running attempt may time
    out.
    """
    _drained_at: float | None = None
    _pool: BoundedPool[Attempt] | None = None
    """None until an attempt needs a thread."""

    def run(
        self,
        starts: Sequence[Start],
        entries: Mapping[Task, Entry],
        tries: Mapping[Task, int],
        due: Mapping[Task, float],
    ) -> dict[Task, TaskOutcome]:
        """Execute each of these tasks to its outcome. `due` holds moments (seconds
        since the epoch) before which the next attempt is not made. Raises `StaleLease`
        and `Draining`.
        """
        for start in starts:
            self._plan_first_attempt(start, entries, tries, due)
        try:
            self._begin(self._due_attempts())
            while self._running or self._later:
                self._collect(self._wait_for_attempts())
                self._abandon_late_attempts()
                if self._running or self._later:
                    self._watch()
                self._begin(self._due_attempts())
        except BaseException:
            # All attempts stop counting first, so that no more begin. Keeping evidence
            # comes second, because that may fail.
            ended = [attempt for attempt in self._running.values() if attempt.leave()]
            for attempt in ended:
                attempt.keep()
            raise
        return self.finished

    def _plan_first_attempt(
        self,
        start: Start,
        entries: Mapping[Task, Entry],
        tries: Mapping[Task, int],
        due: Mapping[Task, float],
    ) -> None:
        """Plan this session's first attempt of a task, unless the journal has its
        outcome already.
        """
        task = start.task
        tries_before = tries.get(task, 0)
        number = tries_before + 1
        entry = None
        node = self.context.node_of(task)
        # What the journal holds of a call is not part of its preparation.
        if node.journaled:
            entry = entries.get(task)
        # The journal numbers all attempts; `tries` begins again when a person acts.
        if entry:
            number = entry.attempt + 1
            recorded = self._recorded_outcome(start, entry)
            if recorded:
                self.finished[task] = recorded
                return
        wait = 0.0
        if task in due:
            wait = due[task] - self.lease.now().timestamp()
        # What an atomic attempt did without a result was rolled back.
        is_open = entry is not None and entry.outcome == Outcome.OPEN
        recovers = is_open and not node.atomic
        self._queue(NextAttempt(start, node, number, tries_before, recovers), wait)

    def _queue(self, attempt: NextAttempt, wait: float) -> None:
        """Plan an attempt in `wait` seconds. If the run was woken in the middle of a long
        pause, the task waits for the rest of it.
        """
        if wait > LONGEST_PAUSE:
            self.finished[attempt.start.task] = TaskOutcome(
                "later",
                attempt=attempt.number - 1,
                tries=attempt.tries_before,
                due_in=wait,
            )
            return
        moment = time.monotonic() + wait
        heapq.heappush(self._later, (moment, next(self._count), attempt))

    def _recorded_outcome(self, start: Start, entry: Entry) -> TaskOutcome | None:
        """Return what the journal has of a task: its result, or that it is unknown;
        None if it runs (again).
        """
        if entry.outcome == Outcome.DONE:
            return self._recorded_result(start, entry)
        # After an intent without a result nobody knows whether the effect happened.
        is_safe = self.context.node_of(start.task).safe_again
        lost = entry.outcome == Outcome.OPEN and not is_safe
        if lost or entry.outcome == Outcome.UNKNOWN:
            return lost_outcome(entry)
        # What began was a call with other arguments: under its key nothing else runs.
        is_call = start.task in self.context.calls
        if is_call and entry.outcome == Outcome.OPEN and self._is_changed(start, entry):
            return _changed(start, entry)
        return None

    def _is_changed(self, start: Start, entry: Entry) -> bool:
        return entry.input_hash != self.context.input_hash(start)

    def _recorded_result(self, start: Start, entry: Entry) -> TaskOutcome:
        # A person who settled a task confirmed this very output, whatever its input.
        if not entry.settled and self._is_changed(start, entry):
            return _changed(start, entry)
        return TaskOutcome(
            "done",
            output=Output.from_json(entry.output or {}),
            attempt=entry.attempt,
            ms=entry.took_ms,
            settled=entry.settled,
        )

    def _begin(self, due: Sequence[NextAttempt]) -> None:
        """Start these attempts: the intents of all journaled ones in one commit, then
        the threads.
        """
        if not due:
            return
        written: Mapping[Task, TaskResult] = {}
        if self.graph.has_journaled:
            intents = self._intents(due)
            if intents:
                due, written = self._write_intents(due, intents)
        attempts: list[Attempt] = []
        for planned in due:
            intent = written.get(planned.start.task)
            attempts.append(self._make_attempt(planned, intent))
        if self._may_work_inline(attempts):
            attempts = self._work_inline(attempts)
        if attempts:
            for attempt in attempts:
                self._running[attempt.task] = attempt
            if self._pool is None:
                self._pool = BoundedPool(MOST_AT_ONCE, self._stopped)
            self._pool.put(attempts)

    def _write_intents(
        self, due: Sequence[NextAttempt], intents: Sequence[Intent]
    ) -> tuple[Sequence[NextAttempt], Mapping[Task, TaskResult]]:
        """Write these intents of some attempts. Returns the attempts that may begin,
        and the rows. The others have ended without one: what they would act on no
        longer holds.
        """
        while intents:
            require = self._authority_of(due)
            try:
                return due, journal.write_intents(self.lease, intents, require=require)
            except NotAuthorised as refused:
                due = self._without(due, refused.losses)
                intents = self._intents(due)
        return due, {}

    def _without(
        self, due: Sequence[NextAttempt], losses: Mapping[Task, Loss]
    ) -> list[NextAttempt]:
        """End the tasks that have lost what they act on; return the attempts of the
        others.
        """
        remaining: list[NextAttempt] = []
        for planned in due:
            task = planned.start.task
            if task in losses:
                self.finished[task] = _lost(planned, losses[task])
            else:
                remaining.append(planned)
        return remaining

    def _authority_of(self, due: Sequence[NextAttempt]) -> Callable[[], None] | None:
        """Return what verifies the authority on which these attempts act; None if there
        is nothing to verify. What may have acted already is not stopped: it is
        recovered.
        """
        tasks: list[Task] = []
        for planned in due:
            node = planned.node
            if node.journaled and node.authority and not planned.recovers:
                tasks.append(planned.start.task)
        judge = self.context.judge
        if not tasks or judge is None:
            return None
        waived: dict[Task, WriteValue] = {}
        for task in tasks:
            call = self.context.calls.get(task)
            if call is not None and call.waived:
                waived[task] = WriteValue(CALL, call.args)
        return partial(judge.require, self.lease, tasks, waived)

    def _may_work_inline(self, attempts: Sequence[Attempt]) -> bool:
        """Return whether this thread may make the attempts itself.

        It does not for a run that an earlier worker started without making progress,
        nor beside others at work: those must be watched, and what is stuck here may end
        the process.
        """
        if self._running or self.lease.claims > 1 or not inline.may_be_here():
            return False
        return inline.are_quick(attempts)

    def _work_inline(self, quick: list[Attempt]) -> list[Attempt]:
        """Make these attempts in this thread. Returns those for which there was no
        time. If no further attempt may begin, the rest is queued again.
        """
        deadline = time.monotonic() + inline.LONGEST
        try:
            for position, attempt in enumerate(quick):
                # Before the first one, the loop or `_watch` has just looked.
                if position and self._stopped():
                    self._queue_again(quick[position:])
                    break
                now = time.monotonic()
                if now > deadline:
                    return quick[position:]
                # This thread cannot be interrupted; the heartbeat acts if the node
                # never returns.
                self.heart.busy_until = now + attempt.timeout
                inline.attempt_inline(attempt)
                self._take(attempt)
        finally:
            self.heart.busy_until = math.inf
        return []

    def _make_attempt(self, planned: NextAttempt, intent: TaskResult | None) -> Attempt:
        timeout = self.context.timeout(planned.start.task.node)
        # It cannot be out of time earlier than that, for it has yet to begin.
        self._look_at = min(self._look_at, time.monotonic() + timeout)
        return Attempt(
            self.context,
            planned.start,
            planned.node,
            planned.number,
            planned.tries_before + 1,
            timeout,
            self._results,
            intent,
        )

    def _intents(self, due: Sequence[NextAttempt]) -> list[Intent]:
        intents: list[Intent] = []
        for planned in due:
            start = planned.start
            node = planned.node
            if node.journaled:
                input_hash = self.context.input_hash(start)
                timeout = self.context.timeout(start.task.node)
                intents.append(
                    Intent(start.task, planned.number, node.effect, input_hash, timeout)
                )
        return intents

    def _wait_for_attempts(self) -> list[Attempt]:
        """Return the attempts that have ended, after waiting for at least one or until
        something else has to be looked at.
        """
        now = time.monotonic()
        until = min(now + WATCH_SECONDS, self._look_at)
        if self._later:
            moment, _, attempt = self._later[0]
            # Without room a due attempt waits for another to end, not for its moment.
            if self._has_room(attempt):
                until = min(until, moment)
        try:
            first = self._results.get(timeout=max(0.0, until - now))
        except queue.Empty:
            return []
        return [first, *self._ended_attempts()]

    def _ended_attempts(self) -> list[Attempt]:
        """Return the attempts that have ended by now, without waiting."""
        ended: list[Attempt] = []
        while not self._results.empty():
            ended.append(self._results.get_nowait())
        return ended

    def _collect(self, ended: Sequence[Attempt]) -> None:
        """Record the results of journaled attempts, all in one commit, then take each
        attempt.
        """
        # An attempt that was given up before is no longer running.
        still_running = [
            attempt for attempt in ended if self._running.get(attempt.task) is attempt
        ]
        late = self._write_results(still_running)
        for attempt in still_running:
            del self._running[attempt.task]
            if self._pool is not None:
                self._pool.give_up(attempt)
            if attempt.task in late:
                self._take_recorded(attempt)
            else:
                self._take(attempt)

    def _write_results(self, ended: Sequence[Attempt]) -> set[Task]:
        """Write what these attempts returned to the journal. Returns the tasks that had
        a result there already.
        """
        endings = [
            attempt.ending()
            for attempt in ended
            if attempt.node.journaled and not attempt.recorded
        ]
        if not endings:
            return set()
        try:
            late = journal.write_results(self.lease, endings)
        except (StaleLease, TamperedRow, WrongKey):
            for attempt in ended:
                # The journal has kept the results as evidence.
                attempt.recorded = True
            raise
        return {ending.task for ending in late}

    def _take_recorded(self, attempt: Attempt) -> None:
        """Take what the journal has of an atomic attempt that was given up, or whose
        commit was not acknowledged.
        """
        recorded: TaskOutcome | None = None
        entry = journal.entries(self.lease).get(attempt.task)
        if entry:
            recorded = self._recorded_outcome(attempt.start, entry)
        if recorded is None:
            raise StaleLease(
                "the attempt is over", run=str(self.lease.id), task=str(attempt.task)
            )
        self.finished[attempt.task] = recorded

    def _take(self, attempt: Attempt) -> None:
        """Take the outcome of an attempt that has ended: the task's, or a retry."""
        node = attempt.node
        done = attempt.outcome == Outcome.DONE
        # A node that ran an event loop must not run in the slice's thread.
        inline.note(node, attempt.ms, done=done and not attempt.looped)
        if attempt.refused is not None:
            raise attempt.refused
        if done:
            self.finished[attempt.task] = TaskOutcome(
                "done",
                output=attempt.output,
                attempt=attempt.number,
                ms=attempt.ms,
                asks_checkpoint=attempt.asks_checkpoint,
            )
        elif attempt.outcome == Outcome.UNKNOWN:
            self.finished[attempt.task] = TaskOutcome(
                "unknown", error=attempt.error, attempt=attempt.number, ms=attempt.ms
            )
        else:
            self._retry_or_fail(attempt)

    def _retry_or_fail(self, attempt: Attempt) -> None:
        """Plan the next attempt, near or far, or let the task have failed."""
        task = attempt.task
        retry = attempt.node.retry
        # A run that is to be cancelled makes no further attempts either.
        if (
            retry is None
            or attempt.tries >= retry.attempts
            or self.context.cancelled.is_set()
            or not attempt.retriable(retry)
        ):
            self.finished[task] = TaskOutcome(
                "failed",
                error=attempt.error,
                attempt=attempt.number,
                ms=attempt.ms,
                tries=attempt.tries,
            )
            return
        pause = self.context.pause(retry, attempt.tries, task)
        later = TaskOutcome(
            "later",
            error=attempt.error,
            attempt=attempt.number,
            tries=attempt.tries,
            due_in=pause,
        )
        # The commit of the open superstep lists a far retry; a near one is listed here.
        if pause > LONGEST_PAUSE:
            self.finished[task] = later
            return
        self._queue(
            NextAttempt(attempt.start, attempt.node, attempt.number + 1, attempt.tries),
            pause,
        )
        self.retried.append((task, later))

    def _due_attempts(self) -> list[NextAttempt]:
        """Return the attempts whose time has come, as far as they may begin or wait for
        a thread. Oldest first.
        """
        due: list[NextAttempt] = []
        now = time.monotonic()
        while self._later:
            moment, _, attempt = self._later[0]
            if moment > now or not self._has_room(attempt, len(due)):
                break
            heapq.heappop(self._later)
            due.append(attempt)
        return due

    def _has_room(self, attempt: NextAttempt, others: int = 0) -> bool:
        """Return whether an attempt may be put in the pool. A task that may simply be
        run again may wait there for its turn; any other has to begin at once, because
        its intent is written and a crash before its turn must not make it unknown.
        """
        if self._drained_at is not None:
            return False
        if attempt.node.safe_again:
            return True
        return len(self._running) + others < MOST_AT_ONCE

    def _abandon_late_attempts(self) -> None:
        """Give up attempts that are past their time. Their threads cannot be ended;
        what they still do is late.
        """
        now = time.monotonic()
        if now <= self._look_at:
            return
        # From a copy, because `_collect` takes attempts out.
        for attempt in list(self._running.values()):
            if attempt.begun is None or now <= attempt.begun + attempt.timeout:
                continue
            if attempt.abandon(f"no result within {attempt.timeout:g} s"):
                self._collect([attempt])
        self._look_at = math.inf
        for attempt in self._running.values():
            begun = now if attempt.begun is None else attempt.begun
            self._look_at = min(self._look_at, begun + attempt.timeout)

    def _stopped(self) -> bool:
        """Return whether attempts that have no place in the pool must not begin."""
        return self.heart.lost.is_set() or self.draining()

    def _queue_again(self, attempts: Sequence[Attempt]) -> None:
        """Put attempts that have not begun back into the queue."""
        for attempt in attempts:
            # `tries` counts this attempt, which was not made.
            self._queue(
                NextAttempt(
                    attempt.start, attempt.node, attempt.number, attempt.tries - 1
                ),
                0.0,
            )

    def _watch(self) -> None:
        """Raise `StaleLease` if the lease is lost, and `Draining` once the grace period
        of a draining worker is over; pass a cancellation on to the tasks.
        """
        if self.heart.lost.is_set():
            self.context.cancelled.set()
            raise StaleLease(
                "the lease was lost", run=str(self.lease.id), epoch=self.lease.epoch
            )
        if self.heart.cancelling.is_set():
            # Tasks may notice and leave; what they return is committed as always.
            self.context.cancelled.set()
        if not self.draining():
            return
        self._drained_at = self._drained_at or time.monotonic()
        waiting = self._pool.take_back() if self._pool is not None else []
        for attempt in waiting:
            del self._running[attempt.task]
        self._queue_again(waiting)
        # No new attempt begins: whatever is planned for later is left to the next
        # worker, like everything past the grace period.
        drained_for = time.monotonic() - self._drained_at
        if drained_for > self.context.conf.grace_seconds or not self._running:
            self.context.cancelled.set()
            # An effect that has just ended would be unknown if its result were not
            # recorded.
            self._collect(self._ended_attempts())
            raise Draining


def lost_outcome(entry: Entry) -> TaskOutcome:
    """Return the outcome of a task whose attempt began, and may have acted."""
    what = f"{entry.task} would act, and died before it wrote down that it had"
    error = entry.error or {
        "type": "Lost",
        "message": f"the worker wrote down that {what}",
    }
    return TaskOutcome("unknown", error=error, attempt=entry.attempt)


def _lost(planned: NextAttempt, loss: Loss) -> TaskOutcome:
    """Return the outcome of a task that has lost its authority: people are asked again
    if they had approved it, and no attempt was made before.
    """
    if loss.through and planned.number == 1:
        return TaskOutcome("held", attempt=planned.number, loss=loss)
    message = (
        f"{planned.start.task} acts on what the gate of {loss.gate} approved, and "
        f"nothing was begun: {loss.why}"
    )
    error = {
        "type": AuthorityLost.__name__,
        "code": AuthorityLost.code_of_class,
        "message": message,
        "cure": cure_of(AuthorityLost),
    }
    return TaskOutcome(
        "failed",
        error=error,
        attempt=planned.number,
        tries=planned.tries_before,
    )


def _changed(start: Start, entry: Entry) -> TaskOutcome:
    """Return the outcome of a task whose journal is about another input."""
    error = {
        "type": "InputChanged",
        "message": f"{start.task} has begun or ended with another input",
    }
    return TaskOutcome("unknown", error=error, attempt=entry.attempt)
