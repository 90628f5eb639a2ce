"""Runs the tasks of one superstep: threads, timeouts, retries, and the journal of write and external tasks.

The only place where user code runs. It gives each task's finish to the runner and writes nothing but the journal.
"""

import heapq
import itertools
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkpoints import journal
from checkpoints.conf import conf
from checkpoints.journal import Entry, Intent
from checkpoints.leases import Hold
from checkpoints.models.task_result import Outcome
from orchestrator import attempt
from orchestrator.attempt import Attempt, Setting
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import StaleLease, TamperedRow, WrongKey
from orchestrator.engine.frozen import frozen
from orchestrator.engine.plan import Start
from orchestrator.engine.reduce import Output
from orchestrator.heartbeat import Heartbeat
from orchestrator.opened import safe_again

LONGEST_PAUSE = 5.0
"""Seconds. A longer pause between two attempts gives the worker back."""

MOST_AT_ONCE = 32
"""Attempts under way in one superstep: each is a thread, and may hold a connection. The others wait their turn."""

WATCH_SECONDS = 0.25
"""How often a superstep in hand looks whether its lease is lost or its worker drains."""


class Drained(Exception):
    """The grace period is over: what runs is left as in a crash, and the run goes back to the queue."""


@frozen
class Finish:
    """How a task came out of this sitting: done, failed, unknown, or later (in `due_in` seconds, after `tries`)."""

    outcome: str
    output: Output | None = None
    error: dict[str, Any] | None = None
    attempt: int = 1
    ms: int = 0
    tries: int = 0
    due_in: float = 0.0
    asks_checkpoint: bool = False
    settled: bool = False


@dataclass(slots=True)
class _Running:
    start: Start
    attempt: int
    tries: int
    ends_by: float
    thread: Attempt


