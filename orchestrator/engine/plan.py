"""What may start now? Pure: from a compiled graph and a frontier to the starts, and to the frontier that they leave.

A join="any" starts once per token. A join="all" is the OR-join of workflow nets: it waits while live work can still
reach one of its empty incoming edges without passing through it. The runner, its commits and `play` call this.
"""

import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled
from orchestrator.engine.effect import REJECTED
from orchestrator.engine.errors import Runaway
from orchestrator.engine.frontier import ErrorInfo, Frontier, visit_of
from orchestrator.engine.frozen import frozen
from orchestrator.engine.held_patch import PATCH, is_patch_held, without_patch
from orchestrator.engine.identity import Task
from orchestrator.engine.node import END, START, Edge

__all__ = [
    "ErrorInfo", "Frontier", "Planned", "Start", "begin", "check_limits", "ending", "pending_edges", "plan", "skipped",
]  # fmt: skip


@frozen
class Start:
    """A task to run. `payload` is that of its `Send`, `error` what an error edge brought."""

    task: Task
    payload: Json = None
    error: ErrorInfo | None = None
    is_send: bool = False


@frozen
class Planned:
    """The next superstep: its tasks as declared, and the frontier when they have started. No starts: nothing moves.

    `tasks` counts the tasks that would start. Where they are more than the graph allows in one superstep, which then
    must not begin (`check_limits`), `starts` holds only some of them, at least the first of each node.
    """

    starts: tuple[Start, ...]
    frontier: Frontier
    tasks: int = 0


def begin(compiled: Compiled) -> Frontier:
    """The frontier before any work: a token on each edge from START."""
    return Frontier(tokens={e.id: 1 for e in compiled.edges if e.source == START and e.target != END})


def plan(compiled: Compiled, frontier: Frontier, *, stops: Collection[str] = ()) -> Planned:
    """The next superstep. The same frontier gives the same plan, whatever form it was kept in.

    No node of `stops` starts: what would start it stays where it is. While a patch waits for people none does.
    """
    return _planned(compiled, frontier, stops, listed=compiled.graph.max_tasks)


def _planned(compiled: Compiled, frontier: Frontier, stops: Collection[str], *, listed: int) -> Planned:
    """As `plan`, where at most `listed` tasks are listed beside the first of each start."""
    if frontier.waiting and is_patch_held(frontier):
        return Planned((), frontier)
    held = _held(compiled, frontier)
    draft = _Draft(dict(frontier.tokens), dict(frontier.errors), dict(frontier.visits), [], listed)
    for target, payloads in frontier.sends:
        if target not in stops:
            draft.send(target, payloads)
    for node in _ready(compiled, frontier, held):
        if node not in stops:
            draft.consume(compiled, node, held[node])
    starts = draft.starts
    if len(starts) > 1:
        starts.sort(key=lambda start: compiled.task_order(start.task))
    seen = dict.fromkeys((*frontier.visited, *[start.task.node for start in starts]))
    after = Frontier(
        tokens={edge: n for edge, n in draft.tokens.items() if n},
        errors={edge: errors for edge, errors in draft.errors.items() if errors},
        visits=draft.visits,
        sends=tuple([send for send in frontier.sends if send[0] in stops]) if stops else (),
        waiting=frontier.waiting,
        rejected=frontier.rejected,
        visited=tuple(seen),
        written=frontier.written,
    )
    return Planned(tuple(starts), after, draft.tasks)


def unplanned(
    compiled: Compiled, frontier: Frontier, begun: Iterable[Task], *, stops: Collection[str] = ()
) -> list[str]:
    """Of the tasks that a superstep began with, those that would not start from its frontier in this graph, sorted:
    what they returned would be left behind, and they would run again. A patch that waits for people is left out.
    """
    # They began under the limit of their time; which limit the graph has now says nothing about what they returned.
    planned = _planned(compiled, without_patch(frontier), stops, listed=sys.maxsize)
    starts = {start.task for start in planned.starts}
    return sorted(str(task) for task in begun if task not in starts)


@dataclass(slots=True)
class _Draft:
    """A superstep while it is planned. `listed`: how many tasks are listed beside the first of each start."""

    tokens: dict[str, int]
    errors: dict[str, list[ErrorInfo]]
    visits: dict[str, int]
    starts: list[Start]
    listed: int
    tasks: int = 0

    def _visit(self, node: str) -> int:
        self.visits[node] = self.visits.get(node, 0) + 1
        return self.visits[node]

    def _listable(self, tasks: int) -> int:
        """Count these tasks; return how many of them still have a place in the list, which is at least the first."""
        self.tasks += tasks
        return min(tasks, max(1, self.listed - len(self.starts)))

    def send(self, target: str, payloads: Sequence[Json]) -> None:
        visit = self._visit(target)
        for index, payload in enumerate(payloads[: self._listable(len(payloads))]):
            self.starts.append(Start(Task(target, visit, index), payload, None, True))

    def consume(self, compiled: Compiled, node: str, edges: list[Edge]) -> None:
        """Start a node on its tokens: one visit a token, or one visit on one token of each edge."""
        if compiled.nodes[node].join == "any":
            for edge in edges:
                for _ in range(self._listable(self.tokens[edge.id])):
                    self.starts.append(Start(Task(node, self._visit(node)), error=self._take(edge)))
        else:
            first = None
            for edge in edges:
                carried = self._take(edge)
                first = first or carried
            self._listable(1)
            self.starts.append(Start(Task(node, self._visit(node)), error=first))

    def _take(self, edge: Edge) -> ErrorInfo | None:
        self.tokens[edge.id] -= 1
        carried = self.errors.get(edge.id)
        if not carried:
            return None
        self.errors[edge.id] = carried[1:]
        return carried[0]


