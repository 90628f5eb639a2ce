"""Graphs that cannot run are refused when they are compiled, with every fault;
suspicious ones are warned about.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, model_validator

from orchestrator.engine import (
    END,
    START,
    Append,
    Fact,
    Gate,
    Graph,
    Interval,
    NotDone,
    Replace,
    Retry,
    Show,
    Sum,
    registry,
)
from orchestrator.engine.errors import InvalidGraph, UnknownThing
from orchestrator.engine.graphs.compile import Compiled, compile
from tests.engine.small import ASK, Log, Nothing, chain, graph_of, logs


class Refund(BaseModel):
    refund: int = 0
    mail: str = ""
    log: Annotated[list[str], Append] = []


BOTH = {"refund": Show(), "mail": Show()}


async def later(state: Any, ctx: Any) -> None:
    """An async node."""


def graph_of_node(**node: Any) -> Graph:
    """A graph of one node with these options."""
    return graph_of(chain("a"), {"a": node})


class WithoutSchema(BaseModel):
    fn: Callable[[], None]


def called(**options: Any) -> Graph:
    """A graph of one node that people let run, with these options changed."""
    call = {"effect": "external", "approve": "call", "gate": ASK}
    return graph_of_node(**{**call, "args": Refund, "prepare": logs, **options})


def gated(**gate: Any) -> Graph:
    return graph_of_node(
        effect="human", gate=Gate(**{"reviewers": ["user:ann"], **gate})
    )


def with_edges(*edges: Any, **nodes: Any) -> Graph:
    return graph_of(edges, {name: options or {} for name, options in nodes.items()})


def sub_graph() -> Graph:
    graph = with_edges((START, "a"), ("a", END), ("sub", END), ("a", "sub"))
    graph.nodes = [node for node in graph.nodes if node.name != "sub"]
    graph.node("sub", graph=graph_of_node())
    return graph


def waiting() -> Graph:
    graph = graph_of_node()
    graph.wait("paid", event="payment.received")
    return graph


def silent(*edges: Any, **nodes: Any) -> Graph:
    """A graph whose first node is approved by its deadline."""
    gate = Gate(
        reviewers=["user:ann"], deadline=timedelta(hours=1), on_deadline="approve"
    )
    return with_edges(
        (START, "a"), *edges, a={"effect": "human", "gate": gate}, **nodes
    )


def twice() -> Graph:
    graph = graph_of_node()
    graph.node("a")(logs)
    return graph


def bad_branch(labels: Any) -> Graph:
    graph = graph_of_node()
    graph.branch("a", lambda state: "x", labels)
    return graph


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: with_edges((START, "a"), ("a", END), ("b", END), b={}),
            "b cannot be reached from START",
        ),
        (
            lambda: with_edges((START, "a"), ("a", "b"), ("b", "a")),
            "END cannot be reached",
        ),
        (lambda: with_edges((START, "a"), ("a", END), ("a", "b")), "b leads nowhere"),
        (lambda: Graph("empty", input=Nothing, state=Log), "there is no node"),
        (lambda: bad_branch({"x": "nowhere"}), "there is no node nowhere"),
        (lambda: bad_branch({None: "a"}), "None is no label"),
        (lambda: bad_branch({}), "needs a router function and labels"),
        (
            lambda: with_edges((START, "a"), ("a", END), ("a", END)),
            "a>END is declared 2 times",
        ),
        (
            lambda: with_edges((START, "a", "approved"), ("a", END)),
            "from START lead plain edges only",
        ),
        (
            lambda: with_edges((START, "a"), ("a", END), ("a", END, [])),
            "edge a -> END: when=[] names no outcome",
        ),
        (
            lambda: with_edges((START, "a"), ("a", END), ("a", END, ())),
            "edge a -> END: when=() names no outcome",
        ),
        (
            lambda: with_edges((START, "a"), ("a", END), ("a", END, "")),
            "edge a -> END: when='' is none of",
        ),
        (
            lambda: bad_branch({True: "a", "true": END}),
            "branch from a: two labels are 'true'",
        ),
        (
            lambda: with_edges((START, "a"), ("a", END, "approved"), ("a", END)),
            "needs a gate at a",
        ),
        (lambda: with_edges((START, "a"), ("a", END, "maybe")), "'maybe' is none of"),
        (twice, "node a is declared 2 times"),
        (lambda: graph_of_node(goto="nowhere"), "there is no node nowhere"),
        (lambda: graph_of_node(sends=["nowhere"]), "there is no node nowhere"),
        (lambda: graph_of_node(sends=[END]), "there is no node END"),
        (lambda: graph_of_node(effect="magic"), "effect='magic'"),
        (lambda: graph_of_node(join="some"), "join='some'"),
        (lambda: graph_of_node(checkpoint="always"), "checkpoint='always'"),
        (lambda: graph_of_node(memory="none"), "memory='none'"),
        (lambda: graph_of_node(fn=lambda state: None), "function of (state, ctx)"),
        (lambda: graph_of_node(timeout=0), "timeout"),
        (lambda: graph_of_node(timeout=True), "timeout"),
        (lambda: graph_of_node(timeout=float("inf")), "timeout"),
        (lambda: graph_of_node(max_visits=0), "max_visits"),
        (
            lambda: graph_of_node(reads=["nowhere"]),
            "reads nowhere, which is no channel",
        ),
        (
            lambda: graph_of_node(effect="external", retry=Retry()),
            "Retry could repeat its effect",
        ),
        (
            lambda: graph_of_node(effect="write", retry=Retry()),
            "Retry could repeat its effect",
        ),
        (lambda: graph_of_node(retry=Retry(attempts=0)), "attempts"),
        (lambda: graph_of_node(retry=Retry(attempts=True)), "attempts"),
        (lambda: graph_of_node(retry=Retry(jitter=2)), "jitter"),
        (lambda: graph_of_node(retry=Retry(jitter=True)), "jitter"),
        (lambda: graph_of_node(retry=Retry(backoff=float("nan"))), "backoff"),
        (lambda: graph_of_node(retry=Retry(factor="2")), "factor"),  # type: ignore[arg-type]
        (
            lambda: graph_of_node(effect="external", atomic=True),
            "atomic=True is for effect='write'",
        ),
        (
            lambda: graph_of_node(effect="write", atomic=True, fn=later),
            "cannot be async",
        ),
        (lambda: graph_of_node(idempotent=True), "for write and external nodes"),
        (lambda: graph_of_node(effect="human"), "needs a gate"),
        (lambda: graph_of_node(approve="writes"), "needs a gate"),
        (lambda: graph_of_node(gate=ASK), "needs effect='human'"),
        (
            lambda: graph_of_node(effect="external", approve="writes", gate=ASK),
            "acts before people see it",
        ),
        (lambda: called(gate=None), "needs a gate"),
        (lambda: called(args=None), "needs args="),
        (lambda: called(args=dict), "needs args="),
        (lambda: called(args=WithoutSchema), "without a JSON Schema"),
        (lambda: called(prepare=None), "needs prepare="),
        (lambda: called(prepare=lambda: None), "needs prepare="),
        (lambda: called(effect="human"), "for nodes that act"),
        (
            lambda: called(gate=Gate(reviewers=["user:ann"], writes={"note": Show()})),
            "no channel",
        ),
        (lambda: gated(reviewers=[]), "no reviewers"),
        (lambda: gated(reviewers=None), "no reviewers"),
        (lambda: gated(reviewers=["ann"]), "neither user:"),
        (lambda: gated(reviewers=["user:"]), "neither user:"),
        (lambda: gated(quorum=0), "quorum"),
        (lambda: gated(shows=["nowhere"]), "shows name nowhere"),
        (lambda: gated(writes={"nowhere": Show()}), "writes name nowhere"),
        (lambda: gated(deadline=timedelta(0)), "deadline must be longer than 0"),
        (lambda: gated(deadline=timedelta(days=36_601)), "at most a hundred years"),
        (lambda: gated(deadline=3600), "neither a timedelta nor a function"),
        (lambda: gated(deadline=lambda now: now), "neither a timedelta nor a function"),
        (lambda: gated(on_deadline="approve"), "on_deadline= needs a deadline="),
        (
            lambda: silent(("a", "b"), ("b", END), b={"effect": "write"}),
            "would let b act although nobody signed",
        ),
        (
            lambda: silent(
                ("a", "b"), ("b", "c"), ("c", END), b={}, c={"effect": "external"}
            ),
            "would let c act although nobody signed",
        ),
        (
            lambda: gated(deadline=timedelta(hours=1), on_deadline="escalate"),
            "on_deadline='escalate' is none of reject, approve, fail",
        ),
        (
            lambda: gated(tiers=[(timedelta(hours=1), "remind", "ann")]),
            "a tier names 'ann', which is neither user:",
        ),
        (lambda: gated(auto="yes"), "auto must be a function of (state, proposal)"),
        (lambda: gated(auto=print, four_eyes=True), "with quorum=2 a person signs"),
        (lambda: gated(auto=print, confirm="password"), "confirm_above=500"),
        (lambda: gated(auto=print, exclusive=True), "exclusive=True keeps for"),
        (lambda: gated(veto="yes"), "veto must be a function of (state, proposal)"),
        (lambda: gated(confirm_above=10), "confirm_above= needs a confirm="),
        (
            lambda: gated(confirm="retina"),
            "confirm='retina' is none of password, passkey",
        ),
        (
            lambda: gated(confirm="password", confirm_above="much"),
            "confirm_above='much' is no amount from 0",
        ),
        (
            lambda: gated(confirm="password", confirm_above=-1),
            "confirm_above=-1 is no amount from 0",
        ),
        (
            lambda: gated(confirm="password", confirm_above=10),
            "the gate names none; write writes={channel: Show(money='amount')}",
        ),
        (lambda: gated(skip=True), "skip=True goes with approve='call'"),
        (lambda: gated(skip="no"), "skip must be True or False"),
        (lambda: gated(considered=10), "considered=10 is neither a time nor 'opened'"),
        (lambda: gated(writes={"note": Show(limits=[1])}), "limits=[1] of Show"),
        (lambda: gated(writes={"note": Show(needs="log")}), "needs='log' of Show"),
        (
            lambda: gated(writes={"note": Show(needs=["nowhere"])}),
            "needs= of Show for note names 'nowhere', which is none",
        ),
        (
            lambda: gated(writes={"note": Show(needs=["note"])}),
            "needs= leads in a circle: note needs note",
        ),
        (
            lambda: gated(
                writes={"note": Show(needs=["log"]), "log": Show(needs=["note"])}
            ),
            "needs= leads in a circle",
        ),
        (
            lambda: gated(writes={"note": Show(change=("before", "before"))}),
            "must name two keys",
        ),
        (lambda: gated(writes={"note": Show(change="ab")}), "must name two keys"),
        (lambda: graph_of_node(args=Nothing), "args= goes with approve='call'"),
        (lambda: graph_of_node(prepare=print), "prepare= goes with approve='call'"),
        (sub_graph, "no sub-graphs"),
        (waiting, "no waiting for events"),
        (
            lambda: graph_of(chain("a"), checkpoints="sometimes"),
            "checkpoints='sometimes'",
        ),
        (lambda: graph_of(chain("a"), checkpoints=Interval(-1)), "checkpoints="),
        (lambda: graph_of(chain("a"), checkpoints=Interval(True)), "checkpoints="),
        (lambda: graph_of(chain("a"), snapshot=0), "snapshot"),
        (lambda: graph_of(chain("a"), memory="eternal"), "memory='eternal'"),
        (lambda: graph_of(chain("a"), on_save_error="ignore"), "on_save_error"),
        (lambda: graph_of(chain("a"), max_supersteps=0), "max_supersteps"),
        (
            lambda: graph_of(chain("a"), max_tasks=0),
            "max_tasks must be a whole number from 1",
        ),
        (lambda: graph_of(chain("a"), encrypted="yes"), "neither True nor False"),
        (
            lambda: graph_of(chain("a"), facts=[Fact("Who", "number", indexed=True)]),
            "fact 'Who' is indexed",
        ),
        (
            lambda: graph_of(
                chain("a"), facts=[Fact("Who", "input.nobody", indexed=True)]
            ),
            "fact 'Who' is indexed",
        ),
        (lambda: graph_of(chain("a"), state=dict), "state must be a pydantic model"),
        (lambda: graph_of(chain("a:b")), "'a:b' is no name"),
    ],
)
def test_a_graph_that_cannot_run_is_refused_with_the_reason(
    make: Any, words: str
) -> None:
    with pytest.raises(InvalidGraph) as refused:
        compile(make())
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("ways", "missing"),
    [
        ([("a", END, "approved")], "partial"),
        ([("a", END, "rejected")], "approved and partial"),
        ([("a", END, "partial"), ("a", END, "error")], "approved"),
    ],
)
def test_the_edges_of_a_gated_node_must_cover_approved_and_partial(
    ways: Any, missing: str
) -> None:
    with pytest.raises(InvalidGraph, match=f"no edge for the outcome {missing}$"):
        compile(
            with_edges(
                (START, "a"),
                (START, "b"),
                ("b", END),
                *ways,
                a={"effect": "human", "gate": ASK},
            )
        )


@pytest.mark.parametrize(
    "ways",
    [
        [("a", END)],
        [("a", END, ("approved", "partial"))],
        [("a", END, "rejected"), ("a", END)],
    ],
)
def test_rejected_may_be_left_out(ways: Any) -> None:
    assert (
        compile(with_edges((START, "a"), *ways, a={"effect": "human", "gate": ASK}))
        .nodes["a"]
        .gated
    )


@pytest.mark.parametrize(
    "node",
    [
        {"effect": "external", "retry": Retry(), "idempotent": True},
        {"effect": "write", "retry": Retry(), "atomic": True},
        {"effect": "external", "retry": Retry(), "not_done": (ConnectionError,)},
        {"effect": "external", "not_done": NotDone},
        {"effect": "read", "retry": Retry(on=ValueError)},  # type: ignore[arg-type]
    ],
)
def test_a_retry_is_taken_where_it_cannot_repeat_an_effect(node: Any) -> None:
    assert compile(graph_of_node(**node)).nodes["a"].effect == node["effect"]


def test_the_decorator_without_brackets_is_refused_at_once() -> None:
    graph = Graph("g", input=Nothing, state=Log)
    with pytest.raises(InvalidGraph, match="with brackets"):
        graph.node(logs)  # type: ignore[arg-type]


def acting(authority: Any = "ask", effect: str = "write", **gate: Any) -> Graph:
    """A graph whose second node acts on the authority of the first one's gate."""
    options = {"effect": "human", "gate": Gate(reviewers=["user:ann"], **gate)}
    acts = {"effect": effect, "authority": authority}
    return graph_of(chain("ask", "act"), {"ask": options, "act": acts})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: acting(effect="read"), "authority= is for write and external nodes"),
        (lambda: acting(["ask", "asks"]), "authority= names 'asks', which is no node"),
        (lambda: acting("act"), "authority= names act, which has no gate"),
        (lambda: acting((), recheck=logs), "its recheck would never be asked"),
        (lambda: acting(recheck="yes"), "recheck must be a function of"),
        (lambda: acting(recheck=lambda state: True), "recheck must be a function of"),
        (
            lambda: with_edges(
                (START, "a"), ("a", END), ("a", "a", "rejected"), a={"effect": "write"}
            ),
            "when='rejected' needs a gate at a",
        ),
    ],
)
def test_an_authority_that_protects_nothing_is_refused(
    make: Callable[[], Graph], words: str
) -> None:
    with pytest.raises(InvalidGraph, match=words):
        compile(make())


