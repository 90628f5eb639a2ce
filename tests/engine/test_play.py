"""Playing a graph: what nodes are given, retries, errors, and what the player shows."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from orchestrator.engine import (
    END,
    START,
    Gate,
    Graph,
    NotDone,
    Retry,
    Send,
    Task,
    idempotency_key,
    play,
    write_id,
)
from orchestrator.engine.errors import CountersignError, InvalidValue, PayloadTooLarge
from tests.engine.small import ASK, Log, chain, graph_of, log_of, run


class Claim(BaseModel):
    claim_id: str
    amount: Decimal
    tags: set[str] = set()


def flaky(times: int, error: Exception) -> Any:
    """A node that fails so often and then logs its attempt."""
    left = [times]

    def node(state: Any, ctx: Any) -> dict[str, Any]:
        if left[0]:
            left[0] -= 1
            raise error
        return {"log": [f"attempt {ctx.attempt}"]}

    return node


def failing(error: Exception, **node: Any) -> Any:
    graph = graph_of(chain("a"), {"a": {"fn": flaky(99, error), **node}})
    return run(graph)


def test_a_node_is_tried_again_as_often_as_its_retry_says() -> None:
    graph = graph_of(
        chain("a"),
        {"a": {"fn": flaky(2, ValueError("no")), "retry": Retry(attempts=3)}},
    )
    assert log_of(run(graph)) == ["attempt 3"]


def test_after_the_last_attempt_the_run_fails_and_nothing_of_the_superstep_counts() -> (
    None
):
    nodes = {
        "a": {"fn": flaky(9, ValueError("no")), "retry": Retry(attempts=2)},
        "b": {},
    }
    played = run(graph_of([(START, "a"), (START, "b"), ("a", END), ("b", END)], nodes))
    assert played.status == "failed"
    assert played.error is not None
    assert played.error.node == "a"
    assert played.error.type == "ValueError"
    assert played.error.message == "no"
    assert played.error.attempt == 2
    assert log_of(played) == []


def test_an_exception_that_the_retry_does_not_name_is_not_tried_again() -> None:
    played = failing(ValueError("no"), retry=Retry(on=(KeyError,)))
    assert played.error.attempt == 1


def test_an_error_of_a_node_that_acts_outside_leaves_its_outcome_unknown() -> None:
    assert failing(ValueError("no"), effect="external").status == "unknown"
    assert failing(ValueError("no"), effect="write").status == "unknown"


@pytest.mark.parametrize(
    "node",
    [
        {"idempotent": True},
        {"effect": "write", "atomic": True},
        {"not_done": ValueError},
    ],
)
def test_unless_it_is_idempotent_or_atomic_or_says_that_nothing_happened(
    node: Any,
) -> None:
    assert (
        failing(ValueError("no"), **{"effect": "external", **node}).status == "failed"
    )


def test_not_done_says_that_nothing_happened() -> None:
    assert failing(NotDone("refused"), effect="external").status == "failed"
    graph = graph_of(
        chain("a"),
        {
            "a": {
                "fn": flaky(1, NotDone("busy")),
                "effect": "external",
                "not_done": KeyError,
                "retry": Retry(on=KeyError),
            }
        },  # type: ignore[arg-type]
    )
    assert log_of(run(graph)) == ["attempt 2"]


def test_an_outcome_unknown_never_takes_the_error_edge() -> None:
    edges = [(START, "a"), ("a", END), ("a", "mend", "error"), ("mend", END)]
    played = run(
        graph_of(edges, {"a": {"fn": flaky(9, ValueError("no")), "effect": "external"}})
    )
    assert played.status == "unknown"


def test_an_error_takes_its_edge_only_and_the_node_behind_it_reads_it() -> None:
    def mend(state: Any, ctx: Any) -> dict[str, Any]:
        return {
            "log": [
                f"{ctx.error.node} {ctx.error.type} {ctx.error.message} {ctx.error.attempt}"
            ]
        }

    edges = [
        (START, "a"),
        ("a", "on"),
        ("on", END),
        ("a", "mend", "error"),
        ("mend", END),
    ]
    nodes = {
        "a": {"fn": flaky(9, ValueError("no")), "retry": Retry(attempts=2)},
        "mend": {"fn": mend},
    }
    played = run(graph_of(edges, nodes))
    assert played.status == "completed"
    assert log_of(played) == ["a ValueError no 2"]


def test_one_failed_task_of_a_fan_out_sends_one_token_to_the_error_edge_and_none_elsewhere() -> (
    None
):
    def work(state: Any, ctx: Any) -> dict[str, Any]:
        if ctx.index:
            raise ValueError(f"row {ctx.index}")
        return {"log": ["row 0"]}

    def mend(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": [ctx.error.message]}

    nodes = {
        "send": {
            "fn": lambda state, ctx: [Send("work", n) for n in range(3)],
            "sends": "work",
        },
        "work": {"fn": work},
        "mend": {"fn": mend},
    }
    edges = [
        (START, "send"),
        ("work", "on"),
        ("on", END),
        ("work", "mend", "error"),
        ("mend", END),
    ]
    assert log_of(run(graph_of(edges, nodes))) == ["row 0", "row 1"]


def test_async_nodes_work() -> None:
    async def node(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": ["async"]}

    assert log_of(run(graph_of(chain("a"), {"a": {"fn": node}}))) == ["async"]


def with_input(fn: Any) -> Graph:
    graph = Graph("claim", input=Claim, state=Log)
    graph.node("a")(fn)
    graph.edge(START, "a")
    graph.edge("a", END)
    return graph


def test_a_node_is_given_its_input_with_its_types_and_cannot_spoil_it_for_others() -> (
    None
):
    def node(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.input.tags.add("spoilt")
        return {"log": [f"{ctx.input.amount + 1} {sorted(ctx.input.tags)}"]}

    played = play(
        with_input(node), {"claim_id": "C1", "amount": "10.50", "tags": ["b", "a"]}
    )
    assert log_of(played) == ["11.50 ['a', 'b', 'spoilt']"]
    assert played.state["input"] == {
        "claim_id": "C1",
        "amount": "10.50",
        "tags": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"claim_id": "C1"}, "amount"),
        ({"claim_id": "C1", "amount": "much"}, "amount"),
        ({"claim_id": "C1", "amount": "1", "claimid": "C1"}, "claimid"),
        ({"claim_id": 7, "amount": "1"}, "claim_id"),
        ([1], ""),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_its_path(
    content: Any, path: str
) -> None:
    with pytest.raises(InvalidValue) as refused:
        play(with_input(lambda state, ctx: None), content)
    assert refused.value.facts["path"] == path


def test_an_input_may_be_an_instance_and_may_not_be_too_large() -> None:
    from orchestrator.engine.graphs.compile import compile

    compiled = compile(with_input(lambda state, ctx: None))
    claim = Claim(claim_id="C1", amount=Decimal("1.0"))
    assert compiled.stage_input(claim) == {
        "claim_id": "C1",
        "amount": "1.0",
        "tags": [],
    }
    with pytest.raises(PayloadTooLarge):
        compiled.stage_input(claim, limit=10)


def test_what_this_version_does_not_have_says_so() -> None:
    seen: list[str] = []

    def node(state: Any, ctx: Any) -> None:
        with pytest.raises(CountersignError) as refused:
            ctx.sleep_until(None)
        seen.append(refused.value.code)

    assert run(graph_of(chain("a"), {"a": {"fn": node}})).status == "completed"
    assert seen == ["not_available"]


def test_progress_checkpoints_and_logs_are_taken_without_a_worker() -> None:
    def node(state: Any, ctx: Any) -> None:
        ctx.report(1, 2, "half")
        ctx.checkpoint()
        ctx.log.info("seen", n=1)
        assert not ctx.cancelled

    played = run(graph_of(chain("a"), {"a": {"fn": node}}))
    assert played.log == [("info", "seen", {"n": 1})]


def test_the_same_graph_and_input_play_the_same() -> None:
    graph = graph_of([*chain("a", "b", "d"), ("a", "c"), ("c", "d")])
    first = run(graph)
    second = run(graph)
    assert [s.state for s in first.supersteps] == [s.state for s in second.supersteps]


def test_a_store_is_told_of_each_superstep_and_settlement() -> None:
    class Store(list[Any]):
        def save(self, checkpoint: Any) -> None:
            self.append((checkpoint.number, checkpoint.source))

    store = Store()
    graph = graph_of(chain("a", "b"), {"a": {"effect": "human", "gate": ASK}})
    run(graph, lambda request: {0: "approve"}, store=store)
    assert store == [(1, "superstep"), (1, "settlement"), (2, "superstep")]


# Identities


def test_a_task_is_written_node_visit_index() -> None:
    assert str(Task("a.b-c", 2, 3)) == "a.b-c:2:3"
    assert Task.parse("a.b-c:2:3") == Task("a.b-c", 2, 3) == ("a.b-c", 2, 3)


def test_it_says_what_of_a_gate_is_not_played() -> None:
    gate = Gate(
        reviewers=["user:ann"], confirm="password", recheck=lambda state, proposal: True
    )
    graph = graph_of(
        chain("a", "b", "c"),
        {
            "a": {"effect": "human", "gate": gate},
            "b": {"effect": "human", "gate": ASK},
            "c": {"effect": "external", "authority": "a"},
        },
    )
    assert run(graph).left_out == {"a": ["confirm", "recheck"]}


@pytest.mark.parametrize(
    "text", ["", "a", "a:1", "a:0:0", "a:1:-1", ":1:0", "a:x:0", "a:1:0:0"]
)
def test_what_names_no_task_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="node:visit:index"):
        Task.parse(text)


def test_idempotency_keys_differ_by_run_line_and_task_and_nothing_else() -> None:
    task = Task("pay", 1)
    keys = {
        idempotency_key(*place)
        for place in [
            ("r", 1, task),
            ("r", 2, task),
            ("s", 1, task),
            ("r", 1, Task("pay", 2)),
            ("r", 1, Task("pay", 1, 1)),
        ]
    }
    assert len(keys) == 5
    assert idempotency_key("r", 1, task) == idempotency_key("r", 1, Task("pay", 1, 0))
    assert len(idempotency_key("r", 1, task)) == 64


def test_ids_of_writes_are_the_same_however_often_they_are_computed() -> None:
    assert write_id("r", 1, Task("a", 1), 0) == write_id("r", 1, Task("a", 1), 0)
    assert write_id("r", 1, Task("a", 1), 0) != write_id("r", 1, Task("a", 1), 1)
    assert write_id("r", 11, Task("a", 1), 0) != write_id("r", 1, Task("a", 11), 0)


def _vetoed(*answers: Any, **gate: Any) -> Any:
    left = list(answers)

    def veto(state: Any, proposal: Any) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    asking = Gate(reviewers=["user:ann"], veto=veto, **gate)
    return graph_of(chain("a", "b"), {"a": {"effect": "human", "gate": asking}})


def test_a_veto_is_played() -> None:
    approving = lambda request: {0: "approve"}  # noqa: E731
    assert run(_vetoed(False), approving).status == "completed"
    assert run(_vetoed("no", "no", False), approving).status == "completed"
    # Nobody is asked for ever.
    assert run(_vetoed("no"), approving).status == "paused"
    assert run(_vetoed("no"), lambda request: {0: "reject"}).status == "rejected"


def test_an_automatic_policy_is_played() -> None:
    def asking(answer: Any, **gate: Any) -> Any:
        made = Gate(reviewers=["user:ann"], auto=lambda state, proposal: answer, **gate)
        return graph_of(chain("a", "b"), {"a": {"effect": "human", "gate": made}})

    assert run(asking(True)).status == "completed"
    assert run(asking("too much")).status == "paused"
    # Beside it a person is needed, for whom the decider stands.
    assert run(asking(True, quorum=2)).status == "paused"
    assert run(asking(True, veto=lambda state, proposal: "no")).status == "paused"


def test_what_a_played_deadline_approves_is_rejected_by_a_veto() -> None:
    gate = {"deadline": timedelta(hours=1), "on_deadline": "approve"}
    played = run(_vetoed("no", **gate), lambda request: "deadline")
    assert played.status == "rejected"
