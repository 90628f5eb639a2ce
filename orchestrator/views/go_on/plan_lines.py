"""A plan as the page tells it: what is kept, what runs and how, in the graph's order, with one word each. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from checkpoints.models.run_line import Travel
from orchestrator.engine.compile import Compiled
from orchestrator.engine.effect import READ
from orchestrator.engine.held_patch import PATCH
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


@dataclass(slots=True)
class PlanTold:
    """A plan in groups, counted."""

    groups: list[tuple[str, list[PlanLine]]] = field(default_factory=list)
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


def plan_told(graph: Compiled, plan: Plan, *, visited: Collection[str], ran: Collection[str]) -> PlanTold:
    """The plan in words. `visited` are the nodes before the point, `ran` those that ran in the run so far."""
    reach = {task.node: False for task in plan.may_run} | {task.node: True for task in plan.runs}
    replays = plan.travel == Travel.REPLAY
    reused = {task.node for task in plan.reused}
    waiting = {task.node for task in plan.asks} - reach.keys()
    done = [name for name in visited if name in graph.nodes and name not in waiting]
    kept = [PlanLine(name, graph.nodes[name].effect, "kept") for name in done]
    taken = [_reused(graph, plan, name) for name in graph.order if name in reused and name not in reach]
    running = [_line(graph, plan, name, ran, sure=reach[name]) for name in graph.order if name in reach]
    kept += [] if replays else taken
    ahead = [*_asked(graph, plan), *(_by_node(graph, [*taken, *running]) if replays else running)]
    never = [name for name in graph.order if name not in reach and name not in reused and name not in visited]
    asked = {line.node for line in ahead if line.word == "asks people"}
    skipped = [PlanLine(name, graph.nodes[name].effect, "skipped") for name in never if name not in asked]
    told = PlanTold(kept=len(kept))
    named = {"Kept from before": kept, RUNS_IN[Travel(plan.travel)]: ahead, "Not reached from here": skipped}
    told.groups = [(name, lines) for name, lines in named.items() if lines]
    told.again, told.stops, told.asks = (_count(ahead, w) for w in ("happens again", "stops before", "asks people"))
    return told


def _count(lines: Iterable[PlanLine], word: str) -> int:
    return sum(1 for line in lines if line.word == word)


def _asked(graph: Compiled, plan: Plan) -> list[PlanLine]:
    """What people are asked before anything runs: the patch, and what waited at the point."""
    reach = {task.node for task in (*plan.runs, *plan.may_run)}
    found = {}
    for task in plan.asks:
        if task.node not in reach or task.node == PATCH:
            name = "the patch" if task.node == PATCH else task.node
            why = plan.notes.get("asks", {}).get(str(task), "")
            found[str(task)] = PlanLine(name, "human", "asks people", why[:1].upper() + why[1:] + ("." if why else ""))
    return list(found.values())


def _by_node(graph: Compiled, lines: Iterable[PlanLine]) -> list[PlanLine]:
    return sorted(lines, key=lambda line: graph.order[line.node])


def _reused(graph: Compiled, plan: Plan, name: str) -> PlanLine:
    """A node of which what was recorded is taken; of a replay with the reason that its plan gives."""
    node = graph.nodes[name]
    if plan.travel != Travel.REPLAY:
        return PlanLine(name, node.effect, "reused")
    whys = [why for task, why in plan.notes.get("reused", {}).items() if task.partition(":")[0] == name]
    why = whys[0] if whys else ""
    return PlanLine(
        name, "human" if node.gated else node.effect, "reused", f"{why[:1].upper()}{why[1:]}." if why else ""
    )


def _line(graph: Compiled, plan: Plan, name: str, ran: Collection[str], *, sure: bool) -> PlanLine:
    node = graph.nodes[name]
    effect = "human" if node.gated else node.effect
    word, more = _word(graph, plan, name, ran)
    maybe = "" if sure or word == "stops before" else "May run: a router, a person or an error decides. "
    if plan.guarded and not sure and word != "stops before":
        maybe = "Only once the patch is signed. "
    return PlanLine(name, effect, word, (maybe + more).strip())


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