def test_a_node_that_acts_on_authority_may_be_rejected_but_needs_a_way_on() -> None:
    graph = acting()
    graph.edge("act", "ask", when="rejected")
    assert compile(graph).nodes["act"].authority == ("ask",)
    graph.edges[:] = [edge for edge in graph.edges if edge.target != END]
    graph.edge("ask", END)
    with pytest.raises(InvalidGraph, match="leads nowhere once it has run"):
        compile(graph)


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InvalidGraph) as refused:
        compile(with_edges((START, "a"), ("a", "b"), a={"join": "x", "effect": "y"}))
    assert len(refused.value.facts["faults"]) == 3


def test_a_state_with_a_model_validator_is_refused() -> None:
    class Checked(BaseModel):
        log: list[str] = []

        @model_validator(mode="after")
        def _check(self) -> "Checked":
            return self

    with pytest.raises(InvalidGraph, match="one at a time"):
        compile(graph_of(chain("a"), state=Checked))


def test_a_circle_that_nothing_can_leave_is_a_warning() -> None:
    compiled = compile(
        with_edges((START, "a"), ("a", END), ("a", "b"), ("b", "c"), ("c", "b"))
    )
    assert compiled.warnings == ("nothing leads out of the circle of b, c",)


def refunding(*ways: Any, **gate: Any) -> Compiled:
    """Refund and mail are proposed together, and `ways` lead on from their gate to what
    does it.
    """
    options = {
        "effect": "human",
        "gate": Gate(**{"reviewers": ["user:ann"], "writes": BOTH, **gate}),
    }
    nodes = {"propose": options, "pay": {}}
    return compile(
        graph_of([(START, "propose"), ("pay", END), *ways], nodes, state=Refund)
    )


