"""What lists and logs show of a superstep: short plain values, made once, when it commits. No database, no payloads."""

from collections.abc import Mapping, Sequence
from typing import Any

from checkpoints.core import tape
from checkpoints.core.status import Status
from checkpoints.event_log import NewEvent
from checkpoints.ledger.commit import RunUpdate
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.effect import DIVERGED
from orchestrator.engine.plan import Frontier, Planned
from orchestrator.engine.reduce import Settled
from orchestrator.engine.trace import LIVE
from orchestrator.execution.executor import TaskOutcome
from orchestrator.execution.open_superstep import FinishedTask

_RANKS = ["", "done", "held", "later", "error", "diverged", "failed", "unknown"]
"""Outcomes of tasks, the worst last: a node's entry has the worst of its tasks."""


def node_entries(graph: Compiled, kept: Mapping[Task, FinishedTask]) -> list[dict[str, Any]]:
    """One entry a node visit: {node, visit, effect, tasks, ms, outcome}, in declared order."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for task, one in kept.items():
        entry = found.get((task.node, task.visit))
        if entry is None:
            entry = found[task.node, task.visit] = _entry(graph, task)
        if entry["effect"] == "pure" and one.output and any(read["mode"] == LIVE for read in one.output.reads):
            entry["effect"] = "read"
        entry["tasks"] += 1
        entry["ms"] = max(entry["ms"], one.ms)
        outcome = "diverged" if one.diverged else "error" if one.error else "held" if one.gated else "done"
        entry["outcome"] = max(entry["outcome"], outcome, key=_RANKS.index)
    return sorted(found.values(), key=lambda e: (graph.order[e["node"]], e["visit"]))


def _entry(graph: Compiled, task: Task) -> dict[str, Any]:
    effect = graph.nodes[task.node].effect
    return {"node": task.node, "visit": task.visit, "effect": effect, "tasks": 0, "ms": 0, "outcome": ""}


def open_node_entries(
    graph: Compiled, kept: Mapping[Task, FinishedTask], unfinished: Mapping[Task, TaskOutcome]
) -> list[dict[str, Any]]:
    """As `node_entries`, for a superstep that stays open."""
    entries = node_entries(graph, kept)
    for task, finish in unfinished.items():
        entries.append({**_entry(graph, task), "tasks": 1, "ms": finish.ms, "outcome": finish.outcome})
    return entries


def gate_entries(gates: Sequence[Settled]) -> list[dict[str, Any]]:
    """The gates that a settlement applied."""
    return [
        {"node": g.task.node, "visit": g.task.visit, "effect": "human", "tasks": 1, "ms": 0, "outcome": g.outcome}
        for g in gates
    ]


def tape_word(entries: Sequence[dict[str, Any]]) -> str:
    """The word on the tape of a superstep with these `node_entries`."""
    return tape.word([entry["effect"] for entry in entries])


def place_of(frontier: Frontier, after: Planned | None, stopped: Sequence[str] = ()) -> str:
    """Where the run is now: the nodes that run next, else those that wait for people, or for a yes."""
    running = [start.task.node for start in after.starts] if after else []
    waiting = [visit.split(":")[0] for visit in frontier.waiting]
    return ", ".join(dict.fromkeys(running or [*waiting, *stopped]))


def status_events(status: str, frontier: Frontier, stopped: Sequence[str] = ()) -> list[NewEvent]:
    """The line that says that a run rests or ended; `stopped` are the nodes before which it waits for a yes."""
    if status == Status.PAUSED:
        facts: dict[str, Any] = {"waiting": sorted(frontier.waiting)}
        return [NewEvent("run_paused", facts | ({"stopped_before": list(stopped)} if stopped else {}))]
    return [] if status == Status.RUNNING else [NewEvent(f"run_{status}")]


def task_events(kept: Mapping[Task, FinishedTask]) -> list[NewEvent]:
    """Lines for what was out of the ordinary in a superstep: errors that took their edge, branches that diverged."""
    events = []
    for task, one in kept.items():
        if one.error:
            facts = {"type": one.error.type, "message": one.error.message, "attempt": one.error.attempt}
            events.append(NewEvent("task_failed", {**facts, "edge": "error"}, node=task.node, task=str(task)))
        if one.diverged:
            events.append(NewEvent("task_diverged", one.diverged, node=task.node, task=str(task)))
    return events


def unfinished_events(tasks: Sequence[tuple[Task, TaskOutcome]]) -> list[NewEvent]:
    """One line a task that failed, is unknown, or waits for its next attempt."""
    kinds = {"failed": "task_failed", "unknown": "task_unknown", "later": "retry_planned"}
    return [NewEvent(kinds[one.outcome], _facts(one), node=task.node, task=str(task)) for task, one in tasks]


def _facts(one: TaskOutcome) -> dict[str, Any]:
    error = one.error or {}
    facts = {"attempt": one.attempt, "type": error.get("type", ""), "message": error.get("message", "")}
    return {**facts, "due_in_ms": int(one.due_in * 1000)} if one.outcome == "later" else facts


def stop_events(run_update: RunUpdate) -> list[NewEvent]:
    """The line that says why a run stopped, or that it waits."""
    facts = {"code": run_update.error["code"], "message": run_update.error["message"]} if run_update.error else {}
    return [NewEvent(f"run_{run_update.status}", facts)]


def gate_events(gates: Sequence[Settled]) -> list[NewEvent]:
    """One line a gate that a settlement applied."""
    return [_gate_event(g.outcome, g.task) for g in gates]


def _gate_event(outcome: str, task: Task) -> NewEvent:
    if outcome == DIVERGED:
        return NewEvent("task_diverged", {"why": "no_record"}, node=task.node, task=str(task))
    return NewEvent("gate_applied", {"outcome": outcome}, node=task.node, task=str(task))


def stop_error(outcome: str, task: Task, finish: TaskOutcome) -> dict[str, Any]:
    """Why a run stopped, as its row keeps it."""
    found = finish.error or {}
    code = "outcome_unknown" if outcome == "unknown" else found.get("code", "node_failed")
    return {**found, "code": code, "node": task.node, "task": str(task), "attempt": finish.attempt}
