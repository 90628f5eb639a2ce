"""One attempt of one task, in a separate thread: it calls user code and records the
result or the error.
"""

import asyncio
import copy
import queue
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import CoroutineType
from typing import Any

from django.db import OperationalError, connections

from approvals.authority import Judge
from checkpoints.conf import Conf, conf
from checkpoints.journal import results as journal
from checkpoints.journal.results import Ending
from checkpoints.models.task_result import Outcome, TaskResult
from checkpoints.queue.leases import Lease
from orchestrator.connections import taken_from_thread
from orchestrator.engine import Retry, Task
from orchestrator.engine.errors import CountersignError, TamperedUpload, text_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.call import CALL
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.step.context import Context
from orchestrator.engine.step.memory import Memory
from orchestrator.engine.step.notes import Notes
from orchestrator.engine.step.output import (
    Output,
    WriteValue,
    asked_write,
    call_output,
    output_of,
    require_proposal,
    with_questions,
)
from orchestrator.engine.step.plan import Start
from orchestrator.engine.values import canonical
from orchestrator.engine.values.canonical import Json
from orchestrator.execution.heartbeat import Heartbeat
from orchestrator.execution.memory import open_memory
from orchestrator.execution.secrets import mask_secrets, writable
from orchestrator.execution.spans import attempt_span
from orchestrator.logging import masked_logger

ATOMIC_TRIES = 3
"""How often an atomic attempt is made in all: after a deadlock or serialisation failure
it is repeated as if it had not run.
"""

LONGEST_TEXT = 20_000
"""The most characters kept of an error's message, and of its traceback."""

_FIXED = frozenset({type(None), bool, int, float, str})
"""Types of payloads that cannot be changed in place."""


@frozen
class Call:
    """A call whose arguments are decided, and the state from which it was prepared.
    `waived`: its gate waived approval.
    """

    args: Json
    state: dict[str, dict[str, Any]]
    waived: bool = False


@dataclass(slots=True)
class SuperstepContext:
    """Shared by all tasks of one superstep, which read the same snapshot. `starts` are
    all of its tasks.

    `calls` are those whose arguments are decided. A task of any other call prepares its
    arguments instead of running. `judge` verifies on whose authority tasks act.
    """

    lease: Lease
    graph: Compiled
    state: dict[str, dict[str, Any]]
    input: Any
    heart: Heartbeat
    starts: Sequence[Start] = ()
    memory_of: Callable[[Task], Memory] | None = None
    calls: dict[Task, Call] = field(default_factory=dict)
    judge: Judge | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    trace: tuple[Any, Any] | None = None
    """The tracer, and the context of the superstep's span; None where nothing is traced."""
    conf: Conf = field(default_factory=conf)
    _seen: dict[str, bytes] = field(default_factory=dict)
    _views: dict[str, Callable[[], Any]] = field(default_factory=dict)

    def node_of(self, task: Task) -> Node:
        """Return what a task runs: its node, or what prepares the node's call."""
        node = self.graph.nodes[task.node]
        if node.calls and task not in self.calls:
            return node.preparing
        return node

    def input_hash(self, start: Start) -> str:
        """Return the hash of all that the task sees: the run's input, its payload, the
        arguments of its call, and the channels that it reads (all, if it names none).
        """
        node = start.task.node
        call = self.calls.get(start.task)
        if call is not None:
            return self.hash_of_call(start, call)
        seen = self._seen.get(node)
        if seen is None:
            reads = self.graph.nodes[node].reads
            values = {**self.state["scratch"], **self.state["artifacts"]}
            if reads is not None:
                values = {name: values[name] for name in reads}
            seen = canonical.encode(values)
            self._seen[node] = seen
        # The channels are encoded once a node; the encoded list of all three is put
        # together from its parts.
        begin = canonical.encode([self.lease.input_hash, start.payload])
        return self.lease.protection.digest(b"%b,%b]" % (begin[:-1], seen))

    def hash_of_call(self, start: Start, call: Call) -> str:
        """Return the `input_hash` of a task once its call is decided."""
        seen = {**call.state["scratch"], **call.state["artifacts"]}
        reads = self.graph.nodes[start.task.node].reads
        if reads is not None:
            seen = {name: seen[name] for name in reads}
        parts = [self.lease.input_hash, start.payload, seen, call.args]
        return self.lease.protection.digest(canonical.encode(parts))

    def view(self, task: Task) -> Any:
        """Return the state as this task sees it, as a fresh instance."""
        node = task.node
        # A call runs on the state from which people saw it prepared.
        call = self.calls.get(task)
        if call is not None:
            return self.graph.state_for(call.state, node)
        make_view = self._views.get(node)
        if make_view is None:
            make_view = self.graph.viewer(self.state, node)
            self._views[node] = make_view
        return make_view()

    def timeout(self, node: str) -> float:
        """Return the seconds that one attempt of this node may take."""
        own = self.graph.nodes[node].timeout
        return self.conf.node_timeout if own is None else float(own)

    def pause(self, retry: Retry, tries: int, task: Task) -> float:
        """Return the seconds before the next attempt, after `tries` of them."""
        pause = float(retry.backoff) * float(retry.factor) ** (tries - 1)
        # It spreads load and hides nothing.
        spread = random.uniform(-retry.jitter, retry.jitter)  # noqa: S311
        return pause * (1 + spread)