def test_an_edge_without_when_behind_a_gate_of_several_writes_is_warned_about() -> None:
    (warning,) = refunding(("propose", "pay")).warnings
    assert warning.startswith(
        "node propose: the way to pay is also taken where people reject some of its writes"
    )
    assert "(refund, mail)" in warning
    assert "when='approved'" in warning
    assert "all_or_nothing=True" in warning


@pytest.mark.parametrize(
    ("ways", "gate"),
    [
        ([("propose", "pay", "approved"), ("propose", END, "partial")], {}),
        ([("propose", "pay")], {"all_or_nothing": True}),
        ([("propose", "pay")], {"writes": {"refund": Show()}}),
        ([("propose", "pay", "approved"), ("propose", END)], {}),
    ],
)
def test_where_a_partial_approval_leads_nowhere_or_cannot_be_nothing_is_warned_about(
    ways: Any, gate: Any
) -> None:
    assert refunding(*ways, **gate).warnings == ()


def test_a_gate_that_shows_what_it_does_not_bind_is_a_warning() -> None:
    gate = {
        "title": "Pay {note} at {state.total}",
        "facts": [Fact("Log", "log"), Fact("Latest", "latest")],
    }
    compiled = compile(gated(**gate, shows=["log"], writes={"note": Show()}))
    assert [warning.split(",")[0] for warning in compiled.warnings] == [
        "node a: the gate shows latest",
        "node a: the gate shows total",
    ]


