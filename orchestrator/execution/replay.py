"""A replay: a run without an outside. Pure and read tasks run again; of all others the recorded outcome is taken, where
the task's input is the same. Another input, or no record, ends the branch as diverged; the others go on.

Settlements come after the same supersteps as in the origin. Nobody is asked, nothing is mailed, nothing is called.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from approvals.gates.recorded_ways import sends_past_gate, settlements, ways_of
from approvals.gates.request_state import RequestState, load_states
from approvals.gates.settlement import settled_of
from approvals.gates.waivers import VERDICT
from approvals.models import ApprovalRequest, Decision, RequestStatus
from checkpoints.core.diff import differences, written
from checkpoints.event_log import NewEvent
from checkpoints.ledger import reader
from checkpoints.memory.replay_shelf import OriginLine, OverlaidShelf, Overlay, RecordedShelf, live_reads
from checkpoints.memory.shelf import Shelf
from checkpoints.models import Checkpoint, PendingWrite, RunEvent, RunLine, TaskResult
from checkpoints.models.fields import of_tasks
from checkpoints.models.task_result import Outcome
from checkpoints.queue.leases import Lease
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.effect import DIVERGED, HUMAN
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.frozen import frozen
from orchestrator.engine.memory import Memory
from orchestrator.engine.plan import ErrorInfo, Start
from orchestrator.engine.reduce import Output, Settled, WriteValue
from orchestrator.engine.trace import LIVE
from orchestrator.execution.attempt import SuperstepContext
from orchestrator.execution.open_superstep import FinishedTask

OTHER_MEMORY = "other_memory"
"""Why a task diverged that saw the same state, and would find something else in memory."""


@frozen
class Recorded:
    """What the origin's line says of one task: the hash of its input, the superstep it ran in, and how it ended."""

    input_hash: str
    superstep: int
    finished: FinishedTask