@dataclass(slots=True, eq=False)
class Attempt:
    """One attempt and its outcome. Its thread writes to it until it puts the attempt on
    `results`; from then on the executor reads it.

    `tries` counts this attempt and those before it since a person last acted. `begun`
    is a time of the monotonic clock, and None until a thread has taken the attempt;
    `looped` is set if it ran an event loop in its thread. `node` is what it runs: the
    node of its task, or what prepares the node's call.
    """

    context: SuperstepContext
    start: Start
    node: Node
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
    _decided: Call | None = field(init=False)
    _prepares: bool = field(init=False)
    """Whether it makes the proposal of a call."""
    _memory: Memory | None = None
    _notes: Notes = field(init=False)
    _questions: tuple[WriteValue, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.task = self.start.task
        # Fixed here: while this thread is still at work on a proposal, the context may
        # learn the decided arguments, and run the call itself.
        self._decided = self.context.calls.get(self.task)
        self._prepares = self.node.calls and self._decided is None

    @property
    def name(self) -> str:
        return str(self.task)

    @property
    def refused(self) -> CountersignError | None:
        """Return the error that makes a task's reads untrustworthy, whatever the node
        did with them: in the run's records of memory, or in an uploaded file.
        """
        if isinstance(self._raised, TamperedUpload):
            return self._raised
        if self._memory:
            return self._memory.shelf.refused
        return None

    @property
    def interrupted(self) -> KeyboardInterrupt | None:
        """Return the interrupt that was meant for the process, not for the node."""
        if isinstance(self._raised, KeyboardInterrupt):
            return self._raised
        return None

    def ending(self) -> Ending:
        """Return the outcome as the journal takes it."""
        return Ending(
            self.task,
            self.number,
            self.outcome,
            self.output.to_json() if self.output else None,
            self.error,
            self.ms,
            thread_ended=not self._given_up,
            intent=self.intent,
        )

    def retriable(self, retry: Retry) -> bool:
        """Return whether `retry` covers the error, and no thread of this attempt can
        still be at work on an atomic node.
        """
        if self._given_up and self.node.atomic:
            return False
        return self._raised is not None and retry.covers(self._raised)

    def abandon(self, why: str) -> bool:
        """Give up an attempt that is past its time. Returns False if it has just ended
        by itself.
        """
        # The thread may be ending right now: what comes first decides the outcome.
        with self._lock:
            if self.outcome != Outcome.OPEN:
                return False
            # Set first: once an attempt is given up, its error must not be taken as
            # proof that nothing happened.
            self._given_up = True
            self._record_error(TimeoutError(why))
            return True

    def leave(self) -> bool:
        """Stop waiting for the attempt: a result that still arrives is evidence.
        Returns whether an unrecorded one has arrived already.
        """
        with self._lock:
            ended = self.outcome != Outcome.OPEN and not self._given_up
            self._given_up = True
        return ended and not self.recorded

    def keep(self) -> None:
        """Store its late result as evidence."""
        self._keep_as_evidence(self.output, self._raised)

    def work(self) -> None:
        """Make the attempt; this is the body of its thread."""
        # It may have been given up before a thread got to it; then the node must not
        # act.
        with self._lock:
            if self._given_up:
                return
            begun = time.monotonic()
            self.begun = begun
            self.deadline = time.time() + self.timeout
        output: Output | None = None
        raised: BaseException | None = None
        try:
            if self.context.trace is None:
                output = self._call_node()
            else:
                output = self._call_node_traced(self.context.trace)
        except BaseException as error:
            # Whatever node code raises, even `SystemExit`, is the outcome of this
            # attempt.
            raised = error
        try:
            self._end(output, raised, int((time.monotonic() - begun) * 1000))
        finally:
            _forget_connections()

    def _end(
        self, output: Output | None, raised: BaseException | None, ms: int
    ) -> None:
        with self._lock:
            self.ms = ms
            if not self._given_up:
                self.output = output
                if output is not None:
                    self.outcome = Outcome.DONE
                if raised is not None:
                    self._record_error(raised)
                # Under the lock, so that `abandon` meets no attempt that has half ended.
                self.results.put(self)
                return
        # Evidence must not be lost in a transaction that the node left open.
        _forget_connections()
        self._keep_as_evidence(output, raised)

    def _keep_as_evidence(
        self, output: Output | None, raised: BaseException | None
    ) -> None:
        """Store the result of an attempt that was given up and ended after all, for
        the person who settles the task; it is never applied by itself.
        """
        node = self.node
        # An atomic node's work and its journal entry share a transaction, so there is
        # no doubt for evidence to settle.
        if not node.journaled or node.atomic:
            return
        ending = Ending(
            self.task,
            self.number,
            Outcome.DONE,
            output.to_json() if output else None,
            _error_json(raised) if raised else None,
            self.ms,
        )
        journal.keep_late_results(self.context.lease, [ending])

    def _record_error(self, error: BaseException) -> None:
        """Record an error, and what it means for the effect."""
        node = self.node
        self._raised = error
        self.error = _error_json(error)
        nothing_happened = not self._given_up and node.says_not_done(error)
        if node.safe_again:
            # It may run again in any case; the difference is that plans list no
            # `NOT_DONE` attempt as one that may have acted.
            not_done = node.idempotent and nothing_happened
            self.outcome = Outcome.NOT_DONE if not_done else Outcome.FAILED
        else:
            self.outcome = Outcome.NOT_DONE if nothing_happened else Outcome.UNKNOWN

    def _call_node_traced(self, trace: tuple[Any, Any]) -> Output:
        with attempt_span(trace, self.context.lease, self.task, self.node, self.number):
            return self._call_node()

    def _call_node(self) -> Output:
        if not self.node.atomic:
            return self._output_of_node()
        output = self._call_atomically()
        self.recorded = True
        return output

    def _call_atomically(self) -> Output:
        """Call the node in the transaction that records its result. A deadlock rolls
        both back, so the call is repeated.
        """
        outputs: list[Output] = []

        def call() -> dict[str, Any]:
            output = self._output_of_node()
            outputs.append(output)
            return output.to_json()

        for tries in range(1, ATOMIC_TRIES + 1):
            try:
                journal.run_atomically(self.context.lease, self.task, self.number, call)
                break
            except OperationalError:
                # If the commit happened and only its answer was lost, the closed intent
                # refuses a second result.
                connections.close_all()
                if tries == ATOMIC_TRIES:
                    raise
        return outputs[-1]

    def _output_of_node(self) -> Output:
        """Call the node, and check and stage what it returned."""
        context = self.context
        node = self.node
        state = context.view(self.task)
        # Whatever a try that was rolled back asked for is forgotten.
        self._memory = None
        self.asks_checkpoint = False
        self._notes = Notes()
        self._questions = ()
        returned = node.fn(state, self._context())
        if isinstance(returned, CoroutineType):
            self.looped = True
            returned = asyncio.run(returned)
        limit = context.conf.max_value_bytes
        secrets = context.conf.secrets
        if self._prepares:
            output = call_output(context.graph, node.name, returned, limit=limit)
            return _masked(output, secrets) if secrets else output
        output = output_of(context.graph, node.name, returned, limit=limit)
        if self._questions:
            output = with_questions(output, self._questions)
        output = _with_writable_labels(output)
        # The node opened its memory if it used it.
        if self._memory:
            output = self._memory.onto(output)
        output = self._notes.onto(output)
        # A call has been proposed before, and may well write nothing.
        if not output.writes and not node.calls:
            require_proposal(node, self.task)
        # Last, so that wishes to memory and notes are masked too.
        return _masked(output, secrets) if secrets else output

    def _args(self, decided: Call) -> Any:
        """Return the arguments of a decided call, as its node's model."""
        channel = self.context.graph.channel_of(self.task.node, CALL)
        return channel.load(decided.args)

    def _context(self) -> Context:
        lease = self.context.lease
        context = self.context
        payload = self.start.payload
        # The frontier keeps this very object, so the node gets a copy.
        if type(payload) not in _FIXED:
            payload = copy.deepcopy(payload)
        return Context(
            run_id=lease.id,
            key=lease.key,
            line=lease.line,
            task=self.task,
            attempt=self.number,
            read_input=lambda: context.graph.input_for(context.input),
            payload=payload,
            args=self._args(self._decided) if self._decided is not None else None,
            error=self.start.error,
            open_log=lambda: masked_logger(
                "countersign.node", run=lease.key, task=self.name
            ),
            deadline=self.deadline,
            secrets=context.conf.secrets,
            cancelled=context.cancelled.is_set,
            report=self._report,
            checkpoint=self._ask_checkpoint,
            # What prepares a call only reads the state: nothing of it may land.
            memory=None if self._prepares else self._remember,
            notes=self._notes,
            ask=self._ask,
        )

    def _ask(self, channel: Any, prompt: Any, schema: Any) -> None:
        node = self.task.node
        question = asked_write(self.context.graph, node, channel, prompt, schema)
        self._questions = (*self._questions, question)

    def _report(self, done: int, total: int, note: str) -> None:
        # Masked before it is cut, so that no part of a secret is left.
        masked = str(mask_secrets(writable(str(note)), self.context.conf.secrets))
        self.context.heart.report(
            {"task": str(self.task), "done": done, "total": total, "note": masked[:200]}
        )

    def _remember(self) -> Memory:
        if self._memory is None:
            context = self.context
            if context.memory_of:
                self._memory = context.memory_of(self.task)
            else:
                self._memory = open_memory(context.lease, context.graph, self.task)
        return self._memory

    def _ask_checkpoint(self) -> None:
        self.asks_checkpoint = True


def _forget_connections() -> None:
    """Close this thread's connections and forget them: the next node in it must not
    find a transaction that this one left open, or a setting that it changed.
    """
    for used in taken_from_thread().values():
        used.close()


def _error_json(error: BaseException) -> dict[str, Any]:
    """Return an error as rows and the log keep it: {type, message, traceback}, masked
    before it is cut.
    """
    # Only the innermost frames: there the error arose. Their locals are never kept.
    trace = traceback.format_exception(
        type(error), error, error.__traceback__, limit=-20
    )
    texts = {
        "type": type(error).__name__,
        "message": text_of(error),
        "traceback": "".join(trace),
    }
    plain = {name: writable(text) for name, text in texts.items()}
    masked: dict[str, str] = mask_secrets(plain, conf().secrets)
    return {name: text[:LONGEST_TEXT] for name, text in masked.items()}


def _masked(output: Output, secrets: Mapping[str, str]) -> Output:
    """Return the output with its values, labels and questions to memory masked. Names
    of channels and nodes come from the author and stay.
    """
    mask = partial(mask_secrets, secrets=secrets)
    writes = (
        replace(
            write,
            value=mask(write.value),
            label=mask(write.label),
            question=mask(write.question),
            form=mask(write.form),
        )
        for write in output.writes
    )
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


def _with_writable_labels(output: Output) -> Output:
    """Return the output with labels that every database can hold."""
    writes: list[WriteValue] = []
    has_labels = False
    for write in output.writes:
        if write.label:
            write = replace(write, label=writable(write.label))
            has_labels = True
        writes.append(write)
    return replace(output, writes=tuple(writes)) if has_labels else output
