"""What can still run from a frontier: nothing else does, and what is certain does,
unless something fails.
"""

from dataclasses import replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from orchestrator.engine import END, START, Gate, Graph
from orchestrator.engine.graphs.compile import Compiled, compile
from orchestrator.engine.step.frontier import Part
from orchestrator.engine.step.plan import Frontier, begin, plan
from orchestrator.engine.step.reduce import reduce_step, settle_step
from orchestrator.engine.travel.outlook import Outlook, foresee
from tests.engine.random_graphs import (
    BUDGET,
    State,
    built,
    graphs,
    result_of,
    some_settled,
)
from tests.engine.reference import Spec
from tests.engine.small import Nothing


def _graph(**options: Any) -> Graph:
    """first -> second -> third; each of `options` are those of a node."""
    graph = Graph("ahead", input=Nothing, state=State)
    for name in ("first", "second", "third"):
        graph.node(name, **options.get(name, {}))(lambda state, ctx: None)
    for source, target in (
        (START, "first"),
        ("first", "second"),
        ("second", "third"),
        ("third", END),
    ):
        graph.edge(source, target)
    return graph


def _ahead(graph: Graph, **options: Any) -> Outlook:
    compiled = compile(graph)
    return foresee(compiled, begin(compiled), **options)


def test_nodes_in_a_row_all_run() -> None:
    assert _ahead(_graph()) == Outlook(("first", "second", "third"), ())


def test_what_is_behind_a_gate_may_run() -> None:
    gate = {"gate": Gate(reviewers=["user:ann"]), "effect": "human"}
    assert _ahead(_graph(second=gate)) == Outlook(("first", "second"), ("third",))


def _joined(*, gated: tuple[str, ...] = ()) -> Graph:
    """first and second, then between, side by side before join; between is behind
    second.
    """
    graph = Graph("joined", input=Nothing, state=State)
    for name in ("first", "second", "between", "join", "last"):
        gate = (
            {"gate": Gate(reviewers=["user:ann"]), "effect": "human"}
            if name in gated
            else {}
        )
        graph.node(name, **gate)(lambda state, ctx: None)
    for source, target in (
        (START, "first"),
        (START, "second"),
        ("second", "between"),
        ("first", "join"),
        ("between", "join"),
        ("join", "last"),
        ("last", END),
    ):
        when = {"when": ("approved", "partial", "rejected")} if source in gated else {}
        graph.edge(source, target, **when)
    return graph


def test_a_join_behind_a_gate_may_run_for_it_waits_for_somebody_who_may_never_answer() -> (
    None
):
    assert _ahead(_joined()) == Outlook(
        ("first", "second", "between", "join", "last"), ()
    )
    assert _ahead(_joined(gated=("between",))) == Outlook(
        ("first", "second", "between"), ("join", "last")
    )
    assert _ahead(_joined(gated=("second",))) == Outlook(
        ("first", "second"), ("between", "join", "last")
    )


def test_a_join_beside_a_node_about_which_somebody_is_asked_first_may_run() -> None:
    assert _ahead(_joined(), stops=["between"]) == Outlook(
        ("first", "second"), ("between", "join", "last")
    )


def test_a_join_behind_a_proposal_that_waits_already_may_run() -> None:
    compiled = compile(_joined(gated=("second",)))
    waiting = replace(
        begin(compiled),
        tokens={"first>join": 1},
        waiting={"second:1": (Part("gated"),)},
    )
    assert foresee(compiled, waiting) == Outlook((), ("between", "join", "last"))


def test_a_join_behind_a_gate_that_was_answered_runs() -> None:
    compiled = compile(_joined(gated=("between",)))
    answered = replace(
        begin(compiled), tokens={"first>join": 1, "between>join!approved": 1}
    )
    assert foresee(compiled, answered) == Outlook(("join", "last"), ())


def test_what_somebody_is_asked_about_first_may_run() -> None:
    assert _ahead(_graph(), stops=["second"]) == Outlook(
        ("first",), ("second", "third")
    )


def test_behind_a_router_a_node_may_run() -> None:
    graph = _graph()
    graph.branch("first", lambda state: "no", {"yes": "third", "no": END})
    assert _ahead(graph) == Outlook(("first", "second", "third"), ())
    beside = _graph()
    beside.node("extra")(lambda state, ctx: None)
    beside.edge("extra", END)
    beside.branch("first", lambda state: "no", {"yes": "extra", "no": END})
    assert _ahead(beside).may_run == ("extra",)


def test_behind_a_node_with_an_error_edge_nothing_is_certain() -> None:
    graph = _graph()
    graph.edge("first", "third", when="error")
    assert _ahead(graph) == Outlook(("first",), ("second", "third"))


def test_a_loop_that_doubles_its_tasks_is_foreseen_without_counting_them() -> None:
    graph = Graph("doubling", input=Nothing, state=State)
    graph.node("again", join="any")(lambda state, ctx: None)
    for target in ("again", END):
        graph.edge("again", target)
    graph.edge(START, "again")
    graph.branch("again", lambda state: "yes", {"yes": "again", "no": END})
    compiled = compile(graph)
    frontier = replace(begin(compiled), tokens={"again>again": 2**60})
    assert foresee(compiled, frontier) == Outlook(("again",), ())
    assert len(plan(compiled, frontier).starts) == 10_000


def test_a_frontier_without_work_has_nothing_ahead() -> None:
    compiled = compile(_graph())
    assert foresee(compiled, Frontier()) == Outlook((), ())


class Journey:
    """A random graph played step by step: each frontier, and what ran after it."""

    def __init__(self, compiled: Compiled, seed: int) -> None:
        self.frontiers = [begin(compiled)]
        self.ran = []
        self.failed = False
        state = compiled.fresh_state()
        for _ in range(14):
            frontier = self.frontiers[-1]
            planned = plan(compiled, frontier)
            if planned.tasks > BUDGET:
                break
            settled = [] if planned.starts else some_settled(compiled, frontier, seed)
            if not (planned.starts or settled):
                return
            results = {
                start.task: result_of(compiled, start) for start in planned.starts
            }
            if any(
                result.error and not compiled.has_error_edge(task.node)
                for task, result in results.items()
            ):
                break
            step = (
                reduce_step(compiled, planned, state, results)
                if results
                else settle_step(compiled, frontier, state, settled)
            )
            self.ran.append({task.node for task in results})
            self.frontiers.append(step.frontier)
            state = step.state
        self.failed = True


@given(graphs(), st.integers(0, 2**32), st.integers(0, 14))
def test_from_any_superstep_only_named_nodes_run_and_certain_ones_do(
    made: tuple[list[Spec], list[str]], seed: int, at: int
) -> None:
    specs, starts = made
    compiled = compile(built(specs, starts, seed))
    journey = Journey(compiled, seed)
    at = min(at, len(journey.ran))
    ahead = foresee(compiled, journey.frontiers[at])
    ran = {node for step in journey.ran[at:] for node in step}
    event("failed or unending" if journey.failed else "ended")
    assert ran <= {*ahead.runs, *ahead.may_run}
    if not journey.failed:
        assert set(ahead.runs) <= ran
