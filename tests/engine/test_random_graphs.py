"""Random graphs, played by the engine and by a slow model of the rules side by side:
they must agree in every round.
"""

import os
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from orchestrator.engine import Played, play
from orchestrator.engine.graphs.compile import Compiled, compile
from orchestrator.engine.step.plan import Frontier, begin, plan
from orchestrator.engine.step.reduce import reduce_step, settle_step
from orchestrator.engine.values import canonical
from tests.engine.random_graphs import (
    BUDGET,
    built,
    graphs,
    modelled,
    result_of,
    reviewer,
    some_settled,
)
from tests.engine.reference import Model, Spec


def shown(played: Played) -> list[Any]:
    """The same of the engine."""
    return [
        (
            list(map(tuple, s.tasks)),
            s.pending_edges,
            s.skipped,
            list(map(tuple, s.waiting)),
            s.state["log"],
            s.state["note"],
        )
        for s in played.supersteps
    ]


MANY = settings(
    max_examples=int(os.environ.get("COUNTERSIGN_PLANS", "150")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@MANY
@given(graphs(), st.integers(0, 2**32), st.booleans())
def test_the_engine_plays_every_graph_as_the_rules_say(
    made: tuple[list[Spec], list[str]], seed: int, asks: bool
) -> None:
    specs, starts = made
    for spec in specs:
        spec.asks = asks and spec.gated and not spec.call
    rounds, status, supersteps = modelled(Model(specs, starts, seed))
    played = play(
        built(specs, starts, seed),
        {},
        decisions=reviewer(seed, specs),
        max_supersteps=supersteps,
    )
    event(f"ends {status}")
    assert shown(played) == rounds
    assert played.status == status


@MANY
@given(graphs(), st.integers(0, 2**32))
def test_no_token_is_lost_and_no_join_starts_without_one(
    made: tuple[list[Spec], list[str]], seed: int
) -> None:
    specs, starts = made
    compiled = compile(built(specs, starts, seed))
    frontier = begin(compiled)
    tasks = 0
    while (planned := plan(compiled, frontier)).starts and tasks < BUDGET:
        tasks += len(planned.starts)
        for node in compiled.nodes:
            taken = sum(
                frontier.tokens.get(e.id, 0) - planned.frontier.tokens.get(e.id, 0)
                for e in compiled.incoming[node]
            )
            started = {
                start.task.visit
                for start in planned.starts
                if start.task.node == node and not start.is_send
            }
            holding = sum(e.id in frontier.tokens for e in compiled.incoming[node])
            assert taken == (
                len(started)
                if compiled.nodes[node].join == "any"
                else holding * len(started)
            )
            assert len(started) <= (1 if compiled.nodes[node].join == "all" else taken)
        results = {
            start.task: result_of(compiled, start, asks=False)
            for start in planned.starts
        }
        frontier = reduce_step(
            compiled, planned, compiled.fresh_state(), results
        ).frontier
    if tasks < BUDGET:
        assert frontier.tokens == {}, "work was left, and nothing could start"


@MANY
@given(graphs(), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_a_frontier_read_back_from_its_bytes_has_the_same_future(
    made: tuple[list[Spec], list[str]], seed: int, chance: Any
) -> None:
    specs, starts = made
    compiled = compile(built(specs, starts, seed))
    live = _journey(compiled, seed, lambda frontier: frontier)
    assert live == _journey(compiled, seed, lambda frontier: _stored(frontier, chance))


def _stored(frontier: Frontier, chance: Any) -> Frontier:
    """Return a value after it went through canonical bytes, with its keys in any order,
    as from a database.
    """
    kept = canonical.loads(canonical.dumps(frontier.to_json()))
    for name in ("tokens", "errors", "visits", "waiting"):
        items = list(kept[name].items())
        chance.shuffle(items)
        kept[name] = dict(items)
    return Frontier.from_json(kept)


def _journey(compiled: Compiled, seed: int, stored: Any) -> list[bytes]:
    """The bytes of state and frontier after each step, as a runner would make them;
    half of what waits is decided at a time.
    """
    frontier = begin(compiled)
    state = compiled.fresh_state()
    marks = []
    for _ in range(12):
        planned = plan(compiled, stored(frontier))
        if len(planned.starts) > 40:
            break
        marks.append(repr(planned.starts).encode())
        if planned.starts:
            results = {
                start.task: result_of(compiled, start) for start in planned.starts
            }
            step = reduce_step(compiled, planned, state, results)
        else:
            settled = some_settled(compiled, frontier, seed)
            if not settled:
                break
            step = settle_step(compiled, stored(frontier), state, settled)
        frontier = step.frontier
        state = step.state
        marks.append(canonical.dumps([state, frontier.to_json()]))
    return marks