@dataclass(slots=True)
class Replay:
    """What was recorded on the line that a replay departed from. Reads only; a slice has its own."""

    lease: Lease
    graph: Compiled
    row: RunLine
    overlay: Overlay = field(default_factory=dict)
    _settlements: list[tuple[int, list[Task]]] | None = None

    @property
    def origin(self) -> OriginLine:
        return OriginLine(self.row.departure_run, self.row.parent_line, self.lease.protection)

    # Tasks

    def outcomes(self, context: SuperstepContext, starts: Sequence[Start]) -> dict[Task, FinishedTask]:
        """Of those of these tasks that do not run, what was recorded, or that they diverged."""
        nodes = self.graph.nodes
        outside = {start.task: start for start in starts if self._is_outside(start.task.node)}
        gated = {start.task: start for start in starts if nodes[start.task.node].gated}
        if not outside and not gated:
            return {}
        asked = self._proposals(outside | gated)
        # What a person settled may have been held by the gate of another node.
        results = {
            task: replace(one, finished=replace(one.finished, gated=task in asked))
            for task, one in self._results(outside).items()
        }
        known = asked | results
        wanted = outside | {task: start for task, start in gated.items() if task in asked}
        found = {task: self._outcome(context, start, known.get(task)) for task, start in wanted.items()}
        reused = [task for task, one in found.items() if one.diverged is None]
        moved = self._moved(live_reads(self.origin, reused))
        return found | {task: FinishedTask(diverged=facts) for task, facts in moved.items()}

    def _is_outside(self, node: str) -> bool:
        declared = self.graph.nodes[node]
        return declared.journaled or declared.effect == HUMAN

    def _outcome(self, context: SuperstepContext, start: Start, known: Recorded | None) -> FinishedTask:
        if known is None:
            return FinishedTask(diverged={"why": "no_record"})
        if known.input_hash != context.input_hash(start):
            path = self._first_difference(context, start, known.superstep)
            return FinishedTask(diverged={"why": "other_input", **path})
        return known.finished

    def _first_difference(self, context: SuperstepContext, start: Start, superstep: int) -> dict[str, Any]:
        """The first path that the task sees otherwise than its origin did; empty where no row shows the state then."""
        rows = Checkpoint.objects.filter(run=self.origin.id, line=self.origin.line, kept=True, superstep__lt=superstep)
        before = rows.order_by("-seq").values_list("id", "superstep").first()
        document = reader.document_at(before[0]) if before and before[1] == superstep - 1 else None
        if document is None:
            return {}
        reads = self.graph.nodes[start.task.node].reads
        for partition in ("scratch", "artifacts"):
            then, now = document[partition], context.state[partition]
            for found in differences(then, now):
                if reads is None or str(found.path[0]) in reads:
                    return {"path": f"{partition}.{written(found.path)}"}
        return {"path": "payload"}

    def _results(self, tasks: Iterable[Task]) -> dict[Task, Recorded]:
        """The newest attempt of each of these tasks, where it ended. One query."""
        found = TaskResult.objects.filter(of_tasks(self.origin.id, self.origin.line, tasks)).order_by("attempt")
        rows = {Task(row.node, row.visit, row.index): row for row in found}
        sealed_rows.verify_rows(rows.values(), self.origin.protection)
        ended = {task: (row, self._finished(row)) for task, row in rows.items()}
        return {task: Recorded(row.input_hash, row.superstep, one) for task, (row, one) in ended.items() if one}

    def _finished(self, row: TaskResult) -> FinishedTask | None:
        """What an attempt's row says of how its task ended; None where it does not."""
        if row.outcome == Outcome.DONE:
            output = Output.from_json(read_value(row, "output") or {})
            # Its figures are counted in the run in which it ran.
            reused = replace(output, figures=())
            return FinishedTask(reused, attempt=row.attempt, ms=row.took_ms)
        error = read_value(row, "error")
        if row.outcome in (Outcome.FAILED, Outcome.NOT_DONE) and error and self.graph.has_error_edge(row.node):
            return FinishedTask(error=ErrorInfo(row.node, error["type"], error["message"], row.attempt))
        return None

    def _proposals(self, starts: Mapping[Task, Start]) -> dict[Task, Recorded | None]:
        """What these tasks proposed: to people, or past a gate that needed nobody; None where no row shows where one
        went. Three queries.
        """
        of = of_tasks(self.origin.id, self.origin.line, starts)
        requests = list(ApprovalRequest.objects.filter(of).order_by("ordinal"))
        rows = list(PendingWrite.objects.filter(of, revision=1).order_by("position"))
        sealed_rows.verify_rows([*requests, *rows], self.origin.protection)
        found: dict[Task, Recorded | None] = {}
        for request in requests:
            task = Task(request.node, request.visit, request.index)
            writes = [_proposed(row) for row in rows if (row.node, row.visit, row.index) == tuple(task)]
            output = self._with_ways(task, request.superstep, Output(tuple(writes)))
            finished = FinishedTask(output, gated=True)
            found[task] = Recorded(request.input_hash, request.superstep, finished) if output is not None else None
        return found | self._passed([start for task, start in starts.items() if task not in found])

    def _passed(self, starts: Sequence[Start]) -> dict[Task, Recorded]:
        """What human tasks proposed whose gates needed nobody: the line that says so tells what they saw and where they
        went. Two queries.
        """
        human = {str(start.task) for start in starts if self.graph.nodes[start.task.node].effect == HUMAN}
        if not human:
            return {}
        at = {"run": self.origin.id, "line": self.origin.line, "verdict": VERDICT}
        rows = list(Decision.objects.filter(**at, task__in=human).order_by("position"))
        lines = list(RunEvent.objects.filter(run=self.origin.id, seq__in={row.event_seq for row in rows}))
        sealed_rows.verify_rows([*rows, *lines], self.origin.protection)
        found: dict[Task, Recorded] = {}
        for line in lines:
            facts = read_value(line, "payload")
            if "input_hash" not in facts:
                continue  # written before the line told what the task saw: nothing can be compared
            writes = [WriteValue(r.channel, read_value(r, "final_value")) for r in rows if r.event_seq == line.seq]
            if (sends := sends_past_gate(self.origin, facts)) is not None:
                goto = tuple(facts["goto"]) if "goto" in facts else None
                finished = FinishedTask(Output(tuple(writes), goto, sends), passed=True)
                found[Task.parse(line.task)] = Recorded(facts["input_hash"], facts["superstep"], finished)
        return found

    def _with_ways(self, task: Task, superstep: int, output: Output) -> Output | None:
        """The output with the goto and the sends that the task returned; None where no row shows them."""
        node = self.graph.nodes[task.node]
        if not (node.goto or node.sends):
            return output
        if (ways := ways_of(self.origin, task, superstep)) is None:
            # The row of its result has them.
            return output if node.journaled else None
        return replace(output, goto=ways[0], sends=ways[1])

    def events(self, kept: Mapping[Task, FinishedTask]) -> list[NewEvent]:
        """The line that says of which tasks of a superstep the recorded outcome was taken, and one for each task that
        ran and found something else in memory than its origin did.
        """
        reused = [str(task) for task, one in kept.items() if self._is_outside(task.node) and one.diverged is None]
        ran = {t: one.output.reads for t, one in kept.items() if not self._is_outside(t.node) and one.output}
        ran = {task: reads for task, reads in ran.items() if any(read["mode"] == LIVE for read in reads)}
        moved = self._read_otherwise(ran).items()
        told = [NewEvent("task_diverged", why, node=task.node, task=str(task)) for task, why in moved]
        return [NewEvent("results_reused", {"tasks": reused}), *told] if reused else told

    # Settlements

    def due(self, frontier: Frontier, superstep: int, *, idle: bool) -> list[Settled]:
        """The gates that are settled now: those that the origin settled after a superstep that is reached. `idle`:
        nothing else can move, so what comes later comes now, and what nobody ever answered has diverged.
        """
        gated = frontier.gated()
        if not gated:
            return []
        if self._settlements is None:
            self._settlements = settlements(self.origin)
        for number, tasks in self._settlements:
            if mine := [task for task in tasks if task in gated]:
                return self._settled(mine) if idle or number <= superstep else []
        return [Settled(task, (), DIVERGED) for task in sorted(gated)] if idle else []

    def _settled(self, tasks: Sequence[Task]) -> list[Settled]:
        """These tasks as people decided them: what the origin's settlement applied."""
        of = of_tasks(self.origin.id, self.origin.line, tasks)
        requests = list(ApprovalRequest.objects.filter(of, status=RequestStatus.APPLIED).order_by("ordinal"))
        states: dict[Task, RequestState] = {one.task: one for one in load_states(requests, self.origin.protection)}
        return [settled_of(states[task], self.origin.protection) for task in tasks if task in states]

    # Memory

    def _moved(self, reads: Mapping[Task, Sequence[tuple[Any, Any]]]) -> dict[Task, dict[str, Any]]:
        """Of these tasks with what they asked memory and found: those that would find something else now, with why.
        What the origin itself remembered behind the read does not count: each run that is replayed has done that.
        """
        now = OverlaidShelf(Shelf(self.lease.protection), self.overlay)
        return _with_why(
            {
                task: next(filter(None, (now.moved(asked, found, self.origin) for asked, found in calls)), None)
                for task, calls in reads.items()
            }
        )

    def _read_otherwise(self, reads: Mapping[Task, Sequence[Any]]) -> dict[Task, dict[str, Any]]:
        """Of these tasks, which ran and read this: those that found something else than their origin did, with why."""
        shelf = OverlaidShelf(Shelf(self.lease.protection), self.overlay)
        places: dict[Task, str | None] = {}
        for task, calls in live_reads(self.origin, reads).items():
            left = list(reads[task])
            for asked, found in calls:
                again = next((one for one in left if one["asked"] == asked), None)
                if again is not None:
                    left.remove(again)
                    places[task] = places.get(task) or shelf.differs(asked, found, again["found"])
        return _with_why(places)

    def memory_of(self, task: Task) -> Memory:
        """The memory of a task of the replay: what its origin saw, and what the replay itself remembers."""
        mode, live = self.graph.memory_mode(task.node), Shelf(self.lease.protection)
        overlaid: Any = OverlaidShelf(live, self.overlay)
        origin: Any = self.origin
        shelf = overlaid if mode == LIVE else RecordedShelf(origin, task, mode, overlaid)
        return Memory(shelf, mode=mode, run=self.lease.id, node=task.node)


def _with_why(places: Mapping[Task, str | None]) -> dict[Task, dict[str, Any]]:
    return {task: {"why": OTHER_MEMORY, "path": path} for task, path in places.items() if path}


def _proposed(row: PendingWrite) -> WriteValue:
    shown = read_value(row, "shown") or {}
    return WriteValue(row.channel, read_value(row, "value"), str(shown.get("label") or "") or None)
