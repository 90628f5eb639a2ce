"""The summary of a superstep for lists and logs: short plain values, made once when it
commits. No database, no payloads.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from checkpoints.core import tape
from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.ledger.commit import RunUpdate
from orchestrator.engine import Task
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import DIVERGED, HUMAN
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.graphs.trace import LIVE
from orchestrator.engine.step.plan import Frontier, Planned
from orchestrator.engine.step.reduce import Settled
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.open_superstep import FinishedTask

_RANKS = ["", "done", "held", "later", "error", "diverged", "failed", "unknown"]
"""Outcomes of tasks, the worst last: a node's entry has the worst of its tasks."""


def node_entries(
    graph: Compiled, results: Mapping[Task, FinishedTask]
) -> list[dict[str, Any]]:
    """Return one entry for each visit of a node: {node, visit, effect, tasks, ms,
    outcome}, in declared order.
    """
    entries: dict[tuple[int, int], dict[str, Any]] = {}
    for task, result in results.items():
        place = (graph.order[task.node], task.visit)
        entry = entries.get(place)
        if entry is None:
            entry = _entry(graph, task)
            entries[place] = entry
        reads = result.output is not None and result.output.reads
        # Most tasks did what their node declares.
        if result.gated or reads or entry["effect"] == HUMAN:
            _mark_effect(entry, graph, task, result)
        entry["tasks"] += 1
        # The tasks of a visit run side by side, so the slowest one is what was waited
        # for.
        entry["ms"] = max(entry["ms"], result.ms)
        entry["outcome"] = max(entry["outcome"], _outcome(result), key=_RANKS.index)
    return [entries[place] for place in sorted(entries)]


def _mark_effect(
    entry: dict[str, Any], graph: Compiled, task: Task, result: FinishedTask
) -> None:
    """Mark what the tasks of an entry did, where their node declares another effect."""
    node = graph.nodes[task.node]
    # Nothing has acted yet where calls only wait for people.
    if result.gated and not entry["tasks"] and _has_yet_to_act(node, result):
        entry["effect"] = HUMAN
    elif entry["effect"] == HUMAN and not result.gated:
        entry["effect"] = node.effect
    # A pure task that read from memory as it is now has read from outside.
    reads = result.output.reads if result.output else ()
    if entry["effect"] == "pure" and any(read["mode"] == LIVE for read in reads):
        entry["effect"] = "read"


def _has_yet_to_act(node: Node, result: FinishedTask) -> bool:
    return node.calls or result.renews is not None


def _outcome(result: FinishedTask) -> str:
    if result.diverged:
        return "diverged"
    if result.error:
        return "error"
    return "held" if result.gated else "done"


def _entry(graph: Compiled, task: Task) -> dict[str, Any]:
    effect = graph.nodes[task.node].effect
    return {
        "node": task.node,
        "visit": task.visit,
        "effect": effect,
        "tasks": 0,
        "ms": 0,
        "outcome": "",
    }


def open_node_entries(
    graph: Compiled,
    results: Mapping[Task, FinishedTask],
    unfinished: Mapping[Task, TaskOutcome],
) -> list[dict[str, Any]]:
    """Return `node_entries` for a superstep that stays open."""
    entries = node_entries(graph, results)
    for task, ended in unfinished.items():
        entry = _entry(graph, task)
        entry["tasks"] = 1
        entry["ms"] = ended.ms
        entry["outcome"] = ended.outcome
        entries.append(entry)
    return entries


def gate_entries(gates: Sequence[Settled]) -> list[dict[str, Any]]:
    """Return an entry for each gate that a settlement applied."""
    return [
        {
            "node": gate.task.node,
            "visit": gate.task.visit,
            "effect": "human",
            "tasks": 1,
            "ms": 0,
            "outcome": gate.outcome,
        }
        for gate in gates
    ]


def tape_word(entries: Sequence[dict[str, Any]]) -> str:
    """Return the word on the tape for a superstep with these `node_entries`."""
    return tape.word([entry["effect"] for entry in entries])


