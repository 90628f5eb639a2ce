"""The ways that lead on from a visit that has ended: tokens on the edges it takes, and
sends. The reducer calls it.

A visit ends with its last task. Its edges are evaluated once, on the state after the
reduce.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from orchestrator.engine.errors import BROKEN, InvalidValue, described
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled, State
from orchestrator.engine.graphs.definition import label_text
from orchestrator.engine.graphs.effect import APPROVED, DIVERGED, ERROR, REJECTED
from orchestrator.engine.graphs.gate import outcome_of
from orchestrator.engine.graphs.node import END, Branch, Edge
from orchestrator.engine.step.frontier import (
    READY,
    ErrorInfo,
    Frontier,
    Part,
    SendList,
    visit_key,
)
from orchestrator.engine.values.canonical import Json

T = TypeVar("T")


@frozen
class Finished:
    """A visit that ended, the edges it took, and its outcome: approved, rejected,
    partial (of a gate), error, diverged, or None.
    """

    node: str
    visit: int
    outcome: str | None
    taken: tuple[str, ...]


class Flow:
    """Moves tokens for the visits of one step. Pass it the visits in declared order,
    then read the frontier. `written` are the First channels that the step has written
    by now, and those before.
    """

    def __init__(
        self,
        compiled: Compiled,
        frontier: Frontier,
        state: State,
        written: tuple[str, ...],
    ) -> None:
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
        """Return the frontier after all visits taken so far."""
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

    def take(
        self,
        node: str,
        visit: int,
        parts: tuple[Part, ...],
    ) -> None:
        """Pass on the tokens of a visit, or keep it waiting while one of its tasks is
        gated or has an approved call to run. `parts` are its tasks by index.
        """
        statuses = [part.status for part in parts]
        # A task that waits holds up its whole visit; next in weight come the end of a
        # replay and an error.
        if "gated" in statuses or READY in statuses:
            self._waiting[visit_key(node, visit)] = parts
        elif DIVERGED in statuses:
            self.finished.append(Finished(node, visit, DIVERGED, ()))
        elif ERROR in statuses:
            first_failed = parts[statuses.index(ERROR)]
            self._take_error_edges(node, visit, first_failed.error)
        else:
            outcome = None
            if statuses.count("done") < len(statuses):
                outcome = _outcome(statuses)
            self._take_edges(node, visit, parts, outcome)

    def _take_error_edges(
        self,
        node: str,
        visit: int,
        error: ErrorInfo | None,
    ) -> None:
        # A failure that was kept under another version may have had an edge there.
        edges = self._compiled.ways[node].error
        if not edges:
            raise InvalidValue(
                f"node {node} failed, and no edge leads on from an error of it",
                node=node,
            )
        taken = self._put_tokens(edges, error=error)
        self.finished.append(Finished(node, visit, ERROR, taken))

    def _take_edges(
        self,
        node: str,
        visit: int,
        parts: tuple[Part, ...],
        outcome: str | None,
    ) -> None:
        going_on: Sequence[Part] = parts
        # A rejected task of several adds neither goto nor sends.
        if outcome is not None:
            going_on = [part for part in parts if part.status != REJECTED]
        edges = self._edges_taken(node, outcome, going_on)
        taken = self._put_tokens(edges)
        self.finished.append(Finished(node, visit, outcome, taken))
        for part in going_on:
            if part.sends:
                self._sends += self._sends_by_target(node, part.sends)

    def _edges_taken(
        self,
        node: str,
        outcome: str | None,
        going_on: Sequence[Part],
    ) -> tuple[Edge, ...]:
        ways = self._compiled.ways[node]
        edges_of_outcome = ways.when.get(outcome or "", ())
        # What the node returned as goto was rejected with it, and no router is asked.
        if outcome == REJECTED:
            if not edges_of_outcome:
                # The other tokens go on; the run ends `rejected` when none is left.
                self._rejected = True
            return edges_of_outcome

        # A goto replaces the node's own edges.
        targets: dict[str, None] = {}
        for part in going_on:
            # An edge after a fan-out is taken once, even if several tasks name it.
            targets.update(dict.fromkeys(part.goto or ()))
        if targets:
            edges = [self._declared(node, ways.goto, target) for target in targets]
            return tuple(edges)
        routed = [self._route(node, branch) for branch in ways.branches]
        return (*ways.plain, *edges_of_outcome, *routed)

    def _route(
        self,
        node: str,
        branch: Branch,
    ) -> Edge:
        """Return the edge that a router names. The router is called once: every visit
        of its node routes on the same state.
        """
        # By identity, for a branch holds a dict and has no hash.
        key = id(branch)
        if key not in self._routed:
            self._routed[key] = self._call_router(node, branch)
        return self._routed[key]

    def _call_router(
        self,
        node: str,
        branch: Branch,
    ) -> Edge:
        answer: Any = None
        try:
            answer = branch.router(self._compiled.state_for(self._state))
            return branch.edges[label_text(answer)]
        except KeyError as error:
            # The router may have raised it, before there was an answer.
            if not isinstance(answer, str | int):
                raise _router_failed(node, branch, error) from error
            message = (
                f"router {branch.name} of node {node} answered {answer!r}, "
                f"which is none of {', '.join(branch.edges)}"
            )
            raise InvalidValue(
                message,
                node=node,
                router=branch.name,
                label=str(answer),
            ) from error
        except BROKEN as error:
            raise _router_failed(node, branch, error) from error

    def _declared(
        self,
        node: str,
        ways: Mapping[str, T],
        target: str,
    ) -> T:
        """Return the way to the target. Raises `InvalidValue` if a stored result came
        from another version of the graph, and no such way leads there in this one.
        """
        if target not in ways:
            raise InvalidValue(
                f"node {node} goes on to {target}, where no edge of it leads",
                node=node,
                target=target,
            )
        return ways[target]

    def _sends_by_target(
        self,
        node: str,
        sends: tuple[tuple[str, Json], ...],
    ) -> list[SendList]:
        """Return one visit per target: a task's sends to one target are the indices of
        one fan-out.
        """
        payloads_by_target: dict[str, list[Json]] = {}
        for target, payload in sends:
            self._declared(node, self._compiled.nodes, target)
            payloads_by_target.setdefault(target, []).append(payload)
        return [
            (target, tuple(payloads)) for target, payloads in payloads_by_target.items()
        ]

    def _put_tokens(
        self,
        edges: tuple[Edge, ...],
        *,
        error: ErrorInfo | None = None,
    ) -> tuple[str, ...]:
        """Put a token on each edge, and return the ids of the edges. A token that
        reaches END is gone at once.
        """
        ids: list[str] = []
        for edge in edges:
            ids.append(edge.id)
            if edge.target == END:
                continue
            self._tokens[edge.id] = self._tokens.get(edge.id, 0) + 1
            if error is not None:
                self._errors[edge.id] = [*self._errors.get(edge.id, []), error]
        return tuple(ids)


def _outcome(statuses: list[str]) -> str:
    """Return the outcome of a visit's gate, for tasks at least one of which needed a
    decision. Those that no gate held count as approved.
    """
    return outcome_of([APPROVED if status == "done" else status for status in statuses])


def _router_failed(
    node: str,
    branch: Branch,
    error: BaseException,
) -> InvalidValue:
    message = f"router {branch.name} of node {node} failed: {described(error)}"
    return InvalidValue(
        message,
        node=node,
        router=branch.name,
    )
