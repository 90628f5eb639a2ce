"""The planner: from a compiled graph and a frontier to the tasks that start next, and
to the frontier that they leave behind. Pure.

A node with join="any" starts once per token. A node with join="all" is the OR-join of
workflow nets: it waits while live work can still reach one of its empty incoming edges
without passing through it. The runner, its commits and `play` call this.
"""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.engine.errors import Runaway
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.effect import REJECTED
from orchestrator.engine.graphs.node import END, START, Edge
from orchestrator.engine.step.frontier import (
    ErrorInfo,
    Frontier,
    Part,
    SendList,
    visit_of,
)
from orchestrator.engine.step.held_patch import PATCH, is_patch_held, without_patch
from orchestrator.engine.values.canonical import Json
from orchestrator.engine.values.identity import Task

__all__ = [
    "ErrorInfo",
    "Frontier",
    "Planned",
    "Start",
    "begin",
    "check_limits",
    "ending",
    "pending_edges",
    "plan",
    "skipped",
    "unplanned",
]


@frozen
class Start:
    """A task to run. `payload` comes from its `Send`, `error` from the error edge that
    led to it. `is_call`: people approved its call, which was prepared before.
    """

    task: Task
    payload: Json = None
    error: ErrorInfo | None = None
    is_send: bool = False
    is_call: bool = False


@frozen
class Planned:
    """The next superstep: its tasks in declared order, and the frontier once they have
    started. No starts means that nothing moves.

    `tasks` counts the tasks that would start. If that is more than the graph allows in
    one superstep, the superstep must not begin (`check_limits`), and `starts` lists
    only some of them, at least the first of each node.
    """

    starts: tuple[Start, ...]
    frontier: Frontier
    tasks: int = 0


def begin(compiled: Compiled) -> Frontier:
    """Return the frontier before any work: a token on each edge from START."""
    tokens: dict[str, int] = {}
    for edge in compiled.edges:
        if edge.source == START and edge.target != END:
            tokens[edge.id] = 1
    return Frontier(tokens=tokens)


def plan(
    compiled: Compiled,
    frontier: Frontier,
    *,
    stops: Collection[str] = (),
    listed: int | None = None,
) -> Planned:
    """Return the next superstep. Equal frontiers give equal plans, however they were
    stored.

    No node of `stops` starts: its tokens and sends stay in the frontier. While a patch
    is held, no node starts at all. At most `listed` tasks are listed beside the first of
    each start; with None, as many as the graph allows in one superstep.
    """
    if listed is None:
        listed = compiled.graph.max_tasks
    if frontier.waiting and is_patch_held(frontier):
        return Planned((), frontier)
    draft = _Draft(
        tokens=dict(frontier.tokens),
        errors=dict(frontier.errors),
        visits=dict(frontier.visits),
        starts=[],
        listed=listed,
    )
    # A call that people approved is a visit that began when it was prepared.
    if frontier.waiting:
        draft.call(frontier.ready_calls(), stops)
    # Sends come first: they are earlier visits of a node than those by tokens.
    stopped_sends: list[SendList] = []
    for send in frontier.sends:
        target, payloads = send
        if target in stops:
            stopped_sends.append(send)
        else:
            draft.send(target, payloads)

    edges_with_tokens = _edges_with_tokens(compiled, frontier)
    # Which nodes are ready depends on the frontier as it was, sends included.
    for node in _ready_nodes(compiled, frontier, edges_with_tokens):
        if node not in stops:
            draft.consume(compiled, node, edges_with_tokens[node])

    # The order in which tasks are listed is the order in which they are reduced.
    starts = draft.starts
    if len(starts) > 1:
        starts.sort(key=lambda start: compiled.task_order(start.task))
    after = _frontier_after(frontier, draft, stopped_sends)
    return Planned(tuple(starts), after, draft.tasks)