def place_of(
    frontier: Frontier, after: Planned | None, stopped: Sequence[str] = ()
) -> str:
    """Return where the run is now: the nodes that run next, else those that wait for
    people, or for a yes.
    """
    if after is not None and after.starts:
        nodes = [start.task.node for start in after.starts]
    else:
        nodes = [visit.split(":")[0] for visit in frontier.waiting]
        nodes += stopped
    # A node with several tasks is named once.
    return ", ".join(dict.fromkeys(nodes))


def status_events(
    status: str, frontier: Frontier, stopped: Sequence[str] = ()
) -> list[NewEvent]:
    """Return the event of a run that rests or ended; `stopped` are the nodes before
    which it waits for a yes.
    """
    if status == Status.RUNNING:
        return []
    if status != Status.PAUSED:
        return [NewEvent(f"run_{status}")]
    facts: dict[str, Any] = {"waiting": sorted(frontier.waiting)}
    if stopped:
        facts["stopped_before"] = list(stopped)
    return [NewEvent("run_paused", facts)]


def task_events(results: Mapping[Task, FinishedTask]) -> list[NewEvent]:
    """Return events for the unusual tasks of a superstep: errors that took their edge,
    branches that diverged, calls that no node prepares now.
    """
    events: list[NewEvent] = []
    for task, result in results.items():
        if result.error:
            facts = {
                "type": result.error.type,
                "message": result.error.message,
                "attempt": result.error.attempt,
                "edge": "error",
            }
            events.append(
                NewEvent("task_failed", facts, node=task.node, task=str(task))
            )
        if result.diverged:
            diverged = NewEvent(
                "task_diverged", result.diverged, node=task.node, task=str(task)
            )
            events.append(diverged)
        if result.passed and result.why:
            warning = {"code": "call_not_prepared", "message": result.why}
            events.append(NewEvent("warning", warning, node=task.node, task=str(task)))
    return events


def unfinished_events(tasks: Sequence[tuple[Task, TaskOutcome]]) -> list[NewEvent]:
    """Return one event for each task that failed, is unknown, or waits for its next
    attempt.
    """
    kinds = {
        "failed": "task_failed",
        "unknown": "task_unknown",
        "later": "retry_planned",
    }
    events: list[NewEvent] = []
    for task, ended in tasks:
        kind = kinds[ended.outcome]
        events.append(NewEvent(kind, _facts(ended), node=task.node, task=str(task)))
    return events


def _facts(ended: TaskOutcome) -> dict[str, Any]:
    error = ended.error or {}
    facts: dict[str, Any] = {
        "attempt": ended.attempt,
        "type": error.get("type", ""),
        "message": error.get("message", ""),
    }
    if ended.outcome == "later":
        facts["due_in_ms"] = int(ended.due_in * 1000)
    return facts


def stop_events(run_update: RunUpdate) -> list[NewEvent]:
    """Return the event of a run that stopped, with the reason, or that waits."""
    facts: dict[str, Any] = {}
    if run_update.error:
        facts["code"] = run_update.error["code"]
        facts["message"] = run_update.error["message"]
    return [NewEvent(f"run_{run_update.status}", facts)]


def gate_events(gates: Sequence[Settled]) -> list[NewEvent]:
    """Return one event for each gate that a settlement applied."""
    return [_gate_event(gate.outcome, gate.task) for gate in gates]


def _gate_event(outcome: str, task: Task) -> NewEvent:
    if outcome == DIVERGED:
        return NewEvent(
            "task_diverged", {"why": "no_record"}, node=task.node, task=str(task)
        )
    return NewEvent(
        "gate_applied", {"outcome": outcome}, node=task.node, task=str(task)
    )


def stop_error(outcome: str, task: Task, finish: TaskOutcome) -> dict[str, Any]:
    """Return why a run stopped, as its row keeps it."""
    error = finish.error or {}
    code = error.get("code", "node_failed")
    if outcome == "unknown":
        code = "outcome_unknown"
    return {
        **error,
        "code": code,
        "node": task.node,
        "task": str(task),
        "attempt": finish.attempt,
    }
