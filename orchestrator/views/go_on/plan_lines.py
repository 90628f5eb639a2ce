"""A plan as the page shows it: what is kept and what runs, in the graph's order, with
one word for each node. Pure.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from checkpoints.models.run_line import Travel
from orchestrator.engine import Task
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import READ
from orchestrator.engine.graphs.node import Node
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.travel.departure import HeldTask
from orchestrator.travel.plan import Plan

LOOKS = {
    "kept": "kept",
    "reused": "kept",
    "skipped": "held",
    "runs": "again",
    "reads again": "again",
    "first time": "again",
    "happens again": "live",
    "stops before": "held",
    "asks people": "ask",
}
"""Word -> CSS class."""
RUNS_IN = {
    Travel.FORK: "Runs in the fork",
    Travel.REPLAY: "Runs in the replay",
    Travel.REWIND: "Runs on the new line",
}


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One node and its effect, the word for what happens to it, and a remark."""

    node: str
    effect: str
    word: str
    remark: str = ""

    @property
    def look(self) -> str:
        return LOOKS[self.word]


@dataclass(frozen=True, slots=True)
class PlanGroup:
    """Lines under one heading.

    A heading may end with a node and a verb: "…, depending on what `ask` decides".
    """

    heading: str
    lines: list[PlanLine]
    node: str = ""
    verb: str = ""


@dataclass(slots=True)
class PlanSummary:
    """A plan in groups, with the counts that the page puts above them."""

    groups: list[PlanGroup] = field(default_factory=list)
    done: int = 0
    again: int = 0
    stops: int = 0
    asks: int = 0


@dataclass(frozen=True, slots=True)
class Allowable:
    """The box with which an effect that happened, or may have, may happen once more."""

    node: str
    effect: str
    doc: str
    certain: bool
    ticked: bool


@dataclass(frozen=True, slots=True)
class _NodeSets:
    """The nodes of a plan by what becomes of them."""

    reached: set[str]
    """Run for sure, or may run."""
    reused: set[str]
    """Their recorded outcome is taken."""
    asking: set[str]
    """Wait for people at the point, and do not run."""


def plan_summary(
    graph: Compiled,
    plan: Plan,
    *,
    held: Sequence[HeldTask] = (),
    visited: Collection[str],
    ran: Collection[str],
) -> PlanSummary:
    """Return the plan in groups of lines.

    `held` are the tasks that waited for people at the point, `visited` the nodes
    before it, `ran` those that ran in the run so far.
    """
    nodes = _node_sets(plan)
    before = _lines_before(graph, nodes, visited)
    reused = _reused_lines(graph, plan, nodes)
    running = _running_lines(graph, plan, nodes, ran)

    # What the superstep had done already belongs to what was there; a replay takes it
    # when it comes to it.
    if plan.travel == Travel.REPLAY:
        ahead = _in_graph_order(graph, [*reused, *running])
    else:
        before = [*before, *reused]
        ahead = running

    people_first = _lines_of_people(plan, nodes)
    skipped = _skipped_lines(graph, nodes, visited, people_first)
    groups = [
        PlanGroup("Kept from before", before),
        *_groups_ahead(graph, plan, people_first, ahead, held),
        PlanGroup("Not reached from here", skipped),
    ]
    new_lines = [*people_first, *ahead]
    return PlanSummary(
        groups=[group for group in groups if group.lines],
        done=len(before),
        again=_count(new_lines, "happens again"),
        stops=_count(new_lines, "stops before"),
        asks=_count(new_lines, "asks people"),
    )


def _node_sets(plan: Plan) -> _NodeSets:
    reached = _nodes_of([*plan.runs, *plan.may_run])
    reused = _nodes_of(plan.reused)
    asking = _nodes_of(plan.asks) - reached
    return _NodeSets(reached, reused, asking)


def _nodes_of(tasks: Iterable[Task]) -> set[str]:
    return {task.node for task in tasks}


def _lines_before(
    graph: Compiled, nodes: _NodeSets, visited: Collection[str]
) -> list[PlanLine]:
    """Return the lines of the nodes that were done before the point."""
    lines: list[PlanLine] = []
    for name in visited:
        # A visited node may be missing in the version that goes on.
        if name in graph.nodes and name not in nodes.asking:
            lines.append(PlanLine(name, graph.nodes[name].effect, "kept"))
    return lines