def test_a_gate_with_an_empty_list_of_reviewers_is_refused_whatever_its_graph_names() -> (
    None
):
    nodes: Any = {"a": {"effect": "human", "gate": Gate(reviewers=[])}}
    with pytest.raises(InvalidGraph, match="the gate has no reviewers"):
        compile(graph_of(chain("a"), nodes, reviewers=["group:claims"]))


def test_the_reviewers_of_the_graph_serve_gates_that_name_none() -> None:
    nodes = {"a": {"effect": "human", "gate": Gate()}}
    assert (
        compile(graph_of(chain("a"), nodes, reviewers=["group:claims"]))
        .nodes["a"]
        .gated
    )


def test_an_atomic_node_has_five_seconds_where_it_names_no_timeout() -> None:
    assert compile(graph_of_node(effect="write", atomic=True)).nodes["a"].timeout == 5
    assert compile(graph_of_node(timeout=timedelta(minutes=1))).nodes["a"].timeout == 60
    assert compile(graph_of_node()).nodes["a"].timeout is None


def test_edges_have_readable_names_and_each_label_and_outcome_is_an_edge_of_its_own() -> (
    None
):
    graph = with_edges(
        (START, "a"),
        ("a", END, ("rejected", "partial")),
        a={"effect": "human", "gate": ASK, "goto": "b"},
    )
    graph.node("b", sends="a")(logs)
    graph.edge("b", END)
    graph.branch("a", lambda state: "look", {"look": "b", "skip": END})
    assert [edge.id for edge in compile(graph).edges] == [
        "START>a",
        "a>END!rejected",
        "a>END!partial",
        "b>END",
        "a>b?look",
        "a>END?skip",
        "a=>b",
        "b~>a",
    ]