def _frontier_after(
    frontier: Frontier,
    draft: "_Draft",
    stopped_sends: list[SendList],
) -> Frontier:
    """Return the frontier once the starts of the draft, in their order, have begun."""
    visited = dict.fromkeys(frontier.visited)
    for start in draft.starts:
        visited[start.task.node] = None
    # An edge without tokens, or without errors, has no entry in a frontier.
    tokens: dict[str, int] = {}
    for edge, count in draft.tokens.items():
        if count:
            tokens[edge] = count
    errors: dict[str, list[ErrorInfo]] = {}
    for edge, infos in draft.errors.items():
        if infos:
            errors[edge] = infos
    return Frontier(
        tokens=tokens,
        errors=errors,
        visits=draft.visits,
        sends=tuple(stopped_sends),
        waiting=frontier.waiting,
        rejected=frontier.rejected,
        visited=tuple(visited),
        written=frontier.written,
    )


def unplanned(
    compiled: Compiled,
    frontier: Frontier,
    begun: Iterable[Task],
    *,
    stops: Collection[str] = (),
) -> list[str]:
    """Return those of the `begun` tasks of a superstep that would not start from its
    frontier in this graph, sorted. Their results would be lost, and they would run
    again. A held patch is disregarded.
    """
    # They began under the limit that held then; a lower one must not lose their results.
    planned = plan(
        compiled,
        without_patch(frontier),
        stops=stops,
        listed=sys.maxsize,
    )
    starting = {start.task for start in planned.starts}
    return sorted(str(task) for task in begun if task not in starting)


@dataclass(slots=True)
class _Draft:
    """A superstep while it is planned. At most `listed` tasks are listed beside the
    first of each start; `tasks` counts all of them.
    """

    tokens: dict[str, int]
    errors: dict[str, list[ErrorInfo]]
    visits: dict[str, int]
    starts: list[Start]
    listed: int
    tasks: int = 0

    def send(
        self,
        target: str,
        payloads: Sequence[Json],
    ) -> None:
        """Start one visit of the target, with a task for each payload."""
        visit = self._next_visit(target)
        places = self._count_tasks(len(payloads))
        for index, payload in enumerate(payloads[:places]):
            task = Task(target, visit, index)
            self.starts.append(
                Start(
                    task,
                    payload,
                    is_send=True,
                )
            )

    def call(
        self,
        ready: Mapping[Task, Part],
        stops: Collection[str],
    ) -> None:
        """Start approved calls. Their parts go on waiting until they have run."""
        for task, part in ready.items():
            if task.node not in stops:
                self._start_call(task, part)

    def _start_call(
        self,
        task: Task,
        part: Part,
    ) -> None:
        self._count_tasks(1)
        self.starts.append(
            Start(
                task,
                part.payload,
                part.cause,
                is_call=True,
            )
        )

    def consume(
        self,
        compiled: Compiled,
        node: str,
        edges: list[Edge],
    ) -> None:
        """Start a node on its tokens: one visit per token, or a single visit that takes
        one token from each edge.
        """
        if compiled.nodes[node].join == "any":
            self._start_once_per_token(node, edges)
        else:
            self._start_joined(node, edges)

    def _start_once_per_token(
        self,
        node: str,
        edges: list[Edge],
    ) -> None:
        # Visits are numbered by edge in declared order, then from the oldest token.
        for edge in edges:
            places = self._count_tasks(self.tokens[edge.id])
            for _ in range(places):
                task = Task(node, self._next_visit(node))
                self.starts.append(Start(task, error=self._take_token(edge)))

    def _start_joined(
        self,
        node: str,
        edges: list[Edge],
    ) -> None:
        # Each edge gives up its token; the node is shown the first error among them.
        first_error = None
        for edge in edges:
            error = self._take_token(edge)
            if first_error is None:
                first_error = error
        self.tasks += 1
        task = Task(node, self._next_visit(node))
        self.starts.append(Start(task, error=first_error))

    def _next_visit(self, node: str) -> int:
        visit = self.visits.get(node, 0) + 1
        self.visits[node] = visit
        return visit

    def _count_tasks(self, tasks: int) -> int:
        """Count these tasks, and return how many of them still have a place in the
        list: at least the first.
        """
        self.tasks += tasks
        places = max(1, self.listed - len(self.starts))
        return min(tasks, places)

    def _take_token(self, edge: Edge) -> ErrorInfo | None:
        """Remove one token from the edge, and return the error that it carried."""
        self.tokens[edge.id] -= 1
        errors = self.errors.get(edge.id)
        if not errors:
            return None
        self.errors[edge.id] = errors[1:]
        return errors[0]