def _reused_lines(graph: Compiled, plan: Plan, nodes: _NodeSets) -> list[PlanLine]:
    names = nodes.reused - nodes.reached
    return [_reused_line(graph, plan, name) for name in graph.order if name in names]


def _reused_line(graph: Compiled, plan: Plan, name: str) -> PlanLine:
    """Return the line of a node whose recorded outcome is taken, with the reason that
    the plan gives.
    """
    node = graph.nodes[name]
    if plan.travel != Travel.REPLAY:
        return PlanLine(name, node.effect, "reused")
    reason = _reason_for_reuse(plan, name)
    sentence = f"{_capitalised(reason)}." if reason else ""
    return PlanLine(name, _effect_shown(node), "reused", sentence)


def _reason_for_reuse(plan: Plan, name: str) -> str:
    for task, reason in plan.notes.get("reused", {}).items():
        if task.partition(":")[0] == name:
            return reason
    return ""


def _running_lines(
    graph: Compiled, plan: Plan, nodes: _NodeSets, ran: Collection[str]
) -> list[PlanLine]:
    lines: list[PlanLine] = []
    for name in graph.order:
        if name in nodes.reached:
            node = graph.nodes[name]
            word, remark = _word_and_remark(node, plan, name, ran)
            lines.append(PlanLine(name, _effect_shown(node), word, remark))
    return lines


def _in_graph_order(graph: Compiled, lines: Iterable[PlanLine]) -> list[PlanLine]:
    return sorted(lines, key=lambda line: graph.order[line.node])


def _skipped_lines(
    graph: Compiled,
    nodes: _NodeSets,
    visited: Collection[str],
    people_first: Iterable[PlanLine],
) -> list[PlanLine]:
    """Return the lines of the nodes that the plan neither reaches nor has passed."""
    listed = nodes.reached | nodes.reused | {line.node for line in people_first}
    lines: list[PlanLine] = []
    for name in graph.order:
        if name not in listed and name not in visited:
            lines.append(PlanLine(name, graph.nodes[name].effect, "skipped"))
    return lines


def _groups_ahead(
    graph: Compiled,
    plan: Plan,
    people_first: list[PlanLine],
    ahead: list[PlanLine],
    held: Sequence[HeldTask],
) -> list[PlanGroup]:
    """Return two groups: what runs for sure, and what depends on something undecided."""
    sure = _nodes_of([*plan.runs, *plan.reused])
    stops = {line.node for line in ahead if line.word == "stops before"}
    deciders = _deciders(graph, sure, held)
    if not deciders and not plan.guarded:
        # Nothing but the missing yes keeps the run from these nodes.
        sure = sure | stops
    certain = [line for line in ahead if line.node in sure]
    uncertain = [line for line in ahead if line.node not in sure]
    return [
        PlanGroup(RUNS_IN[Travel(plan.travel)], [*people_first, *certain]),
        _uncertain_group(plan, uncertain, deciders, stops),
    ]


def _uncertain_group(
    plan: Plan, lines: list[PlanLine], deciders: Sequence[str], stops: Collection[str]
) -> PlanGroup:
    if plan.travel == Travel.REPLAY:
        return PlanGroup("May run, where the recorded outcomes lead", lines)
    if plan.guarded:
        return PlanGroup("Only once the patch is signed", lines)
    if len(deciders) == 1:
        return PlanGroup(
            "May run, depending on what", lines, node=deciders[0], verb="decides"
        )
    if not deciders and len(stops) == 1:
        return PlanGroup("Only once you allow", lines, node=next(iter(stops)))
    if not deciders and stops:
        return PlanGroup("Only once you allow what it stops before", lines)
    return PlanGroup("May run, depending on a decision not made yet", lines)


def _deciders(
    graph: Compiled, sure: Collection[str], held: Sequence[HeldTask]
) -> list[str]:
    """Return the nodes whose people or routers decide what follows, in the graph's
    order.
    """
    guards = {task.guard for task in held}
    deciders: list[str] = []
    for name in graph.order:
        if name in guards or (name in sure and _decides(graph, name)):
            deciders.append(name)
    return deciders


