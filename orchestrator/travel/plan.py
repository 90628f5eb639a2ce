"""The plan of continuing from a checkpoint: what runs, what is reused, what would
happen again, who is asked. Pure, once the checkpoint and the effects elsewhere are
read.

Forks, rewinds, replays and patched resumes are carried out from it, and pages, API and
commands show it. Nothing happens that it does not list.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any
from uuid import UUID

from checkpoints.models.run_line import Travel
from checkpoints.timeline.past_effects import Effect
from orchestrator.engine import Task
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.call import is_call
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.frontier import Frontier
from orchestrator.engine.step.held_patch import PATCH, is_patch_held, without_patch
from orchestrator.engine.step.plan import plan as next_superstep
from orchestrator.engine.travel.outlook import Outlook, foresee, reached_behind
from orchestrator.execution.open_superstep import OpenSuperstep
from orchestrator.travel.departure import HeldTask


@frozen
class Plan:
    """The outcome of continuing from a checkpoint, as lists of tasks in the order in
    which they are shown.

    `runs`: at least one task of the node runs, unless one fails; `may_run`: a router, a
    person or an error decides. `reused`: the recorded result is taken. `effects_again`
    happened elsewhere already, and need a yes for their node; for `may_have_happened`
    nobody knows. `asks`: people are asked, now or when the run gets there. `patched`:
    the channels that the patch changes; `guarded`: those that people must sign first,
    each with the node of their gate. `stops`: the nodes that do not start without a
    yes. `notes`: by list and task, why the task is listed.
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
        """Return the nodes of those effects that have no yes, sorted."""
        effects = (*self.effects_again, *self.may_have_happened)
        return sorted({task.node for task in effects}.intersection(self.stops))

    def to_json(self) -> dict[str, Any]:
        """Return the plan as the API gives it: each list as {task, node, why}."""
        plan: dict[str, Any] = {
            "how": str(self.travel),
            "checkpoint": str(self.checkpoint),
            "needs_yes": self.needs_yes,
        }
        for name in LISTS:
            plan[name] = self._entries(name)
        plan["patched"] = list(self.patched)
        plan["guarded"] = self.guarded
        return plan

    def _entries(self, name: str) -> list[dict[str, str]]:
        notes = self.notes.get(name, {})
        entries: list[dict[str, str]] = []
        for task in getattr(self, name):
            why = notes.get(str(task), "")
            entries.append({"task": str(task), "node": task.node, "why": why})
        return entries

    def to_text(self) -> str:
        """Return the plan as commands print it."""
        lines = [f"{self.travel} from {self.checkpoint}"]
        for name, title in LISTS.items():
            entries = self._entries(name)
            lines.append(f"{title}:" if entries else f"{title}: nothing")
            for entry in entries:
                lines.append(f"  {entry['task']:<24} {entry['why']}".rstrip())
        if self.guarded:
            lines.append("Needs signatures before anything runs:")
            for channel, node in self.guarded.items():
                lines.append(f"  {channel:<24} the gate of {node}")
        if self.needs_yes:
            nodes = ", ".join(self.needs_yes)
            lines.append(f"Stops before {nodes} without a yes for each")
        return "\n".join(lines)


KEPT = "its recorded result is taken"
"""Why a plan lists a task under `reused` whose result the open superstep has."""
RECORDED = "its recorded outcome is taken; where its input differs, this branch ends"
"""Why a replay lists a task under `reused` that it does not run."""

LISTS = {
    "runs": "Runs",
    "may_run": "May run",
    "reused": "Reused",
    "effects_again": "Happened already, and would happen again",
    "may_have_happened": "May have happened, and would happen again",
    "asks": "Asks people",
}
"""The lists of a plan, with their titles in commands."""


