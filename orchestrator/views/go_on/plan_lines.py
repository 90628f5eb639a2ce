"""A plan as the page tells it: what is kept, what runs and how, in the graph's order, with one word each. Pure."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from checkpoints.models.run_line import Travel
from orchestrator.engine.compile import Compiled
from orchestrator.engine.effect import READ
from orchestrator.engine.held_patch import PATCH
from orchestrator.runs.departure import HeldTask
from orchestrator.runs.travel_plan import Plan

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
RUNS_IN = {Travel.FORK: "Runs in the fork", Travel.REPLAY: "Runs in the replay", Travel.REWIND: "Runs on the new line"}


@dataclass(frozen=True, slots=True)
class PlanLine:
    """One node, its effect, one word, and more of it."""

    node: str
    effect: str
    word: str
    more: str = ""

    @property
    def look(self) -> str:
        return LOOKS[self.word]


@dataclass(frozen=True, slots=True)
class PlanGroup:
    """Lines under one heading, which may end with a node and what it does: "…, depending on what `ask` decides"."""

    heading: str
    lines: list[PlanLine]
    node: str = ""
    verb: str = ""


@dataclass(slots=True)
class PlanTold:
    """A plan in groups, counted."""

    groups: list[PlanGroup] = field(default_factory=list)
    kept: int = 0
    again: int = 0
    stops: int = 0
    asks: int = 0


@dataclass(frozen=True, slots=True)
class Allowable:
    """An effect that happened, or may have: the box that lets it happen once more."""

    node: str
    effect: str
    doc: str
    certain: bool
    ticked: bool


def plan_told(
    graph: Compiled,
    plan: Plan,
    *,
    asked: Sequence[HeldTask] = (),
    visited: Collection[str],
    ran: Collection[str],
) -> PlanTold:
    """The plan in words. `asked` are the tasks that waited for people at the point, `visited` the nodes before it,
    `ran` those that ran in the run so far.
    """
    reach = {*[task.node for task in plan.runs], *[task.node for task in plan.may_run]}
    reused = {task.node for task in plan.reused}
    waiting = {task.node for task in plan.asks} - reach
    done = [name for name in visited if name in graph.nodes and name not in waiting]
    kept = [PlanLine(name, graph.nodes[name].effect, "kept") for name in done]
    taken = [_reused_line(graph, plan, name) for name in graph.order if name in reused and name not in reach]
    if plan.travel != Travel.REPLAY:
        # What the superstep had done already belongs to what was there; a replay takes it where it comes to it.
        kept = [*kept, *taken]
        taken = []
    first = _asked(graph, plan)
    running = [_line(graph, plan, name, ran) for name in graph.order if name in reach]
    ahead = sorted([*taken, *running], key=lambda line: graph.order[line.node])
    never = [name for name in graph.order if name not in reach and name not in reused and name not in visited]
    waiting_lines = {line.node for line in first}
    skipped = [PlanLine(name, graph.nodes[name].effect, "skipped") for name in never if name not in waiting_lines]
    everything = [*first, *ahead]
    told = PlanTold(kept=len(kept))
    told.groups = [
        PlanGroup("Kept from before", kept),
        *_groups_ahead(graph, plan, first, ahead, asked),
        PlanGroup("Not reached from here", skipped),
    ]
    told.groups = [group for group in told.groups if group.lines]
    told.again = _count(everything, "happens again")
    told.stops = _count(everything, "stops before")
    told.asks = _count(everything, "asks people")
    return told


def _groups_ahead(
    graph: Compiled, plan: Plan, first: list[PlanLine], ahead: list[PlanLine], asked: Sequence[HeldTask]
) -> list[PlanGroup]:
    """Return what runs for sure, and apart from it what depends on something that is not decided yet."""
    sure = {task.node for task in (*plan.runs, *plan.reused)}
    stops = {line.node for line in ahead if line.word == "stops before"}
    deciders = _deciders(graph, sure, asked)
    if not deciders and not plan.guarded:
        # Nothing but the missing yes keeps the run from these nodes.
        sure = sure | stops
    certain = [*first, *[line for line in ahead if line.node in sure]]
    uncertain = [line for line in ahead if line.node not in sure]
    return [
        PlanGroup(RUNS_IN[Travel(plan.travel)], certain),
        _uncertain_group(plan, uncertain, deciders, stops),
    ]


def _uncertain_group(plan: Plan, lines: list[PlanLine], deciders: Sequence[str], stops: Collection[str]) -> PlanGroup:
    if plan.travel == Travel.REPLAY:
        return PlanGroup("May run, where the recorded outcomes lead", lines)
    if plan.guarded:
        return PlanGroup("Only once the patch is signed", lines)
    if len(deciders) == 1:
        return PlanGroup("May run, depending on what", lines, node=deciders[0], verb="decides")
    if not deciders and len(stops) == 1:
        return PlanGroup("Only once you allow", lines, node=next(iter(stops)))
    if not deciders and stops:
        return PlanGroup("Only once you allow what it stops before", lines)
    return PlanGroup("May run, depending on a decision not made yet", lines)


def _deciders(graph: Compiled, sure: Collection[str], asked: Sequence[HeldTask]) -> list[str]:
    """Return the nodes whose people or routers decide what follows, in the graph's order."""
    waiting = {held.guard for held in asked}
    return [name for name in graph.order if name in waiting or (name in sure and _decides(graph, name))]


