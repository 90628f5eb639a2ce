"""What lists and logs show of a superstep: short plain values, made once, when it commits. No database, no payloads."""

from collections.abc import Mapping, Sequence
from typing import Any

from checkpoints.core import tape
from checkpoints.core.status import Status
from checkpoints.event_log import Draft
from checkpoints.ledger.commit import Turn
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.plan import Frontier, Planned
from orchestrator.engine.reduce import Settled
from orchestrator.engine.trace import LIVE
from orchestrator.execution.executor import Finish
from orchestrator.execution.open_superstep import Kept


def nodes(graph: Compiled, kept: Mapping[Task, Kept]) -> list[dict[str, Any]]:
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
        entry["outcome"] = _worse(entry["outcome"], _outcome(one))
    return sorted(found.values(), key=lambda e: (graph.order[e["node"]], e["visit"]))


def _entry(graph: Compiled, task: Task) -> dict[str, Any]:
    effect = graph.nodes[task.node].effect
    return {"node": task.node, "visit": task.visit, "effect": effect, "tasks": 0, "ms": 0, "outcome": ""}


def _outcome(one: Kept) -> str:
    if one.error:
        return "error"
    return "held" if one.gated else "done"


_RANKS = ["", "done", "held", "later", "error", "failed", "unknown"]


def _worse(old: str, new: str) -> str:
    return old if old == new else max(old, new, key=_RANKS.index)


def left(graph: Compiled, kept: Mapping[Task, Kept], unfinished: Mapping[Task, Finish]) -> list[dict[str, Any]]:
    """As `nodes`, for a superstep that stays open."""
    entries = nodes(graph, kept)
    for task, finish in unfinished.items():
        entries.append({**_entry(graph, task), "tasks": 1, "ms": finish.ms, "outcome": finish.outcome})
    return entries


def settled(gates: Sequence[Settled]) -> list[dict[str, Any]]:
    """The gates that a settlement applied."""
    return [
        {"node": g.task.node, "visit": g.task.visit, "effect": "human", "tasks": 1, "ms": 0, "outcome": g.outcome}
        for g in gates
    ]


def word(entries: Sequence[dict[str, Any]]) -> str:
    """The word on the tape of a superstep with these `nodes`."""
    return tape.word([entry["effect"] for entry in entries])


def at_node(frontier: Frontier, after: Planned | None) -> str:
    """Where the run is now: the nodes that run next, else those that wait for people."""
    running = [start.task.node for start in after.starts] if after else []
    waiting = [visit.split(":")[0] for visit in frontier.waiting]
    return ", ".join(dict.fromkeys(running or waiting))


def turned(status: str, frontier: Frontier) -> list[Draft]:
    """The line that says that a run rests or ended."""
    if status == Status.PAUSED:
        return [Draft("run_paused", {"waiting": sorted(frontier.waiting)})]
    return [] if status == Status.RUNNING else [Draft(f"run_{status}")]


def finished(kept: Mapping[Task, Kept]) -> list[Draft]:
    """Lines for what was out of the ordinary in a superstep: errors that took their edge, gates that needed nobody."""
    lines = []
    for task, one in kept.items():
        if one.error:
            facts = {"type": one.error.type, "message": one.error.message, "attempt": one.error.attempt}
            lines.append(Draft("task_failed", {**facts, "edge": "error"}, node=task.node, task=str(task)))
        if one.passed:
            lines.append(Draft("approval_not_needed", {}, node=task.node, task=str(task)))
    return lines


def unfinished(tasks: Sequence[tuple[Task, Finish]]) -> list[Draft]:
    """One line a task that failed, is unknown, or waits for its next attempt."""
    kinds = {"failed": "task_failed", "unknown": "task_unknown", "later": "retry_planned"}
    return [Draft(kinds[one.outcome], _facts(one), node=task.node, task=str(task)) for task, one in tasks]


def _facts(one: Finish) -> dict[str, Any]:
    error = one.error or {}
    facts = {"attempt": one.attempt, "type": error.get("type", ""), "message": error.get("message", "")}
    return {**facts, "due_in_ms": int(one.due_in * 1000)} if one.outcome == "later" else facts


def stopped(turn: Turn) -> list[Draft]:
    """The line that says why a run stopped, or that it waits."""
    facts = {"code": turn.error["code"], "message": turn.error["message"]} if turn.error else {}
    return [Draft(f"run_{turn.status}", facts)]


def applied(gates: Sequence[Settled]) -> list[Draft]:
    """One line a gate that a settlement applied."""
    return [Draft("gate_applied", {"outcome": g.outcome}, node=g.task.node, task=str(g.task)) for g in gates]


def error(outcome: str, task: Task, finish: Finish) -> dict[str, Any]:
    """Why a run stopped, as its row keeps it."""
    found = finish.error or {}
    code = "outcome_unknown" if outcome == "unknown" else found.get("code", "node_failed")
    return {**found, "code": code, "node": task.node, "task": str(task), "attempt": finish.attempt}
