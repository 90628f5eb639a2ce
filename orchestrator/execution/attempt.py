"""One attempt of one task, in a thread of its own. User code runs here; its result or its error is recorded."""

import asyncio
import copy
import inspect
import queue
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.db import OperationalError, connections

from checkpoints.conf import Conf, conf
from checkpoints.journal import results as journal
from checkpoints.journal.results import Ending
from checkpoints.models.task_result import Outcome, TaskResult
from checkpoints.queue.leases import Lease
from orchestrator.engine import Retry, Task, canonical
from orchestrator.engine.compile import Compiled
from orchestrator.engine.context import Context
from orchestrator.engine.errors import CountersignError, TamperedUpload, text_of
from orchestrator.engine.memory import Memory
from orchestrator.engine.notes import Notes
from orchestrator.engine.output import Output, output_of, require_proposal
from orchestrator.engine.plan import Start
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.memory import open_memory
from orchestrator.execution.secrets import mask_secrets, writable
from orchestrator.logging import masked_logger

ATOMIC_TRIES = 3
"""How often an atomic attempt is made again after a deadlock or serialisation failure, as if it had not run."""

LONGEST_TEXT = 20_000
"""Characters kept of an error's message, and of its traceback."""

_FIXED = frozenset({type(None), bool, int, float, str})
"""Types of payloads that nobody can change."""


@dataclass(slots=True)
class SuperstepContext:
    """What all tasks of one superstep share: they read the same snapshot. `starts` are all of its tasks."""

    lease: Lease
    graph: Compiled
    state: dict[str, dict[str, Any]]
    input: Any
    heart: Heartbeat
    starts: Sequence[Start] = ()
    memory_of: Callable[[Task], Memory] | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    conf: Conf = field(default_factory=conf)
    _seen: dict[str, bytes] = field(default_factory=dict)
    _views: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def input_hash(self, start: Start) -> str:
        """Hash of what the task sees: run's input, its payload, the channels that it reads (all, if it names none)."""
        node = start.task.node
        seen = self._seen.get(node)
        if seen is None:
            reads = self.graph.nodes[node].reads
            values = {**self.state["scratch"], **self.state["artifacts"]}
            seen = canonical.encode(values if reads is None else {name: values[name] for name in reads})
            self._seen[node] = seen
        begin = canonical.encode([self.lease.input_hash, start.payload])
        return self.lease.protection.digest(b"%b,%b]" % (begin[:-1], seen))

    def view(self, node: str) -> Any:
        """The state as this node sees it; a fresh instance."""
        make = self._views.get(node)
        if make is None:
            make = self._views[node] = self.graph.viewer(self.state, node)
        return make()

    def timeout(self, node: str) -> float:
        """Seconds that one attempt of this node may take."""
        own = self.graph.nodes[node].timeout
        return self.conf.node_timeout if own is None else float(own)

    def pause(self, retry: Retry, tries: int, task: Task) -> float:
        """Seconds before the next attempt, after `tries` of them."""
        pause = float(retry.backoff) * float(retry.factor) ** (tries - 1)
        spread = random.uniform(-retry.jitter, retry.jitter)  # noqa: S311 - spreads load, hides nothing
        return pause * (1 + spread)