@frozen
class PatchEffect:
    """The effect of a patch: the `patched` channels; the `guarded` ones of them, each
    with the node of the gate that decides it; and the `tasks` that stand for the patch,
    one for each gate, whose nodes are the `gates`.
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
    waiting: Sequence[HeldTask],
    change: PatchEffect,
    stops: Collection[str] = (),
    allowed: Collection[str] = (),
) -> Plan:
    """Return the plan of continuing from this frontier. `waiting` are the tasks about
    which people are asked there; `stops` are nodes that needed a yes there already,
    `allowed` those that have it.
    """
    # A yes that was needed before is needed still, even if nothing would be repeated.
    without_yes = {effect.task.node for effect in effects}
    without_yes.update(stops)
    without_yes.difference_update(allowed)
    patch_waits = bool(change.guarded) or is_patch_held(frontier)
    outlook = _outlook(graph, frontier, open_, without_yes, patch_waits=patch_waits)
    # A call that people are asked about has not run, though its proposal is kept.
    asked_calls = _asked_calls(open_)
    outlook = _with_calls(graph, outlook, asked_calls)
    kept_results = _without(open_.results, asked_calls)
    ready = {task for task in frontier.ready_calls() if task not in kept_results}
    next_tasks = _next_tasks(graph, frontier, [*ready, *asked_calls])

    # A replay has no outside: it takes the recorded outcomes of its effects and gates.
    recorded: list[Task] = []
    if travel == Travel.REPLAY:
        nodes = _recorded_nodes(graph, outlook)
        recorded = _recorded_tasks(frontier, nodes, next_tasks)
        outlook = _without_recorded(graph, outlook, {*nodes})
    runs, may_run = _tasks_ahead(graph, outlook, next_tasks, ready)
    reused = [*kept_results, *recorded]

    # Proposals that wait and results that are kept land in memory when they are
    # settled, or when their superstep ends.
    running = _nodes_of([*runs, *may_run])
    landing = _nodes_of(open_.results).union(held.task.node for held in waiting)
    again = repeated_effects(effects, running, landing, certain=True)
    maybe = repeated_effects(effects, running, landing, certain=False)

    asks: dict[Task, str] = {}
    if travel != Travel.REPLAY:
        asks = _reasons_to_ask(graph, change, waiting, [*runs, *may_run], ready)

    notes = {
        "runs": _effect_notes(graph, runs),
        "may_run": _effect_notes(graph, may_run),
        "reused": dict.fromkeys(map(str, kept_results), KEPT),
    }
    notes["reused"] |= dict.fromkeys(map(str, recorded), RECORDED)
    reasons = {"effects_again": again, "may_have_happened": maybe, "asks": asks}
    for name, reason_by_task in reasons.items():
        notes[name] = {}
        for task, why in reason_by_task.items():
            notes[name][str(task)] = why

    return Plan(
        str(Travel(travel)),
        checkpoint,
        runs=tuple(runs),
        may_run=tuple(may_run),
        reused=tuple(reused),
        effects_again=tuple(again),
        may_have_happened=tuple(maybe),
        asks=tuple(asks),
        patched=change.patched,
        guarded=dict(change.guarded),
        stops=tuple(sorted(without_yes)),
        notes=notes,
    )


def _tasks_of(
    next_tasks: Mapping[str, Sequence[Task]], nodes: Iterable[str]
) -> list[Task]:
    tasks: list[Task] = []
    for node in nodes:
        tasks += next_tasks[node]
    return tasks


def _tasks_ahead(
    graph: Compiled,
    outlook: Outlook,
    next_tasks: Mapping[str, Sequence[Task]],
    ready: Collection[Task],
) -> tuple[list[Task], list[Task]]:
    """Return the tasks that run unless one fails, and those that may run. If people
    approve a node's calls first, only the approved ones are certain.
    """
    runs: list[Task] = []
    may_run: list[Task] = []
    for node in _as_declared(graph, {*outlook.runs, *outlook.may_run}):
        for task in next_tasks[node]:
            is_decided = task in ready or graph.nodes[node].approve != "call"
            if node in outlook.runs and is_decided:
                runs.append(task)
            else:
                may_run.append(task)
    return runs, may_run


def _nodes_of(tasks: Iterable[Task]) -> set[str]:
    return {task.node for task in tasks}


def _recorded_tasks(
    frontier: Frontier, nodes: Sequence[str], next_tasks: Mapping[str, Sequence[Task]]
) -> list[Task]:
    """Return the tasks whose recorded outcome a replay takes: those at gates, then
    those of these nodes, which would come.
    """
    at_gates = sorted(task for task in frontier.gated() if task.node != PATCH)
    return at_gates + _without(_tasks_of(next_tasks, nodes), at_gates)


def _recorded_nodes(graph: Compiled, outlook: Outlook) -> list[str]:
    """Return the nodes of an outlook that a replay, which has no outside, does not run:
    their recorded outcome is taken.
    """
    recorded: list[str] = []
    for name in _as_declared(graph, {*outlook.runs, *outlook.may_run}):
        node = graph.nodes[name]
        if node.gated or node.journaled:
            recorded.append(name)
    return recorded


def _without_recorded(graph: Compiled, outlook: Outlook, recorded: set[str]) -> Outlook:
    """Return what a replay runs of an outlook. Nothing after a recorded outcome is
    certain, because its input may differ.
    """
    behind = reached_behind(graph, recorded)
    certain = [name for name in outlook.runs if name not in recorded | behind]
    possible = {*outlook.runs, *outlook.may_run} - recorded - {*certain}
    return Outlook(tuple(certain), tuple(_as_declared(graph, possible)))


def _as_declared(graph: Compiled, nodes: Collection[str]) -> list[str]:
    """Return these nodes in the order in which the graph declares them."""
    return [name for name in graph.nodes if name in nodes]


def repeated_effects(
    effects: Sequence[Effect],
    running: Collection[str],
    landing: Collection[str],
    *,
    certain: bool,
) -> dict[Task, str]:
    """Return the tasks whose effects would happen again, each with the note that a plan
    shows. `certain` chooses between effects that happened and those that may have.
    """
    # The first effect of each task, because on which line it happened does not matter;
    # in the order of each task's last one.
    first_by_task: dict[Task, Effect] = {}
    for effect in reversed(effects):
        # A task may both act in the world and land in memory, and only one happen again.
        if effect.certain == certain and effect.reaches(running, landing):
            first_by_task[effect.task] = effect

    notes: dict[Task, str] = {}
    for effect in reversed(first_by_task.values()):
        notes[effect.task] = effect.effect
        if not certain:
            notes[effect.task] += "; nobody wrote down whether it happened"
    return notes


def _outlook(
    graph: Compiled,
    frontier: Frontier,
    open_: OpenSuperstep,
    stops: Collection[str],
    *,
    patch_waits: bool,
) -> Outlook:
    """Return what can run. Nothing is certain while people must sign a patch, or while
    an open superstep stops before one of its nodes. A node whose tasks all have results
    runs again only if something leads back to it.
    """
    frontier = without_patch(frontier)
    foreseen = foresee(graph, frontier, stops=stops)
    foreseen_nodes = {*foreseen.runs, *foreseen.may_run}

    # A superstep that is open waits as a whole.
    starts = next_superstep(graph, frontier).starts
    starting = [start.task for start in starts]
    unfinished = _nodes_of(task for task in starting if task not in open_.results)
    finished = _nodes_of(starting) - unfinished
    is_stopped = bool(open_.superstep and unfinished.intersection(stops))

    led_back = {edge.target for edge in graph.edges if edge.source in foreseen_nodes}
    possible = foreseen_nodes - (finished - led_back)
    certain: set[str] = set()
    if not patch_waits and not is_stopped:
        certain = {*foreseen.runs} - finished
    return Outlook(
        tuple(_as_declared(graph, certain & possible)),
        tuple(_as_declared(graph, possible - certain)),
    )


def _asked_calls(open_: OpenSuperstep) -> set[Task]:
    """Return the tasks of an open superstep whose calls wait for people."""
    calls: set[Task] = set()
    for task, finished in open_.results.items():
        writes = finished.output.writes if finished.output is not None else ()
        if finished.gated and any(is_call(write.channel) for write in writes):
            calls.add(task)
    return calls


def _without(tasks: Iterable[Task], others: Collection[Task]) -> list[Task]:
    return [task for task in tasks if task not in others]


def _with_calls(
    graph: Compiled,
    outlook: Outlook,
    asked_calls: Collection[Task],
) -> Outlook:
    """Return an outlook in which these calls may run: if they are approved."""
    if not asked_calls:
        return outlook
    nodes = _nodes_of(asked_calls)
    return Outlook(
        tuple(node for node in outlook.runs if node not in nodes),
        tuple(_as_declared(graph, nodes.union(outlook.may_run))),
    )


def _next_tasks(
    graph: Compiled, frontier: Frontier, calls: Collection[Task]
) -> dict[str, list[Task]]:
    """Return for each node the task that would run next: its visits continue from the
    checkpoint's. A node that is called once people have approved it has each of its
    calls that is ready (or asked about in an open superstep: these `calls`) or waits.
    """
    tasks: dict[str, list[Task]] = {}
    for node in graph.nodes:
        tasks[node] = [Task(node, frontier.visits.get(node, 0) + 1, 0)]
    # A call that waits for people, or runs next, has its visit already.
    begun = {*calls}
    if frontier.waiting:
        begun.update(_calls_that_wait(graph, frontier))
    called = {task.node for task in begun}
    for node in called:
        tasks[node] = []
    for start in next_superstep(graph, frontier).starts:
        if start.task.node not in called:
            tasks[start.task.node] = [start.task]
        elif not start.is_call:
            # A further visit of the same node is about to be prepared.
            begun.add(start.task)
    for task in sorted(begun):
        tasks[task.node].append(task)
    return tasks


def _calls_that_wait(graph: Compiled, frontier: Frontier) -> list[Task]:
    waiting: list[Task] = []
    for task in sorted(frontier.gated()):
        if task.node in graph.nodes and graph.nodes[task.node].calls:
            waiting.append(task)
    return waiting


def _reasons_to_ask(
    graph: Compiled,
    change: PatchEffect,
    waiting: Sequence[HeldTask],
    running: Sequence[Task],
    approved: Collection[Task],
) -> dict[Task, str]:
    """Return the tasks about which people are asked, now or later, and why. `approved`
    are calls that people have approved.
    """
    reasons: dict[Task, str] = {}
    for task, node in zip(change.tasks, change.gates, strict=True):
        reasons[task] = f"the patch waits for {_people(graph, node)}"
    for held in waiting:
        reason = f"its proposal waits for {_people(graph, held.guard)}"
        reasons.setdefault(held.task, reason)
    for task in running:
        # A call that people approved runs, and one that waits is listed already.
        if graph.nodes[task.node].gated and task not in approved:
            people = _people(graph, task.node)
            reasons.setdefault(task, f"what it proposes waits for {people}")
    return reasons


def _effect_notes(graph: Compiled, tasks: Sequence[Task]) -> dict[str, str]:
    notes: dict[str, str] = {}
    for task in tasks:
        notes[str(task)] = graph.nodes[task.node].effect
    return notes


def _people(graph: Compiled, node: str) -> str:
    """Return words for the people whom the gate of a node asks."""
    gate = None
    if node in graph.nodes:
        gate = graph.nodes[node].gate
    reviewers = graph.graph.reviewers
    if gate is not None and gate.reviewers is not None:
        reviewers = gate.reviewers
    # Whom a function will name is not known before it is called.
    if gate is None or gate.terms is not None or callable(reviewers):
        return f"the people of the gate of {node}"
    names = ", ".join(sorted(str(reviewer) for reviewer in reviewers or []))
    if gate.quorum > 1:
        return f"{names}, {gate.quorum} of them"
    return names


def checked_nodes(graph: Compiled, nodes: Any) -> frozenset[str]:
    """Return the names of nodes that `allow_effects` holds. Raises `InvalidValue` for
    another kind of value, and for unknown names.
    """
    unknown = sorted(set(checked_names(nodes)) - set(graph.nodes))
    if unknown:
        message = f"{graph.name} has no node {', '.join(unknown)}"
        raise InvalidValue(message, path="allow_effects", nodes=unknown)
    return frozenset(nodes)


def checked_names(nodes: Any) -> tuple[str, ...]:
    """Return what `allow_effects` holds, whatever the graph. Raises `InvalidValue` for
    another kind of value.
    """
    # A text is a collection too, of its letters.
    is_list = isinstance(nodes, Collection) and not isinstance(nodes, str)
    if not is_list or not all(isinstance(name, str) for name in nodes):
        raise InvalidValue(
            "allow_effects is a list of names of nodes", path="allow_effects"
        )
    return tuple(nodes)
