"""Authors try the memory of their graphs with `play`; the rules are those of a run."""

from typing import Any

import pytest

from orchestrator.engine import Gate
from orchestrator.engine.errors import ConflictingWrites, CountersignError, InvalidValue
from orchestrator.engine.graphs import trace as traces
from orchestrator.engine.step.output import Output, WriteValue
from tests.engine.small import approve, chain, graph_of, log_of, run

GATE = Gate(reviewers=["user:ann"])


def test_what_a_node_puts_is_there_for_the_next_superstep_with_where_it_comes_from() -> (
    None
):
    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", {"colour": "blue"}, "facts", strength=0.5)

    def get(state: Any, ctx: Any) -> dict[str, Any]:
        trace = ctx.memory.get("sky", "facts")
        return {
            "log": [
                trace.content["colour"],
                trace.node,
                str(trace.strength),
                str(trace.version),
            ]
        }

    played = run(graph_of(chain("a", "b"), {"a": {"fn": put}, "b": {"fn": get}}))
    assert log_of(played) == ["blue", "a", "0.5", "1"]
    assert played.memory["facts", "sky"].superstep == 1


def test_a_task_sees_its_own_wishes_and_a_sibling_does_not() -> None:
    seen: list[Any] = []

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "grey", "facts")
        ctx.memory.delete("sea", "facts")
        seen.append(
            [ctx.memory.get("sky", "facts").content, ctx.memory.get("sea", "facts")]
        )
        seen.append(
            [trace.key for trace in ctx.memory.search("grey blue green", "facts")]
        )

    def look(state: Any, ctx: Any) -> None:
        seen.append(
            [
                ctx.memory.get("sky", "facts").content,
                ctx.memory.get("sea", "facts").content,
            ]
        )

    edges = [("START", "a"), ("START", "b"), ("a", "END"), ("b", "END")]
    played = run(
        graph_of(edges, {"a": {"fn": put}, "b": {"fn": look}}),
        memory={"facts": {"sky": "blue", "sea": "green"}},
    )
    assert seen == [["grey", None], ["sky"], ["blue", "green"]]
    assert {key: one.content for (_, key), one in played.memory.items()} == {
        "sky": "grey"
    }


def test_what_a_node_does_to_what_it_read_is_remembered_by_nobody() -> None:
    def spoil(state: Any, ctx: Any) -> None:
        ctx.memory.get("list", "facts").content.append("spoilt")
        ctx.memory.search("first", "facts")[0].content.append("spoilt")
        mine = ["mine"]
        ctx.memory.put("own", mine, "facts")
        mine.append("spoilt")
        ctx.memory.get("own", "facts").content.append("spoilt")

    played = run(
        graph_of(chain("a"), {"a": {"fn": spoil}}),
        memory={"facts": {"list": ["first"]}},
    )
    assert played.memory["facts", "list"].content == ["first"]
    assert played.memory["facts", "own"].content == ["mine"]


def test_a_gate_holds_what_its_node_wants_to_remember() -> None:
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.memory.put("limit", 100, "rules")
        ctx.memory.delete("old", "rules")
        return {"note": "seen"}

    graph = graph_of(
        chain("a"), {"a": {"fn": propose, "effect": "human", "gate": GATE}}
    )
    waiting = run(graph, memory={"rules": {"old": 1}})
    assert waiting.status == "paused"
    assert set(waiting.memory) == {("rules", "old")}
    shown = [(w.channel, w.value, w.current) for w in waiting.gates[0].writes]
    assert shown == [
        ("note", "seen", ""),
        ("$memory:rules/limit", {"content": 100, "strength": 1.0}, None),
        ("$memory:rules/old", None, {"content": 1, "strength": 1.0}),
    ]
    edit = {"content": 50, "strength": 2}
    decided = run(
        graph,
        lambda request: {0: "approve", 1: ("edit", edit), 2: "reject"},
        memory={"rules": {"old": 1}},
    )
    assert {key: one.content for (_, key), one in decided.memory.items()} == {
        "old": 1,
        "limit": 50,
    }