def _edges_with_tokens(compiled: Compiled, frontier: Frontier) -> dict[str, list[Edge]]:
    """Return each node's incoming edges that hold tokens, nodes and edges in declared
    order.
    """
    edges: Sequence[Edge] = compiled.edges
    # A single token is the common case, and needs no walk over all edges.
    if len(frontier.tokens) <= 1:
        edges = [*map(compiled.edge.__getitem__, frontier.tokens)]
    by_target: dict[str, list[Edge]] = {}
    for edge in edges:
        if edge.id in frontier.tokens:
            by_target.setdefault(edge.target, []).append(edge)
    return by_target


def _ready_nodes(
    compiled: Compiled,
    frontier: Frontier,
    edges_with_tokens: dict[str, list[Edge]],
) -> list[str]:
    """Return the nodes that start on their tokens."""
    # A single target with nothing else alive has nothing to wait for.
    nothing_else_is_live = not frontier.waiting and not frontier.sends
    if len(edges_with_tokens) <= 1 and nothing_else_is_live:
        return list(edges_with_tokens)
    bit = compiled.reach.bit
    starts_anyway: list[str] = []
    joins: list[str] = []
    for node in edges_with_tokens:
        if compiled.nodes[node].join == "any":
            starts_anyway.append(node)
        else:
            joins.append(node)

    # From here on, sets of nodes are bit masks, one bit per node.
    active = _mask(bit, [*_working_nodes(frontier), *starts_anyway])
    alive = active | _mask(bit, joins)
    free: list[str] = []
    blocked: dict[str, int] = {}
    for node in joins:
        blockers = _blockers(compiled, node, edges_with_tokens[node])
        # A gated visit of the join itself does not hold its next visit back.
        live_blockers = blockers & alive & ~bit[node]
        if live_blockers:
            blocked[node] = live_blockers
        else:
            free.append(node)

    # Joins that wait only for each other would wait forever: one of them starts.
    outside = active | _mask(bit, free)
    return [
        *starts_anyway,
        *free,
        *_break_circles(
            compiled,
            blocked,
            outside=outside,
        ),
    ]


def _working_nodes(frontier: Frontier) -> list[str]:
    """Return the nodes that wait for people or are about to start by a send."""
    nodes = [visit_of(key)[0] for key in frontier.waiting]
    for target, _ in frontier.sends:
        nodes.append(target)
    return nodes


def _mask(bit: dict[str, int], nodes: Iterable[str]) -> int:
    mask = 0
    for node in nodes:
        mask |= bit[node]
    return mask


def _blockers(
    compiled: Compiled,
    join: str,
    holding: list[Edge],
) -> int:
    """Return all nodes that could still bring a token to an empty incoming edge of the
    join without passing through it.
    """
    mask = 0
    edges_with_token = {edge.id for edge in holding}
    for edge, sources in compiled.reach.into[join].items():
        if edge not in edges_with_token:
            mask |= sources
    return mask


def _break_circles(
    compiled: Compiled,
    blocked: dict[str, int],
    *,
    outside: int,
) -> list[str]:
    """Return the first join, in declared order, of each circle of joins that wait for
    nothing but each other.
    """
    bit = compiled.reach.bit
    closed = _waiting_for_joins_only(
        blocked,
        bit,
        outside=outside,
    )
    waits_for = {node: _all_waited_for(node, closed, bit) for node in closed}
    first_joins: list[str] = []
    broken = 0
    for node in sorted(closed, key=compiled.order.__getitem__):
        circle = waits_for[node]
        is_in_circle = circle & bit[node]
        if not is_in_circle or broken & bit[node]:
            continue
        members = [other for other in closed if circle & bit[other]]
        # A member that waits for less stands before another circle, which goes first.
        if all(waits_for[member] == circle for member in members):
            first_joins.append(node)
            broken |= circle
    return first_joins


