"""The plan of going on from a point: what runs, what is reused, what would happen again, who is asked. Pure, once the
point and the effects elsewhere are read.

Fork, rewind, replay and a patched resume are carried out from it, and faces show it. Nothing happens that it does not
list.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from typing import Any
from uuid import UUID

from checkpoints.models.run_line import Travel
from checkpoints.timeline.past_effects import Effect
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frontier import Frontier
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH, is_patch_held, without_patch
from orchestrator.engine.outlook import Outlook, foresee, reached_behind
from orchestrator.engine.plan import plan as next_superstep
from orchestrator.execution.open_superstep import OpenSuperstep
from orchestrator.runs.departure import HeldTask


@frozen
class Plan:
    """What going on from a checkpoint would do; lists of tasks, in the order in which they are told.

    `runs`: at least one task of the node runs, unless one fails; `may_run`: a router, a person or an error decides.
    `reused`: what was recorded is taken. `effects_again` happened elsewhere already, and need a yes for their node;
    `may_have_happened`: nobody knows. `asks`: people are asked, now or when it gets there. `patched`: the channels that
    the patch changes; `guarded`: those of them whose gate's people must sign first, with its node. `stops`: the nodes
    that do not start without a yes. `notes` say of a task why it is listed, by list.
    """

    travel: str
    checkpoint: UUID
    runs: tuple[Task, ...] = ()
    may_run: tuple[Task, ...] = ()
    reused: tuple[Task, ...] = ()
    effects_again: tuple[Task, ...] = ()
    may_have_happened: tuple[Task, ...] = ()
    asks: tuple[Task, ...] = ()
    patched: tuple[str, ...] = ()
    guarded: dict[str, str] = field(default_factory=dict)
    stops: tuple[str, ...] = ()
    notes: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def needs_yes(self) -> list[str]:
        """The nodes of those effects that have no yes, sorted."""
        return sorted({task.node for task in (*self.effects_again, *self.may_have_happened)} & {*self.stops})

    def to_json(self) -> dict[str, Any]:
        """As the API gives it: each list as {task, node, why}."""
        lists = {name: [self._told(name, task) for task in getattr(self, name)] for name in LISTS}
        about = {"how": str(self.travel), "checkpoint": str(self.checkpoint), "needs_yes": self.needs_yes}
        return {**about, **lists, "patched": list(self.patched), "guarded": self.guarded}

    def _told(self, name: str, task: Task) -> dict[str, str]:
        return {"task": str(task), "node": task.node, "why": self.notes.get(name, {}).get(str(task), "")}

    def to_text(self) -> str:
        """As commands print it."""
        lines = [f"{self.travel} from {self.checkpoint}"]
        for name, title in LISTS.items():
            lines += [f"{title}:" if getattr(self, name) else f"{title}: nothing"]
            lines += [f"  {told['task']:<24} {told['why']}".rstrip() for told in self.to_json()[name]]
        if self.guarded:
            lines += ["Needs signatures before anything runs:"]
            lines += [f"  {channel:<24} the gate of {node}" for channel, node in self.guarded.items()]
        if self.needs_yes:
            lines += [f"Stops before {', '.join(self.needs_yes)} without a yes for each"]
        return "\n".join(lines)


RECORDED = "its recorded outcome is taken; where its input differs, this branch ends"
"""Why a plan says that a replay reuses a task that it does not run."""
LISTS = {
    "runs": "Runs",
    "may_run": "May run",
    "reused": "Reused",
    "effects_again": "Happened already, and would happen again",
    "may_have_happened": "May have happened, and would happen again",
    "asks": "Asks people",
}
"""The lists of a plan, with the words of commands."""


@frozen
class Change:
    """What a patch would change: `patched` channels; of them the `guarded` ones, each with the node of the gate that
    decides it; and the `tasks` that stand for it, one a gate, whose nodes are the `gates`.
    """

    patched: tuple[str, ...] = ()
    guarded: dict[str, str] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()
    gates: tuple[str, ...] = ()


def make_plan(
    graph: Compiled,
    frontier: Frontier,
    open_: OpenSuperstep,
    *,
    travel: str,
    checkpoint: UUID,
    effects: Sequence[Effect],
    asked: Sequence[HeldTask],
    change: Change,
    stops: Collection[str] = (),
    allowed: Collection[str] = (),
) -> Plan:
    """The plan of going on from this frontier. `stops` are nodes that needed a yes at the point already, `allowed`
    those that have it.
    """
    again = _first_of_each([one for one in effects if one.certain])
    maybe = _first_of_each([one for one in effects if not one.certain])
    before = ({one.task.node for one in effects} | {*stops}) - {*allowed}
    outlook = _outlook(graph, frontier, open_, before, patch_waits=bool(change.guarded) or is_patch_held(frontier))
    starting = {start.task.node: start.task for start in next_superstep(graph, frontier).starts}
    recorded: tuple[Task, ...] = ()
    if travel == Travel.REPLAY:
        ahead = [_next_task(frontier, starting, name) for name in _recorded(graph, outlook)]
        recorded = (*sorted(task for task in frontier.gated() if task.node != PATCH), *ahead)
        outlook = _without_recorded(graph, outlook)
    names = {*outlook.runs, *outlook.may_run}
    # What waits for people or has a result lands in memory when it is settled, or its superstep ends.
    landing = {one.task.node for one in asked} | {task.node for task in open_.results}
    reused = (*open_.results, *recorded)
    tasks = {name: _next_task(frontier, starting, name) for name in names}
    return Plan(
        str(Travel(travel)),
        checkpoint,
        runs=tuple(tasks[name] for name in outlook.runs),
        may_run=tuple(tasks[name] for name in outlook.may_run),
        reused=reused,
        effects_again=tuple(one.task for one in again if one.reaches(names, landing)),
        may_have_happened=tuple(one.task for one in maybe if one.reaches(names, landing)),
        asks=_asks(graph, change, asked, outlook, tasks, travel=travel),
        patched=change.patched,
        guarded=dict(change.guarded),
        stops=tuple(sorted(before)),
        notes=_notes(graph, change, asked, outlook, tasks, again=again, maybe=maybe, reused=reused, recorded=recorded),
    )


def _recorded(graph: Compiled, outlook: Outlook) -> list[str]:
    """The nodes of an outlook that a replay, which has no outside, does not run: their recorded outcome is taken."""
    reached = {*outlook.runs, *outlook.may_run}
    return [name for name, node in graph.nodes.items() if name in reached and (node.gated or node.journaled)]


def _without_recorded(graph: Compiled, outlook: Outlook) -> Outlook:
    """What of an outlook a replay runs. Behind an outcome that is taken nothing is certain: its input may differ."""
    recorded = {*_recorded(graph, outlook)}
    behind = reached_behind(graph, recorded)
    sure = tuple(name for name in outlook.runs if name not in recorded | behind)
    left = {*outlook.runs, *outlook.may_run} - recorded - {*sure}
    return Outlook(sure, tuple(name for name in graph.nodes if name in left))


def _first_of_each(effects: Iterable[Effect]) -> list[Effect]:
    """One of each task: on which line it happened does not matter."""
    return list({one.task: one for one in reversed(list(effects))}.values())[::-1]


def _outlook(
    graph: Compiled, frontier: Frontier, open_: OpenSuperstep, stops: Collection[str], *, patch_waits: bool
) -> Outlook:
    """What can run; nothing is certain while people must sign a patch, or while a superstep that is open stops before
    one of its nodes. A node all of whose tasks have results runs again only where something leads back to it.
    """
    frontier = without_patch(frontier)
    found = foresee(graph, frontier, stops=stops)
    starts = next_superstep(graph, frontier).starts
    left = {start.task.node for start in starts if start.task not in open_.results}
    kept = {start.task.node for start in starts} - left
    uncertain = patch_waits or bool(open_.superstep and left & {*stops})
    again = kept & _led_back(graph, {*found.runs, *found.may_run})
    everything = [name for name in graph.nodes if name in {*found.runs, *found.may_run} - (kept - again)]
    sure = {*found.runs} - kept if not uncertain else set()
    return Outlook(tuple(n for n in everything if n in sure), tuple(n for n in everything if n not in sure))


def _led_back(graph: Compiled, nodes: Collection[str]) -> set[str]:
    """The nodes that one of these leads to."""
    return {edge.target for edge in graph.edges if edge.source in nodes}


def _next_task(frontier: Frontier, starting: dict[str, Task], node: str) -> Task:
    """The first task of a node that would run: its visits go on from the point."""
    return starting.get(node) or Task(node, frontier.visits.get(node, 0) + 1, 0)


def _asks(
    graph: Compiled, change: Change, asked: Sequence[HeldTask], outlook: Outlook, tasks: dict[str, Task], *, travel: str
) -> tuple[Task, ...]:
    if travel == Travel.REPLAY:
        return ()
    gated = [tasks[name] for name in (*outlook.runs, *outlook.may_run) if graph.nodes[name].gated]
    return tuple(dict.fromkeys([*change.tasks, *[one.task for one in asked], *gated]))


def _notes(
    graph: Compiled,
    change: Change,
    asked: Sequence[HeldTask],
    outlook: Outlook,
    tasks: dict[str, Task],
    *,
    again: Sequence[Effect],
    maybe: Sequence[Effect],
    reused: Sequence[Task],
    recorded: Sequence[Task],
) -> dict[str, dict[str, str]]:
    waits = {str(one.task): f"its proposal waits for {_people(graph, one.guard)}" for one in asked}
    for task, node in zip(change.tasks, change.gates, strict=True):
        waits[str(task)] = f"the patch waits for {_people(graph, node)}"
    gated = [name for name in (*outlook.runs, *outlook.may_run) if graph.nodes[name].gated]
    waits |= {str(tasks[name]): f"what it proposes waits for {_people(graph, name)}" for name in gated}
    return {
        "runs": {str(tasks[name]): graph.nodes[name].effect for name in outlook.runs},
        "may_run": {str(tasks[name]): graph.nodes[name].effect for name in outlook.may_run},
        "reused": {str(task): RECORDED if task in recorded else "its recorded result is taken" for task in reused},
        "effects_again": {str(one.task): one.effect for one in again},
        "may_have_happened": {str(one.task): f"{one.effect}; nobody wrote down whether it happened" for one in maybe},
        "asks": waits,
    }


def _people(graph: Compiled, node: str) -> str:
    gate = graph.nodes[node].gate if node in graph.nodes else None
    named = gate.reviewers if gate is not None and gate.reviewers is not None else graph.graph.reviewers
    if gate is None or callable(named):
        return f"the people of the gate of {node}"
    how = f", {gate.quorum} of them" if gate.quorum > 1 else ""
    return f"{', '.join(sorted(str(one) for one in named or []))}{how}"


def checked_nodes(graph: Compiled, nodes: Any) -> frozenset[str]:
    """Names of nodes, as `allow_effects` gives them. Raises `InvalidValue` for another kind, and for unknown names."""
    if unknown := sorted(set(checked_names(nodes)) - set(graph.nodes)):
        message = f"{graph.name} has no node {', '.join(unknown)}"
        raise InvalidValue(message, path="allow_effects", nodes=unknown)
    return frozenset(nodes)


def checked_names(nodes: Any) -> tuple[str, ...]:
    """What `allow_effects` gives, whatever the graph. Raises `InvalidValue` for another kind."""
    if isinstance(nodes, str) or not isinstance(nodes, Collection) or not all(isinstance(n, str) for n in nodes):
        raise InvalidValue("allow_effects is a list of names of nodes", path="allow_effects")
    return tuple(nodes)