@dataclass(slots=True, eq=False)
class Attempt:
    """How one attempt came out. Written by its thread until it puts itself on `results`, then read by the executor.

    `tries` counts it and those before it that no person came between; `begun` by the monotonic clock, None while no
    thread has it yet; `looped` where it ran an event loop in its thread.
    """

    context: SuperstepContext
    start: Start
    number: int
    tries: int
    timeout: float
    results: "queue.SimpleQueue[Attempt]"
    intent: TaskResult | None = None
    begun: float | None = None
    deadline: float | None = None
    outcome: str = Outcome.OPEN
    output: Output | None = None
    error: dict[str, Any] | None = None
    ms: int = 0
    task: Task = field(init=False)
    recorded: bool = False
    asks_checkpoint: bool = False
    looped: bool = False
    _raised: BaseException | None = None
    _given_up: bool = False
    _memory: Memory | None = None
    _notes: Notes = field(default_factory=Notes)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.task = self.start.task

    @property
    def name(self) -> str:
        return str(self.task)

    @property
    def refused(self) -> CountersignError | None:
        """Why what the task read cannot be trusted, whatever the node made of that: what the run recorded of memory, or
        an uploaded file.
        """
        if isinstance(self._raised, TamperedUpload):
            return self._raised
        return self._memory.shelf.refused if self._memory else None

    @property
    def interrupted(self) -> KeyboardInterrupt | None:
        """What meant the process, not the node."""
        return self._raised if isinstance(self._raised, KeyboardInterrupt) else None

    def ending(self) -> Ending:
        """For the journal."""
        output = self.output.to_json() if self.output else None
        over = not self._given_up
        return Ending(self.task, self.number, self.outcome, output, self.error, self.ms, over, self.intent)

    def retriable(self, retry: Retry) -> bool:
        """Whether `retry` covers the error, and no thread of this attempt can still be at work."""
        node = self.context.graph.nodes[self.task.node]
        if self._given_up and node.atomic:
            return False
        return self._raised is not None and retry.covers(self._raised)

    def abandon(self, why: str) -> bool:
        """Give the attempt up: it is past its time. False where it has just ended by itself."""
        with self._lock:
            if self.outcome != Outcome.OPEN:
                return False
            self._given_up = True
            self._broke(TimeoutError(why))
            return True

    def leave(self) -> bool:
        """Stop waiting for it: a result that still comes is evidence. Returns whether one has come already."""
        with self._lock:
            ended = self.outcome != Outcome.OPEN and not self._given_up
            self._given_up = True
        return ended and not self.recorded

    def keep(self) -> None:
        """Store its late result as evidence."""
        self._late(self.output, self._raised)

    def work(self) -> None:
        """The body of the thread."""
        with self._lock:
            if self._given_up:
                return
            self.begun = begun = time.monotonic()
            self.deadline = time.time() + self.timeout
        output: Output | None = None
        raised: BaseException | None = None
        try:
            output = self._call()
        except BaseException as error:
            raised = error
        try:
            self._end(output, raised, int((time.monotonic() - begun) * 1000))
        finally:
            _forget_connections()

    def _end(self, output: Output | None, raised: BaseException | None, ms: int) -> None:
        with self._lock:
            self.ms = ms
            if not self._given_up:
                self.output = output
                self.outcome = Outcome.DONE if output is not None else self.outcome
                if raised is not None:
                    self._broke(raised)
                self.results.put(self)
                return
        # Evidence must not be lost in a transaction that the node left open.
        _forget_connections()
        self._late(output, raised)

    def _late(self, output: Output | None, raised: BaseException | None) -> None:
        """Given up, and ended after all: evidence for whoever settles, never applied by itself."""
        node, lease = self.context.graph.nodes[self.task.node], self.context.lease
        if not node.journaled or node.atomic:
            return
        error = _described(raised) if raised else None
        ending = Ending(self.task, self.number, Outcome.DONE, output.to_json() if output else None, error, self.ms)
        journal.keep_late_results(lease, [ending])

    def _broke(self, error: BaseException) -> None:
        """Record an error, and what it says of the effect."""
        node = self.context.graph.nodes[self.task.node]
        self._raised = error
        self.error = _described(error)
        nothing_happened = not self._given_up and node.says_not_done(error)
        if node.safe_again:
            self.outcome = Outcome.NOT_DONE if node.idempotent and nothing_happened else Outcome.FAILED
        else:
            self.outcome = Outcome.NOT_DONE if nothing_happened else Outcome.UNKNOWN

    def _call(self) -> Output:
        if not self.context.graph.nodes[self.task.node].atomic:
            return self._returned()
        output = self._atomically()
        self.recorded = True
        return output

    def _atomically(self) -> Output:
        kept: list[Output] = []

        def once() -> dict[str, Any]:
            kept.append(self._returned())
            return kept[-1].to_json()

        for tries in range(1, ATOMIC_TRIES + 1):
            try:
                journal.run_atomically(self.context.lease, self.task, self.number, once)
                break
            except OperationalError:
                connections.close_all()
                if tries == ATOMIC_TRIES:
                    raise
        return kept[-1]

    def _returned(self) -> Output:
        """Call the node, and check and stage what it returned."""
        context, node = self.context, self.context.graph.nodes[self.task.node]
        state = context.view(node.name)
        # A try that was rolled back has wished for nothing.
        self._memory, self.asks_checkpoint = None, False
        self._notes = Notes()
        returned = node.fn(state, self._context())
        if inspect.iscoroutine(returned):
            self.looped = True
            returned = asyncio.run(returned)
        output = _labelled(output_of(context.graph, node.name, returned, limit=context.conf.max_value_bytes))
        output = self._notes.onto(self._memory.onto(output) if self._memory else output)
        if not output.writes:
            require_proposal(node, self.task)
        return _masked(output, context.conf.secrets) if context.conf.secrets else output

    def _context(self) -> Context:
        lease, context, payload = self.context.lease, self.context, self.start.payload
        return Context(
            run_id=lease.id,
            key=lease.key,
            line=lease.line,
            task=self.task,
            attempt=self.number,
            read_input=lambda: context.graph.input_for(context.input),
            # A copy, for the frontier keeps this very object.
            payload=payload if type(payload) in _FIXED else copy.deepcopy(payload),
            error=self.start.error,
            open_log=lambda: masked_logger("countersign.node", run=lease.key, task=self.name),
            deadline=self.deadline,
            secrets=context.conf.secrets,
            cancelled=context.cancelled.is_set,
            report=self._report,
            checkpoint=self._ask_checkpoint,
            memory=self._remember,
            notes=self._notes,
        )

    def _report(self, done: int, total: int, note: str) -> None:
        content = str(mask_secrets(writable(str(note)), self.context.conf.secrets))[:200]
        self.context.heart.report({"task": str(self.task), "done": done, "total": total, "note": content})

    def _remember(self) -> Memory:
        if self._memory is None:
            own = self.context.memory_of
            self._memory = own(self.task) if own else open_memory(self.context.lease, self.context.graph, self.task)
        return self._memory

    def _ask_checkpoint(self) -> None:
        self.asks_checkpoint = True