def _waiting_for_joins_only(
    blocked: dict[str, int],
    bit: dict[str, int],
    *,
    outside: int,
) -> dict[str, int]:
    """Return the blocked joins that wait, directly or through others, for blocked joins
    only.
    """
    closed = dict(blocked)
    size_before = -1
    # A join that waits for outside work is outside work to the joins after it.
    while len(closed) != size_before:
        size_before = len(closed)
        for node, waits in list(closed.items()):
            if waits & outside:
                outside |= bit[node]
                del closed[node]
    return closed


def _all_waited_for(
    node: str,
    blocked: dict[str, int],
    bit: dict[str, int],
) -> int:
    """Return all that a blocked join waits for, directly or through other blocked
    joins.
    """
    mask = blocked[node]
    before = mask
    while True:
        for other, waits in blocked.items():
            if mask & bit[other]:
                mask |= waits
        if mask == before:
            return mask
        before = mask


def check_limits(
    compiled: Compiled,
    planned: Planned,
    superstep: int,
    *,
    most: int | None = None,
) -> None:
    """Raise `Runaway` if this superstep (from 1) or a visit is one too many, or if the
    superstep has too many tasks. `most` replaces `max_supersteps`.
    """
    if most is None:
        most = compiled.graph.max_supersteps
    if superstep > most:
        raise Runaway(
            f"superstep {superstep} would exceed max_supersteps={most}",
            limit="max_supersteps",
            most=most,
        )
    # Counted when it was planned, for `starts` may list only some of the tasks.
    if planned.tasks > compiled.graph.max_tasks:
        raise _too_many_tasks(compiled, planned, superstep)
    for start in planned.starts:
        node = start.task.node
        visit = start.task.visit
        allowed = compiled.nodes[node].max_visits
        if allowed is not None and visit > allowed:
            message = f"visit {visit} of {node} would exceed its max_visits={allowed}"
            raise Runaway(
                message,
                limit="max_visits",
                node=node,
                most=allowed,
            )


def _too_many_tasks(compiled: Compiled, planned: Planned, superstep: int) -> Runaway:
    most = compiled.graph.max_tasks
    nodes = list(dict.fromkeys(start.task.node for start in planned.starts))
    message = (
        f"superstep {superstep} would start {planned.tasks} tasks of"
        f" {', '.join(nodes)}, more than max_tasks={most}; "
        "send less at once, or allow more with Graph(max_tasks=...)"
    )
    return Runaway(
        message,
        limit="max_tasks",
        nodes=nodes,
        tasks=planned.tasks,
        most=most,
    )


def pending_edges(frontier: Frontier) -> list[str]:
    """Return the ids of the edges that hold tokens, sorted."""
    return sorted(frontier.tokens)


def skipped(compiled: Compiled, frontier: Frontier) -> list[str]:
    """Return the nodes that have not run and that live work can no longer reach, in
    declared order.
    """
    reach = compiled.reach
    reachable = 0
    for edge in frontier.tokens:
        reachable |= reach.forward[compiled.edge[edge].target]
    for node in _working_nodes(frontier):
        # A held patch is no node of the graph: it leads nowhere.
        if node != PATCH:
            reachable |= reach.forward[node]
    skipped_nodes: list[str] = []
    for node, bit in reach.bit.items():
        if not reachable & bit and node not in frontier.visited:
            skipped_nodes.append(node)
    return skipped_nodes


def ending(compiled: Compiled, frontier: Frontier) -> str:
    """Return the status of a run in which nothing can start: paused, rejected or
    completed. Tokens and sends are left over before a node that must not start.
    """
    if frontier.waiting or frontier.tokens or frontier.sends:
        return "paused"
    return REJECTED if frontier.rejected else "completed"