def test_two_branches_of_one_node_may_give_one_label_and_one_target() -> None:
    graph = graph_of_node()
    for ways in ({"no": END, "yes": "a"}, {"no": END, "no#2": END}, {"no": END}):
        graph.branch("a", lambda state: "no", ways)
    compiled = compile(graph)
    ids = [edge.id for edge in compiled.edges]
    assert ids == [
        "START>a",
        "a>END",
        "a>END?no",
        "a>a?yes",
        "a>END?no#2",
        "a>END?no#2#2",
        "a>END?no#3",
    ]
    assert [branch.edges["no"].id for branch in compiled.ways["a"].branches] == [
        ids[2],
        ids[4],
        ids[6],
    ]


def test_a_policy_of_interval_0_is_manual() -> None:
    assert (
        compile(graph_of(chain("a"), checkpoints=Interval(0))).checkpoints == "manual"
    )
    assert compile(graph_of(chain("a"), checkpoints=Interval(3))).checkpoints == 3


# Fingerprints


def test_the_same_declaration_has_the_same_fingerprint() -> None:
    assert compile(gated()).fingerprint == compile(gated()).fingerprint


class Other(Log):
    total: Annotated[int, Replace] = 0


class Typed(Log):
    total: Annotated[float, Sum] = 0  # type: ignore[assignment]