def _decides(graph: Compiled, name: str) -> bool:
    node = graph.nodes[name]
    return bool(
        node.gated or node.goto or _routes(graph, name) or graph.has_error_edge(name)
    )


def _routes(graph: Compiled, name: str) -> bool:
    """Return whether an edge out of a node is taken only under a condition."""
    edges = [edge for edge in graph.edges if edge.source == name]
    return any(edge.kind != "edge" or edge.when for edge in edges)


def _count(lines: Iterable[PlanLine], word: str) -> int:
    return sum(line.word == word for line in lines)


def _lines_of_people(plan: Plan, nodes: _NodeSets) -> list[PlanLine]:
    """Return what people have to sign before anything runs: the patch, and what waited
    at the point.
    """
    reasons = plan.notes.get("asks", {})
    lines: list[PlanLine] = []
    for task in plan.asks:
        people = _people(reasons.get(str(task), ""))
        if task.node == PATCH:
            remark = f"{people} must sign the patch."
            lines.append(PlanLine("the patch", "human", "asks people", remark))
        elif task.node in nodes.asking:
            remark = f"{people} must sign what it proposed."
            lines.append(PlanLine(task.node, "human", "asks people", remark))
    return lines


_QUORUM = re.compile(r"(\d+) of them")


def _people(reason: str) -> str:
    """Return the people whom a note of the plan names, as the beginning of a sentence."""
    # The note ends as in “… waits for group:finance, user:ann, 2 of them”.
    principals = reason.partition(" waits for ")[2].split(", ")
    quorum = _QUORUM.fullmatch(principals[-1])
    if quorum:
        principals.pop()
    # If a function will name the reviewers, the note has words about its gate instead.
    if not all(":" in principal for principal in principals):
        return "The reviewers"

    names = " or ".join(_name_of_principal(principal) for principal in principals)
    if quorum:
        return f"{quorum[1]} of {names}"
    return _capitalised(names)


def _name_of_principal(principal: str) -> str:
    kind, _, name = principal.partition(":")
    if kind == "perm":
        return f"holders of {name}"
    if kind == "group":
        return name.replace("_", " ")
    return name


def _word_and_remark(
    node: Node, plan: Plan, name: str, ran: Collection[str]
) -> tuple[str, str]:
    """Return the word for a node that runs or may run, and the remark beside it."""
    again = _nodes_of(plan.effects_again)
    perhaps = _nodes_of(plan.may_have_happened)
    # Tested first: such a node may also be among those whose effect happens again.
    if name in plan.stops:
        return "stops before", _remark_on_stop(name in perhaps - again)
    if name in again | perhaps:
        if node.gated:
            return "happens again", "You allow it below, once people have signed."
        return "happens again", "You allow it below."
    if node.gated:
        return "asks people", "A new question. Older signatures do not count."
    if node.effect == READ and name in ran:
        return "reads again", "It may see newer data."
    if node.effect in (READ, "write", "external"):
        return "first time", ""
    return "runs", ""


def _remark_on_stop(is_uncertain: bool) -> str:
    if is_uncertain:
        return "Nobody knows whether it happened."
    return "It happened already."


def _effect_shown(node: Node) -> str:
    """Return the effect to show for a node: `human` for a gated one, which acts through
    people.
    """
    return "human" if node.gated else node.effect


def _capitalised(text: str) -> str:
    """Return a text with a capital letter first, the others as they are."""
    return f"{text[:1].upper()}{text[1:]}"


def allowables(graph: Compiled, plan: Plan, ticked: Collection[str]) -> list[Allowable]:
    """Return one box for each node whose effect happened already, or may have."""
    certain = _nodes_of(plan.effects_again)
    perhaps = _nodes_of(plan.may_have_happened)
    offered = certain | perhaps | {*plan.stops} | {*ticked}
    boxes: list[Allowable] = []
    for name in graph.order:
        if name in offered:
            node = graph.nodes[name]
            box = Allowable(
                name,
                node.effect,
                node.doc,
                certain=name in certain,
                ticked=name in ticked,
            )
            boxes.append(box)
    return boxes
