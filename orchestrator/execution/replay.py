"""A replay: a run without an outside. Pure and read tasks run again; for all others,
the recorded outcome is taken if the task's input is the same. Another input, or no
record, ends the branch as diverged; the others continue.

Settlements come after the same supersteps as in the origin. Nobody is asked, nothing is
mailed, nothing is called.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from approvals.gates.recorded_ways import sends_past_gate, settlements, ways_of
from approvals.gates.renewals import AUTHORITY_KIND
from approvals.gates.request_state import RequestState, load_states
from approvals.gates.settlement import settled_of
from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.core.diff import differences, written
from checkpoints.event_log import NewEvent
from checkpoints.ledger import reader
from checkpoints.memory.replay_shelf import (
    OriginLine,
    OverlaidShelf,
    Overlay,
    RecordedShelf,
    live_reads,
)
from checkpoints.memory.shelf import DatabaseShelf
from checkpoints.models import Checkpoint, PendingWrite, RunEvent, RunLine, TaskResult
from checkpoints.models.fields import of_tasks
from checkpoints.models.task_result import Outcome
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification.line_facts import required_facts
from orchestrator.engine import Task
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.call import AUTHORITY
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import DIVERGED, HUMAN, REJECTED
from orchestrator.engine.graphs.question import stored_question
from orchestrator.engine.graphs.trace import LIVE
from orchestrator.engine.graphs.write import stored_form
from orchestrator.engine.step.frontier import Frontier, visit_key
from orchestrator.engine.step.memory import Memory
from orchestrator.engine.step.plan import ErrorInfo, Start
from orchestrator.engine.step.reduce import Output, Settled, WriteValue
from orchestrator.execution.attempt import Call, SuperstepContext
from orchestrator.execution.open_superstep import FinishedTask
from orchestrator.execution.secrets import mask_known_secrets

OTHER_MEMORY = "other_memory"
"""The reason of a task that diverged although it saw the same state: it would find
something else in memory.
"""


@frozen
class RecordedTask:
    """The record of one task on the origin's line: the hash of its input, the superstep
    in which it ran, and how it ended.
    """

    input_hash: str
    superstep: int
    finished: FinishedTask


@dataclass(slots=True)
class Replay:
    """The records of the line from which a replay departed. It only reads; each slice
    has its own.
    """

    lease: Lease
    graph: Compiled
    row: RunLine
    overlay: Overlay = field(default_factory=dict)
    _settlements: list[tuple[int, list[Task]]] | None = None

    @property
    def origin(self) -> OriginLine:
        """Return the line from which the replay departed."""
        return OriginLine(
            self.row.departure_run,
            self.row.parent_line,
            self.lease.protection,
        )

    @property
    def _shelf(self) -> OverlaidShelf:
        """Return what memory holds now, with what the replay itself remembers over it."""
        return OverlaidShelf(DatabaseShelf(self.lease.protection), self.overlay)

    # Tasks

    def outcomes(
        self, context: SuperstepContext, starts: Sequence[Start]
    ) -> dict[Task, FinishedTask]:
        """Return the tasks that do not run, each with its recorded outcome or as
        diverged. All others run.
        """
        outside = self._outside(starts)
        gated = self._gated(starts)
        if not outside and not gated:
            return {}
        records = self._records(outside, gated)
        outcomes: dict[Task, FinishedTask] = {}
        for task, start in (outside | gated).items():
            # A gated task without a record runs, because its gate did not hold it.
            if task in outside or task in records:
                record = records.get(task)
                outcomes[task] = self._outcome(context, start, record)
            elif self._is_outside(task.node):
                # The gate of this call needed nobody, and a replay calls nothing.
                outcomes[task] = self._waived_call(context, start)

        # A recorded outcome holds only if the task would find the same in memory now.
        reused = [task for task, done in outcomes.items() if done.diverged is None]
        moved = self._moved(live_reads(self.origin, reused))
        for task, facts in moved.items():
            outcomes[task] = FinishedTask(diverged=facts)
        return outcomes

    def _records(
        self, outside: Mapping[Task, Start], gated: Mapping[Task, Start]
    ) -> dict[Task, RecordedTask | None]:
        """Return the records of these tasks: their results, else their proposals."""
        # An approved call was proposed before, and runs now.
        proposed = {task: start for task, start in outside.items() if not start.is_call}
        proposals = self._proposals({**proposed, **gated})
        records = dict(proposals)
        for task, record in self._results(outside).items():
            # A task settled by a person may have been held by another node's gate.
            finished = replace(record.finished, gated=task in proposals)
            records[task] = replace(record, finished=finished)
        return records | self._refused(outside.keys() - records.keys())

    def _refused(self, tasks: Iterable[Task]) -> dict[Task, RecordedTask]:
        """Return the record of each of these tasks that did not run, because people were
        asked again about what it would have acted on, and rejected it. No query unless
        one of them acts on the authority of a gate.
        """
        acting = [task for task in tasks if self.graph.nodes[task.node].authority]
        if not acting:
            return {}
        origin = self.origin
        refused: dict[Task, RecordedTask] = {}
        for state in load_states(self._renewals(acting), origin.protection):
            if state.outcome == REJECTED:
                request = state.request
                write = _proposed_write(state.writes[0])
                refused[state.task] = RecordedTask(
                    request.input_hash,
                    request.superstep,
                    FinishedTask(Output((write,)), gated=True),
                )
        return refused

    def _renewals(self, tasks: Iterable[Task]) -> list[ApprovalRequest]:
        """Return the applied requests in which people were asked again before these
        tasks acted, in their order. One query.
        """
        origin = self.origin
        of_these = of_tasks(origin.id, origin.line, tasks)
        applied = ApprovalRequest.objects.filter(
            of_these, kind=AUTHORITY_KIND, status=RequestStatus.APPLIED
        )
        return list(applied.order_by("ordinal"))

    def _outside(self, starts: Sequence[Start]) -> dict[Task, Start]:
        """Return the starts that would act outside: a call that is only prepared does
        not.
        """
        nodes = self.graph.nodes
        outside: dict[Task, Start] = {}
        for start in starts:
            prepares = nodes[start.task.node].calls and not start.is_call
            if self._is_outside(start.task.node) and not prepares:
                outside[start.task] = start
        return outside

    def _gated(self, starts: Sequence[Start]) -> dict[Task, Start]:
        nodes = self.graph.nodes
        return {
            start.task: start
            for start in starts
            # People decided on an approved call before it starts.
            if nodes[start.task.node].gated and not start.is_call
        }

    def _waived_call(self, context: SuperstepContext, start: Start) -> FinishedTask:
        """Return the recorded outcome of a call whose gate needed nobody, if it was
        prepared from the same and called with the same. Two queries.
        """
        origin = self.origin
        decision = Decision.objects.filter(
            run=origin.id, line=origin.line, verdict=VERDICT, task=str(start.task)
        ).first()
        record = self._results([start.task]).get(start.task)
        if decision is None or record is None:
            return FinishedTask(diverged={"why": "no_record"})
        sealed_rows.verify_row(decision, origin.protection)
        call = Call(read_value(decision, "final_value"), context.state)
        if record.input_hash != context.hash_of_call(start, call):
            path = self._first_difference(context, start, record.superstep)
            return FinishedTask(diverged={"why": "other_input", **path})
        return record.finished

    def _is_outside(self, node: str) -> bool:
        declared = self.graph.nodes[node]
        return declared.journaled or declared.effect == HUMAN

    def _outcome(
        self, context: SuperstepContext, start: Start, record: RecordedTask | None
    ) -> FinishedTask:
        if record is None:
            return FinishedTask(diverged={"why": "no_record"})
        if record.input_hash != context.input_hash(start):
            path = self._first_difference(context, start, record.superstep)
            return FinishedTask(diverged={"why": "other_input", **path})
        return record.finished

    def _first_difference(
        self, context: SuperstepContext, start: Start, superstep: int
    ) -> dict[str, Any]:
        """Return the first path at which the task sees something else than its origin
        did; empty if no row shows the state of that time.
        """
        origin = self.origin
        rows = Checkpoint.objects.filter(
            run=origin.id,
            line=origin.line,
            kept=True,
            superstep__lt=superstep,
        )
        newest = rows.order_by("-seq").values_list("id", "superstep").first()
        if not newest:
            return {}
        id, superstep_before = newest
        # The row of the state that the task saw was not kept or was removed.
        if superstep_before != superstep - 1:
            return {}
        document = reader.document_at(id)
        if document is None:
            return {}
        reads = self.graph.nodes[start.task.node].reads
        for partition in ("scratch", "artifacts"):
            changes = differences(document[partition], context.state[partition])
            # Channels that the node does not declare to read are not part of its input.
            for change in changes:
                if reads is None or str(change.path[0]) in reads:
                    return {"path": f"{partition}.{written(change.path)}"}
        return {"path": "payload"}

    def _results(self, tasks: Iterable[Task]) -> dict[Task, RecordedTask]:
        """Return the result of each of these tasks whose newest attempt is done, or
        failed at a node with an error edge. One query.
        """
        origin = self.origin
        of_these = of_tasks(origin.id, origin.line, tasks)
        newest: dict[Task, TaskResult] = {}
        for row in TaskResult.objects.filter(of_these).order_by("attempt"):
            newest[_task_of(row)] = row
        sealed_rows.verify_rows(newest.values(), origin.protection)
        results: dict[Task, RecordedTask] = {}
        for task, row in newest.items():
            finished = self._finished(row)
            if finished:
                results[task] = RecordedTask(row.input_hash, row.superstep, finished)
        return results

    def _finished(self, row: TaskResult) -> FinishedTask | None:
        """Return how the task of an attempt ended; None if the row does not show it."""
        if row.outcome == Outcome.DONE:
            output = Output.from_json(read_value(row, "output") or {})
            # Its figures are counted in the run in which it ran.
            return FinishedTask(
                replace(output, figures=()),
                attempt=row.attempt,
                ms=row.took_ms,
            )
        stored = read_value(row, "error")
        if (
            row.outcome in (Outcome.FAILED, Outcome.NOT_DONE)
            and stored
            and self.graph.has_error_edge(row.node)
        ):
            error = ErrorInfo(
                row.node,
                stored["type"],
                stored["message"],
                row.attempt,
            )
            return FinishedTask(error=error)
        return None

    def _proposals(
        self, starts: Mapping[Task, Start]
    ) -> dict[Task, RecordedTask | None]:
        """Return what these tasks proposed: to people, or past a gate that did not need
        anyone; None if no row shows where a task went. Three queries.
        """
        origin = self.origin
        of_these = of_tasks(origin.id, origin.line, starts)
        # What a task acted on in the end is in its result, or there is none.
        of_line = ApprovalRequest.objects.filter(of_these).exclude(kind=AUTHORITY_KIND)
        requests = list(of_line.order_by("ordinal"))
        # The first revision is the node's own proposal; people make the later ones.
        first_writes = PendingWrite.objects.filter(of_these, revision=1)
        proposed = first_writes.exclude(channel=AUTHORITY)
        rows = list(proposed.order_by("position"))
        sealed_rows.verify_rows([*requests, *rows], origin.protection)

        writes_by_task: dict[Task, list[WriteValue]] = {}
        for row in rows:
            writes = writes_by_task.setdefault(_task_of(row), [])
            writes.append(_proposed_write(row))

        proposals: dict[Task, RecordedTask | None] = {}
        for request in requests:
            task = _task_of(request)
            writes = writes_by_task.get(task, [])
            output = self._with_ways(task, request.superstep, Output(tuple(writes)))
            proposals[task] = None
            if output is not None:
                proposals[task] = RecordedTask(
                    request.input_hash,
                    request.superstep,
                    FinishedTask(output, gated=True),
                )
        unasked = [start for task, start in starts.items() if task not in proposals]
        return proposals | self._passed(unasked)

    def _passed(self, starts: Sequence[Start]) -> dict[Task, RecordedTask]:
        """Return what human tasks proposed whose gates did not need anyone: the event
        of that decision has what they saw and where they went. Two queries.
        """
        human: set[str] = set()
        for start in starts:
            if self.graph.nodes[start.task.node].effect == HUMAN:
                human.add(str(start.task))
        if not human:
            return {}
        origin = self.origin
        waivers = Decision.objects.filter(
            run=origin.id,
            line=origin.line,
            verdict=VERDICT,
            task__in=human,
        )
        decisions = list(waivers.order_by("position"))
        seqs = {decision.event_seq for decision in decisions}
        events = list(RunEvent.objects.filter(run=origin.id, seq__in=seqs))
        sealed_rows.verify_rows([*decisions, *events], origin.protection)

        passed: dict[Task, RecordedTask] = {}
        for event in events:
            facts = required_facts(event)
            # Events that older versions wrote lack what the task saw: there is nothing
            # to compare.
            if "input_hash" not in facts:
                continue
            sends = sends_past_gate(origin, facts)
            if sends is None:
                continue
            writes = _final_writes(decisions, event.seq)
            goto = tuple(facts["goto"]) if "goto" in facts else None
            output = Output(writes, goto, sends)
            passed[Task.parse(event.task)] = RecordedTask(
                facts["input_hash"],
                facts["superstep"],
                FinishedTask(output, passed=True),
            )
        return passed

    def _with_ways(self, task: Task, superstep: int, output: Output) -> Output | None:
        """Return the output with the goto and the sends that the task returned; None if
        no row shows them.
        """
        node = self.graph.nodes[task.node]
        if not (node.goto or node.sends):
            return output
        ways = ways_of(self.origin, task, superstep)
        if ways is None:
            # The row of its result has them, if it has one.
            return output if node.journaled else None
        goto, sends = ways
        return replace(output, goto=goto, sends=sends)

    def events(self, results: Mapping[Task, FinishedTask]) -> list[NewEvent]:
        """Return the event that lists the tasks of a superstep whose recorded outcome
        was taken, and one for each task that ran and found something else in memory
        than its origin did.
        """
        reused: list[str] = []
        live_reads_of_ran: dict[Task, Sequence[Any]] = {}
        for task, result in results.items():
            if self._is_outside(task.node):
                if result.diverged is None:
                    reused.append(str(task))
            elif result.output and _reads_live(result.output):
                live_reads_of_ran[task] = result.output.reads

        events: list[NewEvent] = []
        if reused:
            events.append(NewEvent("results_reused", {"tasks": reused}))
        diverged = self._read_otherwise(live_reads_of_ran)
        for task, facts in diverged.items():
            event = NewEvent("task_diverged", facts, node=task.node, task=str(task))
            events.append(event)
        return events

    # Settlements

    def due(self, frontier: Frontier, superstep: int, *, idle: bool) -> list[Settled]:
        """Return the gates to settle: those that the origin settled next, once the
        replay has reached the superstep after which it did. With `idle`, when nothing
        else can move, they are settled early, and gates that were never answered
        diverge.
        """
        gated = frontier.gated()
        if not gated:
            return []
        renewed = {task for task in gated if _is_asked_again(frontier, task)}
        next_settlement = self._next_settlement(gated, renewed)
        if next_settlement is not None:
            number, tasks = next_settlement
            is_due = idle or number <= superstep
            return self._settled(tasks, renewed) if is_due else []
        if not idle:
            return []
        return [Settled(task, (), DIVERGED) for task in sorted(gated)]

    def _next_settlement(
        self, gated: Collection[Task], renewed: Collection[Task]
    ) -> tuple[int, list[Task]] | None:
        """Return the superstep of the origin's first settlement of some of these tasks,
        and those tasks; of those that are `renewed` the last one counts, by which they
        were rejected.
        """
        if self._settlements is None:
            self._settlements = settlements(self.origin)
        last_of: dict[Task, int] = {}
        for place, (_, settled) in enumerate(self._settlements):
            last_of.update(dict.fromkeys(settled, place))
        for place, (superstep, settled) in enumerate(self._settlements):
            tasks: list[Task] = []
            for task in settled:
                is_earlier = task in renewed and place < last_of[task]
                if task in gated and not is_earlier:
                    tasks.append(task)
            if tasks:
                return superstep, tasks
        return None

    def _settled(
        self, tasks: Sequence[Task], renewed: Collection[Task]
    ) -> list[Settled]:
        """Return these tasks as people decided them: what the origin's settlement
        applied. About those that are `renewed` they were asked again.
        """
        origin = self.origin
        applied = ApprovalRequest.objects.filter(
            of_tasks(origin.id, origin.line, tasks),
            status=RequestStatus.APPLIED,
        ).exclude(kind=AUTHORITY_KIND)
        requests = list(applied.order_by("ordinal"))
        if renewed:
            requests += self._renewals(renewed)
        states: dict[Task, RequestState] = {}
        for state in load_states(requests, origin.protection):
            states[state.task] = state
        settled: list[Settled] = []
        for task in tasks:
            if task in states:
                settled.append(settled_of(states[task], origin.protection))
        return settled

    # Memory

    def _moved(
        self, reads: Mapping[Task, Sequence[tuple[Any, Any]]]
    ) -> dict[Task, dict[str, Any]]:
        """Return the tasks that would find something else in memory now, with the
        reason. `reads` are their calls of memory, each with what it returned. What the
        origin itself remembered after the read does not count: each replayed run has
        done that.
        """
        shelf = self._shelf
        places: dict[Task, str | None] = {}
        for task, calls in reads.items():
            for question, answer in calls:
                place = shelf.moved(question, answer, self.origin)
                # The first difference of a task counts.
                if place:
                    places[task] = place
                    break
        return _with_why(places)

    def _read_otherwise(
        self, reads: Mapping[Task, Sequence[Any]]
    ) -> dict[Task, dict[str, Any]]:
        """Return the tasks that ran and found something else in memory than in the
        origin, with the reason. `reads` are the calls that they made.
        """
        shelf = self._shelf
        places: dict[Task, str | None] = {}
        for task, calls in live_reads(self.origin, reads).items():
            # Each of the task's own reads is compared with one read of its origin.
            unmatched = list(reads[task])
            for question, answer in calls:
                matching = (read for read in unmatched if read["asked"] == question)
                read = next(matching, None)
                if read is None:
                    continue
                unmatched.remove(read)
                # The first difference of a task counts.
                if not places.get(task):
                    places[task] = shelf.differs(question, answer, read["found"])
        return _with_why(places)

    def memory_of(self, task: Task) -> Memory:
        """Return the memory of a task of the replay: what its origin saw, and what the
        replay itself remembers.
        """
        mode = self.graph.memory_mode(task.node)
        shelf: Any = self._shelf
        if mode != LIVE:
            origin: Any = self.origin
            shelf = RecordedShelf(origin, task, mode, shelf, mask_known_secrets)
        return Memory(
            shelf,
            mode=mode,
            run=self.lease.id,
            node=task.node,
            masked=mask_known_secrets,
        )


def _is_asked_again(frontier: Frontier, task: Task) -> bool:
    """Return whether a task waits because people are asked again about what it acts on."""
    parts = frontier.waiting[visit_key(task.node, task.visit)]
    return parts[task.index].renews


def _with_why(places: Mapping[Task, str | None]) -> dict[Task, dict[str, Any]]:
    reasons: dict[Task, dict[str, Any]] = {}
    for task, path in places.items():
        if path:
            reasons[task] = {"why": OTHER_MEMORY, "path": path}
    return reasons


def _reads_live(output: Output) -> bool:
    return any(read["mode"] == LIVE for read in output.reads)


def _final_writes(
    decisions: Sequence[Decision], event_seq: int
) -> tuple[WriteValue, ...]:
    writes: list[WriteValue] = []
    for row in decisions:
        if row.event_seq == event_seq:
            writes.append(WriteValue(row.channel, read_value(row, "final_value")))
    return tuple(writes)


def _task_of(row: TaskResult | ApprovalRequest | PendingWrite) -> Task:
    return Task(row.node, row.visit, row.index)


def _proposed_write(row: PendingWrite) -> WriteValue:
    shown = read_value(row, "shown") or {}
    label = str(shown.get("label") or "") or None
    return WriteValue(
        row.channel,
        read_value(row, "value"),
        label,
        question=stored_question(shown),
        form=stored_form(shown),
    )