@pytest.mark.parametrize(
    "other",
    [
        lambda: graph_of(chain("a", "b")),
        lambda: graph_of([*chain("a"), ("a", "a")]),
        lambda: graph_of_node(effect="read"),
        lambda: graph_of_node(join="any"),
        lambda: graph_of_node(reads=["log"]),
        lambda: gated(),
        lambda: graph_of(chain("a"), state=Other),
        lambda: graph_of(chain("a"), state=Typed),
        lambda: graph_of(chain("a"), version="2"),
        lambda: graph_of(chain("a"), memory="snapshot"),
    ],
)
def test_what_a_run_depends_on_is_in_the_fingerprint(other: Any) -> None:
    assert compile(graph_of_node()).fingerprint != compile(other()).fingerprint


def test_a_gate_is_in_the_fingerprint_with_all_its_policy() -> None:
    gates: list[dict[str, Any]] = [
        {},
        {"quorum": 2},
        {"four_eyes": True},
        {"shows": ["note"]},
        {"reviewers": ["user:bob"]},
    ]
    assert len({compile(gated(**gate)).fingerprint for gate in gates}) == len(gates)


def test_docstrings_and_code_are_not_in_the_fingerprint() -> None:
    def other(state: Any, ctx: Any) -> None:
        """Something else."""

    assert (
        compile(graph_of_node(fn=other)).fingerprint
        == compile(graph_of_node()).fingerprint
    )


# Catalogue


def test_the_catalogue_is_plain_json_and_says_what_nodes_do() -> None:
    from orchestrator.engine.values import canonical

    shown = compile(gated(quorum=2, four_eyes=True)).catalogue()
    canonical.dumps(shown)
    assert shown["nodes"][0]["gate"] == "2 signatures of ann under four eyes"
    assert "people decide" in shown["nodes"][0]["effect_in_words"]
    assert shown["state_schema"]["properties"]["log"]["type"] == "array"


def test_a_graph_draws_itself() -> None:
    graph = gated()
    graph.branch("a", lambda state: "x", {'odd "label" | x': "a"})
    drawn = graph.to_mermaid()
    assert drawn.startswith("flowchart TD\n")
    assert 'n0{{"a"}}' in drawn
    assert "odd #34;label#34; #124; x" in drawn


