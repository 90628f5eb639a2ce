"""Where a visit that has ended leads: tokens on the edges it takes, and sends. The reducer calls it.

A visit ends with its last task. Its edges are evaluated once, on the state after the reduce.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from orchestrator.engine.canonical import Json
from orchestrator.engine.compile import Compiled, State
from orchestrator.engine.definition import label_text
from orchestrator.engine.effect import APPROVED, DIVERGED, ERROR, REJECTED
from orchestrator.engine.errors import BROKEN, InvalidValue, described
from orchestrator.engine.frontier import ErrorInfo, Frontier, Part, SendList, visit_key
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gate import outcome_of
from orchestrator.engine.node import END, Branch, Edge

T = TypeVar("T")


@frozen
class Finished:
    """A visit that ended, the edges it took, its outcome: approved, rejected, partial (of a gate), error, or None."""

    node: str
    visit: int
    outcome: str | None
    taken: tuple[str, ...]


class Flow:
    """Moves tokens for the visits of one step. Give it visits in declared order, then ask for the frontier. `written`
    are the First channels that the step has written by now, and those before.
    """

    def __init__(self, compiled: Compiled, frontier: Frontier, state: State, written: tuple[str, ...]) -> None:
        self._compiled = compiled
        self._state = state
        self._before = frontier
        self._tokens = dict(frontier.tokens)
        self._errors = dict(frontier.errors)
        self._sends: list[SendList] = list(frontier.sends)
        self._waiting = dict(frontier.waiting)
        self._rejected = frontier.rejected
        self._written = written
        self._routed: dict[int, Edge] = {}
        self.finished: list[Finished] = []

    def frontier(self) -> Frontier:
        """The frontier after all visits taken so far."""
        return Frontier(
            tokens=self._tokens,
            errors=self._errors,
            visits=self._before.visits,
            sends=tuple(self._sends),
            waiting=self._waiting,
            rejected=self._rejected,
            visited=self._before.visited,
            written=self._written,
        )

    def take(self, node: str, visit: int, parts: tuple[Part, ...]) -> None:
        """A visit and its tasks by index: let it flow, or let it wait while one of them is gated."""
        statuses = [part.status for part in parts]
        if "gated" in statuses:
            self._waiting[visit_key(node, visit)] = parts
            return
        if DIVERGED in statuses:
            self.finished.append(Finished(node, visit, DIVERGED, ()))
            return
        if ERROR in statuses:
            error, taken = parts[statuses.index(ERROR)].error, self._compiled.ways[node].error
            if not taken:
                raise InvalidValue(f"node {node} failed, and no edge leads on from an error of it", node=node)
            self.finished.append(Finished(node, visit, ERROR, self._put(taken, error=error)))
            return
        # None where nobody was asked. Tasks that no gate held count as approved.
        asked = set(statuses) != {"done"}
        outcome = outcome_of([APPROVED if one == "done" else one for one in statuses]) if asked else None
        going = [part for part in parts if part.status != REJECTED]
        taken = self._edges(node, outcome, going)
        self.finished.append(Finished(node, visit, outcome, self._put(taken)))
        for part in going:
            if part.sends:
                self._sends += self._by_target(node, part.sends)

    def _edges(self, node: str, outcome: str | None, going: list[Part]) -> tuple[Edge, ...]:
        ways = self._compiled.ways[node]
        named = ways.when.get(outcome or "", ())
        if outcome == REJECTED:
            self._rejected = self._rejected or not named
            return named
        goto = dict.fromkeys([target for part in going for target in part.goto or ()])
        if goto:
            return tuple(self._declared(node, ways.goto, target) for target in goto)
        return (*ways.plain, *named, *[self._route(node, branch) for branch in ways.branches])

    def _route(self, node: str, branch: Branch) -> Edge:
        """The edge that a router names. It is asked once: every visit of its node routes on the same state."""
        key = id(branch)
        if key not in self._routed:
            self._routed[key] = self._answered(node, branch)
        return self._routed[key]

    def _answered(self, node: str, branch: Branch) -> Edge:
        answer: Any = None
        try:
            answer = branch.router(self._compiled.state_for(self._state))
            return branch.edges[label_text(answer)]
        except KeyError as error:
            known = ", ".join(branch.edges)
            if not isinstance(answer, str | int):
                raise _failed(node, branch, error) from error
            message = f"router {branch.name} of node {node} answered {answer!r}, which is none of {known}"
            raise InvalidValue(message, node=node, router=branch.name, label=str(answer)) from error
        except BROKEN as error:
            raise _failed(node, branch, error) from error

    def _declared(self, node: str, ways: Mapping[str, T], target: str) -> T:
        """Raises where a result was kept that another version of the graph made, and this one does not lead there."""
        if target not in ways:
            raise InvalidValue(f"node {node} goes on to {target}, where no edge of it leads", node=node, target=target)
        return ways[target]

    def _by_target(self, node: str, sends: tuple[tuple[str, Json], ...]) -> list[SendList]:
        """One visit per target: a task's sends to one target are indices of one fan-out."""
        found: dict[str, list[Json]] = {}
        for target, payload in sends:
            self._declared(node, self._compiled.nodes, target)
            found.setdefault(target, []).append(payload)
        return [(target, tuple(payloads)) for target, payloads in found.items()]

    def _put(self, edges: tuple[Edge, ...], *, error: ErrorInfo | None = None) -> tuple[str, ...]:
        """A token on each edge; at END it is over at once."""
        for edge in edges:
            if edge.target == END:
                continue
            self._tokens[edge.id] = self._tokens.get(edge.id, 0) + 1
            if error is not None:
                self._errors[edge.id] = [*self._errors.get(edge.id, []), error]
        return tuple([edge.id for edge in edges])


def _failed(node: str, branch: Branch, error: BaseException) -> InvalidValue:
    message = f"router {branch.name} of node {node} failed: {described(error)}"
    return InvalidValue(message, node=node, router=branch.name)