def _held(compiled: Compiled, frontier: Frontier) -> dict[str, list[Edge]]:
    """Node -> its incoming edges that hold tokens, both as declared."""
    found: dict[str, list[Edge]] = {}
    for edge in compiled.edges if len(frontier.tokens) > 1 else [compiled.edge[id] for id in frontier.tokens]:
        if edge.id in frontier.tokens:
            found.setdefault(edge.target, []).append(edge)
    return found


def _ready(compiled: Compiled, frontier: Frontier, held: dict[str, list[Edge]]) -> list[str]:
    """The nodes that start on their tokens."""
    if len(held) <= 1 and not frontier.waiting and not frontier.sends:
        return list(held)
    bit = compiled.reach.bit
    anyhow = [node for node in held if compiled.nodes[node].join == "any"]
    joins = [node for node in held if compiled.nodes[node].join == "all"]
    working = [visit_of(key)[0] for key in frontier.waiting] + [target for target, _ in frontier.sends]
    active = _mask(bit, [*working, *anyhow])
    alive = active | _mask(bit, joins)
    waits = {node: _blockers(compiled, node, held[node]) & alive & ~bit[node] for node in joins}
    free = [node for node in joins if not waits[node]]
    blocked = {node: mask for node, mask in waits.items() if mask}
    return [*anyhow, *free, *_circles(compiled, blocked, outside=active | _mask(bit, free))]


def _mask(bit: dict[str, int], nodes: Iterable[str]) -> int:
    mask = 0
    for node in nodes:
        mask |= bit[node]
    return mask


def _blockers(compiled: Compiled, join: str, holding: list[Edge]) -> int:
    """All nodes that could still bring a token to an empty incoming edge of the join without passing through it."""
    mask, full = 0, {edge.id for edge in holding}
    for edge, sources in compiled.reach.into[join].items():
        if edge not in full:
            mask |= sources
    return mask


def _circles(compiled: Compiled, blocked: dict[str, int], *, outside: int) -> list[str]:
    """Of each circle of joins that wait for nobody but each other, the first in declared order."""
    bit = compiled.reach.bit
    closed = _closed(blocked, bit, outside=outside)
    behind = {node: _behind(node, closed, bit) for node in closed}
    found, done = [], 0
    for node in sorted(closed, key=compiled.order.__getitem__):
        circle = behind[node]
        own = circle & bit[node] and not done & bit[node]
        if own and all(behind[other] == circle for other in closed if circle & bit[other]):
            found.append(node)
            done |= circle
    return found


def _closed(blocked: dict[str, int], bit: dict[str, int], *, outside: int) -> dict[str, int]:
    """The blocked joins that wait, directly or through others, for blocked joins only."""
    left, before = dict(blocked), -1
    while len(left) != before:
        before = len(left)
        for node, waits in list(left.items()):
            if waits & outside:
                outside |= bit[node]
                del left[node]
    return left


def _behind(node: str, blocked: dict[str, int], bit: dict[str, int]) -> int:
    """All that a blocked join waits for, directly or through other blocked joins."""
    mask = before = blocked[node]
    while True:
        for other, waits in blocked.items():
            if mask & bit[other]:
                mask |= waits
        if mask == before:
            return mask
        before = mask


def check_limits(compiled: Compiled, planned: Planned, superstep: int, *, most: int | None = None) -> None:
    """Raise `Runaway` where this superstep (from 1) or a visit is one too many, or the superstep has too many tasks.
    `most` replaces `max_supersteps`.
    """
    most = compiled.graph.max_supersteps if most is None else most
    if superstep > most:
        raise Runaway(f"superstep {superstep} would exceed max_supersteps={most}", limit="max_supersteps", most=most)
    _refuse_too_many_tasks(compiled, planned, superstep)
    for start in planned.starts:
        node, visit = start.task.node, start.task.visit
        allowed = compiled.nodes[node].max_visits
        if allowed is not None and visit > allowed:
            message = f"visit {visit} of {node} would exceed its max_visits={allowed}"
            raise Runaway(message, limit="max_visits", node=node, most=allowed)


def _refuse_too_many_tasks(compiled: Compiled, planned: Planned, superstep: int) -> None:
    most = compiled.graph.max_tasks
    if planned.tasks <= most:
        return
    nodes = list(dict.fromkeys(start.task.node for start in planned.starts))
    message = (
        f"superstep {superstep} would start {planned.tasks} tasks of {', '.join(nodes)}, more than max_tasks={most}; "
        "send less at once, or allow more with Graph(max_tasks=...)"
    )
    raise Runaway(message, limit="max_tasks", nodes=nodes, tasks=planned.tasks, most=most)


def pending_edges(frontier: Frontier) -> list[str]:
    """The edges that hold tokens, by id."""
    return sorted(frontier.tokens)


def skipped(compiled: Compiled, frontier: Frontier) -> list[str]:
    """The nodes that have not run and that no live work can reach any more, in declared order."""
    reach, live = compiled.reach, 0
    for id in frontier.tokens:
        live |= reach.forward[compiled.edge[id].target]
    for node in [visit_of(key)[0] for key in frontier.waiting] + [target for target, _ in frontier.sends]:
        live |= 0 if node == PATCH else reach.forward[node]
    return [node for node, bit in reach.bit.items() if not live & bit and node not in frontier.visited]


def ending(compiled: Compiled, frontier: Frontier) -> str:
    """What becomes of a run of which nothing can start: paused, rejected or completed. Tokens are left, and sends,
    before a node that may not start.
    """
    if frontier.waiting or frontier.tokens or frontier.sends:
        return "paused"
    return REJECTED if frontier.rejected else "completed"