# Registry


@pytest.fixture
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})


def named(name: str, version: str = "1", current: bool | None = None) -> Graph:
    graph = Graph(name, version=version, current=current, input=Nothing, state=Log)
    graph.node("a")(logs)
    graph.edge(START, "a")
    graph.edge("a", END)
    return graph


@pytest.mark.usefixtures("empty_registry")
def test_new_runs_take_the_version_declared_last_unless_one_says_current() -> None:
    registry.register(named("pay", "1"))
    assert registry.register(named("pay", "2")) is registry.current("pay")
    old = registry.register(named("pay", "0", current=True))
    assert registry.get("pay") is registry.current("pay") is old
    assert registry.get("pay", "2").version == "2"
    assert [graph.version for graph in registry.all()] == ["1", "2", "0"]


@pytest.mark.usefixtures("empty_registry")
def test_an_unknown_graph_is_refused_with_near_misses() -> None:
    registry.register(named("claim_payout"))
    with pytest.raises(UnknownThing, match="did you mean claim_payout"):
        registry.current("claim_pay")
    with pytest.raises(UnknownThing, match="registered: 1"):
        registry.get("claim_payout", "9")


@pytest.mark.usefixtures("empty_registry")
def test_a_name_and_version_are_registered_once_and_then_frozen() -> None:
    graph = named("pay")
    compiled: Compiled = registry.register(graph)
    assert registry.register(graph) is compiled
    assert registry.by_fingerprint(compiled.fingerprint) is compiled
    with pytest.raises(InvalidGraph, match="registered already"):
        registry.register(named("pay"))
    with pytest.raises(InvalidGraph, match="can no longer change"):
        graph.edge("a", END)
    assert registry.replace(named("pay")) is registry.get("pay")


@pytest.mark.usefixtures("empty_registry")
def test_two_current_versions_are_refused() -> None:
    registry.register(named("pay", "1", current=True))
    with pytest.raises(InvalidGraph, match="current=True"):
        registry.register(named("pay", "2", current=True))


@pytest.mark.usefixtures("empty_registry")
def test_a_fingerprint_that_nobody_has_is_unknown() -> None:
    with pytest.raises(UnknownThing, match="deploy the version"):
        registry.by_fingerprint("0" * 64)


def test_silence_may_approve_what_leads_to_effects_only_behind_another_gate() -> None:
    asks = {"effect": "human", "gate": ASK}
    acts = {"effect": "external"}
    behind = silent(("a", "b"), ("b", "c"), ("c", END), b=asks, c=acts)
    assert isinstance(compile(behind), Compiled)
    rejected = silent(("a", END), ("a", "c", "rejected"), ("c", END), c=acts)
    assert isinstance(compile(rejected), Compiled)


FAILS_OVER = (("a", "b"), ("b", END), ("b", "c", "error"), ("c", END))
RULE = Gate(reviewers=["user:ann"], needs_approval=lambda state, proposal: False)
CALL_OF_RULE = {"effect": "external", "approve": "call", "args": Refund}


@pytest.mark.parametrize(
    ("edges", "nodes"),
    [
        # What is asked at b may fail before anybody is asked.
        (FAILS_OVER, {"b": {"effect": "human", "gate": ASK}}),
        # The rule of b may answer that nobody needs to be asked.
        (chain("a", "b", "c")[1:], {"b": {"effect": "human", "gate": RULE}}),
        (chain("a", "c")[1:], {"c": {**CALL_OF_RULE, "prepare": logs, "gate": RULE}}),
        ((("a", "b"), ("b", END), ("c", END)), {"b": {"sends": ["c"]}}),
        ((("a", "b"), ("b", END), ("c", END)), {"b": {"goto": ["c"]}}),
    ],
)
def test_silence_approves_nothing_that_can_act_before_people_decide(
    edges: Any, nodes: dict[str, Any]
) -> None:
    nodes = {"c": {"effect": "external"}, **nodes}
    with pytest.raises(InvalidGraph, match="would let c act although nobody signed"):
        compile(silent(*edges, **nodes))