def test_the_second_of_two_gates_settled_at_once_on_one_key_comes_back() -> None:
    def propose(state: Any, ctx: Any) -> None:
        ctx.memory.put("limit", ctx.node, "rules")

    node = {"fn": propose, "effect": "human", "gate": GATE}
    edges = [("START", "a"), ("START", "b"), ("a", "END"), ("b", "END")]
    calls: list[tuple[str, Any]] = []

    def decide(request: Any) -> Any:
        calls.append((request.node, request.writes[0].current))
        return approve(request)

    played = run(graph_of(edges, {"a": node, "b": node}), decide)
    assert played.memory["rules", "limit"].content == "b"
    assert calls == [("a", None), ("b", None), ("b", {"content": "a", "strength": 1.0})]


def test_two_tasks_of_one_superstep_that_change_one_key_conflict_by_name() -> None:
    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", ctx.node, "facts")

    edges = [("START", "a"), ("START", "b"), ("a", "END"), ("b", "END")]
    played = run(graph_of(edges, {"a": {"fn": put}, "b": {"fn": put}}))
    assert played.error is not None
    assert played.status == "failed"
    assert played.error.type == ConflictingWrites.__name__
    assert (
        played.error.message
        == "a:1:0 and b:1:0 both replace the memory of facts / sky in one superstep"
    )
    assert played.memory == {}


@pytest.mark.parametrize(
    ("use", "content"),
    [
        (lambda m: m.put("", 1, "n"), "key"),
        (lambda m: m.put("k" * 121, 1, "n"), "key"),
        (lambda m: m.get("k", "a/b"), "namespace"),
        (lambda m: m.get("k", None), "namespace"),
        (lambda m: m.get("k\0", "n"), "key"),
        (lambda m: m.get("\ud800", "n"), "key"),
        (lambda m: m.put("k", float("nan"), "n"), "content"),
        (lambda m: m.put("k", 2**70, "n"), "content"),
        (lambda m: m.put("k", object(), "n"), "$memory:n/k"),
        (lambda m: m.put("k", 1, "n", strength=-1), "strength"),
        (lambda m: m.put("k", 1, "n", strength=float("inf")), "strength"),
        (lambda m: m.put("k", 1, "n", strength=True), "strength"),
        (lambda m: m.search("x", "n", 0), "limit"),
        (lambda m: m.search("x", "n", 10**6), "limit"),
        (lambda m: m.search(7, "n"), "text"),
        (lambda m: m.search("x", ""), "namespace"),
    ],
)
def test_what_memory_cannot_take_is_refused_by_its_place(
    use: Any, content: str
) -> None:
    collected: list[CountersignError] = []

    def node(state: Any, ctx: Any) -> None:
        with pytest.raises(InvalidValue) as refused:
            use(ctx.memory)
        collected.append(refused.value)

    assert run(graph_of(chain("a"), {"a": {"fn": node}})).status == "completed"
    assert content in collected[0].message


def test_no_node_can_write_to_memory_round_its_verbs() -> None:
    graph = graph_of(
        chain("a"), {"a": {"fn": lambda state, ctx: {"$memory:facts/sky": None}}}
    )
    played = run(graph)
    assert played.error is not None
    assert "no channel of the state" in played.error.message


def test_an_output_reads_back_from_json_as_it_was() -> None:
    write = WriteValue(
        "$memory:n/k", {"content": 1, "strength": 1.0}, "Remember k (n)", 3
    )
    whole = Output((write,), None, (), ({"asked": ["get", "n", "k"], "found": []},))
    assert Output.from_json(whole.to_json()) == whole
    assert Output((WriteValue("note", 1),)).to_json() == {
        "writes": [{"channel": "note", "value": 1, "label": None}],
        "goto": None,
        "sends": [],
    }


def test_words_are_compared_without_case_and_accents() -> None:
    assert traces.words_in("Größe_2: ÉTÉ, don't!") == ["grosse", "2", "ete", "don", "t"]
    assert traces.words_in("\"'*&|()-:~ ^") == []


def test_a_search_finds_any_of_the_words_and_ranks_by_words_then_strength_then_key() -> (
    None
):
    collected: list[str] = []

    def node(state: Any, ctx: Any) -> None:
        ctx.memory.put("weak", "late parcel", "facts", strength=0.1)
        collected.extend(
            trace.key for trace in ctx.memory.search("Late PARCEL?", "facts")
        )
        collected.append(ctx.memory.search("late", "facts", 1)[0].key)

    memory = {
        "facts": {"b": "a late bus", "a": "late", "other": "nothing"},
        "elsewhere": {"c": "late parcel"},
    }
    run(graph_of(chain("a"), {"a": {"fn": node}}), memory=memory)
    assert collected == ["weak", "a", "b", "a"]