@dataclass(slots=True)
class Executor:
    """One superstep's sitting."""

    hold: Hold
    graph: Compiled
    setting: Setting
    heart: Heartbeat
    draining: Callable[[], bool]
    finished: dict[Task, Finish] = field(default_factory=dict)
    retried: list[tuple[Task, Finish]] = field(default_factory=list)
    _running: dict[Task, _Running] = field(default_factory=dict)
    _written: set[tuple[Task, int]] = field(default_factory=set)
    _later: list[tuple[float, int, Start, int, int]] = field(default_factory=list)
    _count: Any = field(default_factory=itertools.count)
    _results: "queue.SimpleQueue[Attempt]" = field(default_factory=queue.SimpleQueue)
    _drained_at: float | None = None

    def run(
        self,
        starts: Sequence[Start],
        entries: Mapping[Task, Entry],
        tries: Mapping[Task, int],
        due: Mapping[Task, float],
    ) -> dict[Task, Finish]:
        """Bring each of these tasks to a finish. `due` (seconds since the epoch) are moments before which the next
        attempt is not made. Raises `StaleLease` and `Drained`.
        """
        for start in starts:
            entry, tried = entries.get(start.task), tries.get(start.task, 0)
            known = self._known(start, entry) if entry else None
            if known:
                self.finished[start.task] = known
            else:
                self._queue(
                    start,
                    (entry.attempt if entry else tried) + 1,
                    tried,
                    due.get(start.task, 0.0) - self.hold.now().timestamp(),
                )
        try:
            return self._sit()
        except BaseException:
            for running in self._running.values():
                running.thread.leave()
            raise

    def _queue(self, start: Start, number: int, tried: int, wait: float) -> None:
        """Let an attempt be made in `wait` seconds; a long pause that a wake cut short goes on."""
        if wait > LONGEST_PAUSE:
            self.finished[start.task] = Finish("later", attempt=number - 1, tries=tried, due_in=wait)
        else:
            heapq.heappush(self._later, (time.monotonic() + wait, next(self._count), start, number, tried))

    def _sit(self) -> dict[Task, Finish]:
        self._begin(self._due())
        while self._running or self._later:
            self._watch()
            self._collect(self._wait())
            self._time_out()
            self._begin(self._due())
        return self.finished

    def _known(self, start: Start, entry: Entry) -> Finish | None:
        """What the journal says of a task: its result, that it is unknown, or (None) that it runs."""
        if entry.outcome == Outcome.DONE:
            # Where a person settled it, he has said that this output is the one.
            if not entry.settled and entry.input_hash != self.setting.input_hash(start):
                return Finish("unknown", error=_changed(start.task), attempt=entry.attempt)
            output = Output.from_json(entry.output or {})
            return Finish("done", output=output, attempt=entry.attempt, ms=entry.took_ms, settled=entry.settled)
        lost = entry.outcome == Outcome.OPEN and not safe_again(self.graph, start.task)
        if lost or entry.outcome == Outcome.UNKNOWN:
            return Finish("unknown", error=entry.error or _lost(start.task), attempt=entry.attempt)
        return None

    def _begin(self, begin: Sequence[tuple[Start, int, int]]) -> None:
        """Start these attempts: the intents of all journaled ones in one commit, then the threads."""
        if not begin:
            return
        intents = self._intents(begin)
        if intents:
            journal.begin(self.hold, intents)
            self._written.update((intent.task, intent.attempt) for intent in intents)
        for start, number, tries in begin:
            timeout = self._timeout(start.task)
            thread = attempt.launch(self.setting, start, number, timeout=timeout, results=self._results)
            self._running[start.task] = _Running(start, number, tries + 1, time.monotonic() + timeout, thread)

    def _intents(self, begin: Sequence[tuple[Start, int, int]]) -> list[Intent]:
        """The intents to write now: of what begins; and, with the first, of all that waits for its turn and may simply
        be made again. Other tasks must not be unknown after a crash that came before they began.
        """
        wanted = [(start, number) for start, number, _ in begin if self._unwritten(start.task, number)]
        if wanted and not self._written:
            now = time.monotonic()
            wanted += [
                (start, number)
                for at, _, start, number, _ in self._later
                if at <= now and self._unwritten(start.task, number) and safe_again(self.graph, start.task)
            ]
        return [
            Intent(
                start.task,
                number,
                self.graph.nodes[start.task.node].effect,
                self.setting.input_hash(start),
                self._timeout(start.task),
            )
            for start, number in wanted
        ]

    def _unwritten(self, task: Task, number: int) -> bool:
        return self.graph.nodes[task.node].journaled and (task, number) not in self._written

    def _timeout(self, task: Task) -> float:
        timeout = self.graph.nodes[task.node].timeout
        return float(timeout) if timeout is not None else conf().node_timeout

    def _wait(self) -> list[Attempt]:
        """The attempts that have ended, after waiting for at least one or for the next thing to look at."""
        later = [one[0] for one in self._later[:1]] if len(self._running) < MOST_AT_ONCE else []
        moments = [r.ends_by for r in self._running.values()] + later
        pause = max(0.0, min([*moments, time.monotonic() + WATCH_SECONDS]) - time.monotonic())
        try:
            return [self._results.get(timeout=pause), *self._ready()]
        except queue.Empty:
            return []

    def _ready(self) -> list[Attempt]:
        ended: list[Attempt] = []
        while not self._results.empty():
            ended.append(self._results.get_nowait())
        return ended

    def _collect(self, ended: Sequence[Attempt]) -> None:
        """Record what journaled attempts returned, all in one commit, then take each."""
        mine = [one for one in ended if self._is_current(one)]
        endings = [one.ending() for one in mine if self.graph.nodes[one.task.node].journaled and not one.recorded]
        try:
            late = {ending.task for ending in journal.record(self.hold, endings)} if endings else set()
        except (StaleLease, TamperedRow, WrongKey):
            for one in mine:
                one.recorded = True  # as evidence
            raise
        for one in mine:
            running = self._running.pop(one.task)
            if one.task in late:
                self._take_recorded(running)
            else:
                self._take(running, one)

    def _take_recorded(self, running: _Running) -> None:
        """An atomic attempt that was given up, or whose commit was not acknowledged, had its result: the journal
        knows.
        """
        entry = journal.entries(self.hold).get(running.start.task)
        known = self._known(running.start, entry) if entry else None
        if known is None:
            raise StaleLease("the attempt is over", run=str(self.hold.id), task=str(running.start.task))
        self.finished[running.start.task] = known

    def _is_current(self, one: Attempt) -> bool:
        running = self._running.get(one.task)
        return running is not None and running.thread is one

    def _take(self, running: _Running, one: Attempt) -> None:
        if one.refused is not None:
            raise one.refused
        if one.outcome == Outcome.DONE:
            self.finished[one.task] = Finish(
                "done", output=one.output, attempt=one.number, ms=one.ms, asks_checkpoint=one.asks_checkpoint
            )
        elif one.outcome == Outcome.UNKNOWN:
            self.finished[one.task] = Finish("unknown", error=one.error, attempt=one.number, ms=one.ms)
        else:
            self._failed(running, one)

    def _failed(self, running: _Running, one: Attempt) -> None:
        """Plan the next attempt, near or far; or let the task have failed."""
        retry = self.graph.nodes[one.task.node].retry
        over = retry is None or running.tries >= retry.attempts or self.setting.cancelled.is_set()
        if retry is None or over or not one.retriable(retry):
            self.finished[one.task] = Finish(
                "failed", error=one.error, attempt=one.number, ms=one.ms, tries=running.tries
            )
            return
        pause = self.setting.pause(retry, running.tries, one.task)
        if pause > LONGEST_PAUSE:
            self.finished[one.task] = Finish(
                "later", error=one.error, attempt=one.number, tries=running.tries, due_in=pause
            )
        else:
            again = (time.monotonic() + pause, next(self._count), running.start, one.number + 1, running.tries)
            heapq.heappush(self._later, again)
            planned = Finish("later", error=one.error, attempt=one.number, due_in=pause)
            self.retried.append((one.task, planned))

    def _due(self) -> list[tuple[Start, int, int]]:
        due: list[tuple[Start, int, int]] = []
        room = MOST_AT_ONCE - len(self._running) if self._drained_at is None else 0
        while self._later and self._later[0][0] <= time.monotonic() and len(due) < room:
            _, _, start, number, tries = heapq.heappop(self._later)
            due.append((start, number, tries))
        return due

    def _time_out(self) -> None:
        """Give up attempts that are past their time. Their threads cannot be ended; what they still do is late."""
        for running in [r for r in self._running.values() if time.monotonic() > r.ends_by]:
            one = running.thread
            if one.abandon(f"no result within {self._timeout(one.task):g} s"):
                self._collect([one])

    def _watch(self) -> None:
        if self.heart.lost.is_set():
            self.setting.cancelled.set()
            raise StaleLease("the lease was lost", run=str(self.hold.id), epoch=self.hold.epoch)
        if self.heart.cancelling.is_set():
            # Tasks may look and leave; what they return is committed like any other's.
            self.setting.cancelled.set()
        if not self.draining():
            return
        self._drained_at = self._drained_at or time.monotonic()
        # No new attempt: what was planned for later is for the next worker, like everything past the grace period.
        if time.monotonic() - self._drained_at > conf().grace_seconds or not self._running:
            self.setting.cancelled.set()
            self._collect(self._ready())
            raise Drained


def _lost(task: Task) -> dict[str, Any]:
    return {
        "type": "Lost",
        "message": f"the worker wrote down that {task} would act, and died before it wrote down that it had",
    }


def _changed(task: Task) -> dict[str, Any]:
    return {"type": "InputChanged", "message": f"{task} has a recorded result for another input"}