def _decides(graph: Compiled, name: str) -> bool:
    node = graph.nodes[name]
    routes = any(edge.source == name and (edge.kind != "edge" or edge.when) for edge in graph.edges)
    return bool(node.gated or node.goto or routes or graph.has_error_edge(name))


def _count(lines: Iterable[PlanLine], word: str) -> int:
    return sum(1 for line in lines if line.word == word)


def _asked(graph: Compiled, plan: Plan) -> list[PlanLine]:
    """Return what people are asked before anything runs: the patch, and what waited at the point."""
    reach = {task.node for task in (*plan.runs, *plan.may_run)}
    lines: list[PlanLine] = []
    for task in plan.asks:
        if task.node in reach and task.node != PATCH:
            continue
        people = _people(plan.notes.get("asks", {}).get(str(task), ""))
        if task.node == PATCH:
            lines.append(PlanLine("the patch", "human", "asks people", f"{people} must sign the patch."))
        else:
            lines.append(PlanLine(task.node, "human", "asks people", f"{people} must sign what it proposed."))
    return lines


_QUORUM = re.compile(r"(\d+) of them")


def _people(why: str) -> str:
    """Return whom a note of the plan names, as the beginning of a sentence."""
    named = why.partition(" waits for ")[2].split(", ")
    quorum = _QUORUM.fullmatch(named[-1])
    principals = named[:-1] if quorum else named
    if not all(":" in principal for principal in principals):
        return "The reviewers"
    names = " or ".join(_name_of_principal(principal) for principal in principals)
    text = f"{quorum[1]} of {names}" if quorum else names
    return text[:1].upper() + text[1:]


def _name_of_principal(principal: str) -> str:
    kind, _, name = principal.partition(":")
    if kind == "perm":
        return f"holders of {name}"
    return name.replace("_", " ") if kind == "group" else name


def _reused_line(graph: Compiled, plan: Plan, name: str) -> PlanLine:
    """Return the line of a node whose recorded outcome is taken, with the reason that the plan gives."""
    node = graph.nodes[name]
    if plan.travel != Travel.REPLAY:
        return PlanLine(name, node.effect, "reused")
    notes = plan.notes.get("reused", {})
    why = next((why for task, why in notes.items() if task.partition(":")[0] == name), "")
    effect = "human" if node.gated else node.effect
    return PlanLine(name, effect, "reused", f"{why[:1].upper()}{why[1:]}." if why else "")


def _line(graph: Compiled, plan: Plan, name: str, ran: Collection[str]) -> PlanLine:
    node = graph.nodes[name]
    effect = "human" if node.gated else node.effect
    word, more = _word(graph, plan, name, ran)
    return PlanLine(name, effect, word, more)


def _word(graph: Compiled, plan: Plan, name: str, ran: Collection[str]) -> tuple[str, str]:
    node = graph.nodes[name]
    again = {task.node for task in plan.effects_again}
    perhaps = {task.node for task in plan.may_have_happened}
    if name in plan.stops:
        return (
            "stops before",
            "Nobody knows whether it happened." if name in perhaps - again else "It happened already.",
        )
    if name in again | perhaps:
        return (
            "happens again",
            "You allow it below." if not node.gated else "You allow it below, once people have signed.",
        )
    if node.gated:
        return "asks people", "A new question. Older signatures do not count."
    if node.effect == READ:
        return ("reads again", "It may see newer data.") if name in ran else ("first time", "")
    return ("first time", "") if node.effect in ("write", "external") else ("runs", "")


def allowables(graph: Compiled, plan: Plan, ticked: Collection[str]) -> list[Allowable]:
    """One box for each node of an effect that happened already, or may have."""
    certain = {task.node for task in plan.effects_again}
    names = {task.node for task in (*plan.effects_again, *plan.may_have_happened)} | {*plan.stops} | {*ticked}
    return [
        Allowable(name, graph.nodes[name].effect, graph.nodes[name].doc, name in certain, name in ticked)
        for name in graph.order
        if name in names
    ]