def _forget_connections() -> None:
    """Close this thread's connections and forget them: the next node in it must not find a transaction that this one
    left open, or a setting that it changed.
    """
    for one in connections.all(initialized_only=True):
        try:
            one.close()
        finally:
            del connections[one.alias]


def _described(error: BaseException) -> dict[str, Any]:
    """An error as rows and lines keep it: {type, message, traceback}, masked before it is cut."""
    trace = traceback.format_exception(type(error), error, error.__traceback__, limit=-20)
    found = {"type": type(error).__name__, "message": text_of(error), "traceback": "".join(trace)}
    masked: dict[str, str] = mask_secrets({name: writable(text) for name, text in found.items()}, conf().secrets)
    return {name: text[:LONGEST_TEXT] for name, text in masked.items()}


def _masked(output: Output, secrets: Mapping[str, str]) -> Output:
    """The output with values, labels and questions to memory masked; channels' and nodes' names are the author's."""
    mask = partial(mask_secrets, secrets=secrets)
    writes = (replace(write, value=mask(write.value), label=mask(write.label)) for write in output.writes)
    sends = ((target, mask(payload)) for target, payload in output.sends)
    reads = ({**read, "asked": mask(read["asked"])} for read in output.reads)
    metadata = ((name, mask(value)) for name, value in output.metadata)
    return replace(
        output,
        writes=tuple(writes),
        sends=tuple(sends),
        reads=tuple(reads),
        metadata=tuple(metadata),
    )


def _labelled(output: Output) -> Output:
    """The output with labels that every row can hold."""
    if not any(write.label for write in output.writes):
        return output
    writes = (replace(write, label=writable(write.label)) if write.label else write for write in output.writes)
    return replace(output, writes=tuple(writes))
