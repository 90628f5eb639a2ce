"""Mistakes that authors of graphs make: each is refused where it was made, by its
place, with its cure.
"""

import copy
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, PrivateAttr

from orchestrator.engine import (
    END,
    START,
    Append,
    Command,
    Fact,
    Gate,
    Graph,
    Retry,
    Send,
    Show,
    Write,
    play,
    registry,
)
from orchestrator.engine.graphs.compile import compile


class Order(BaseModel):
    name: str = ""


class State(BaseModel):
    log: Annotated[list[str], Append] = []
    amount: Decimal = Decimal(0)
    amounts: dict[str, list[Decimal]] = {}
    total: int = 0


class Counted(State):
    """A state that is more than its fields, so it is read whole."""

    _count: int = PrivateAttr(default=0)


class NoDefault(BaseModel):
    total: int


class AppendedText(BaseModel):
    log: Annotated[str, Append] = ""


def nothing(state: Any, ctx: Any) -> None:
    """A node that does nothing."""


def graph(
    fn: Callable[[Any, Any], Any] = nothing,
    *,
    of: dict[str, Any] | None = None,
    **node: Any,
) -> Graph:
    """A graph of the node "work", which has these options; `of` are those of the graph."""
    flow = Graph("orders", **{"input": Order, "state": State, **(of or {})})
    flow.node("work", **node)(fn)
    flow.edge(START, "work")
    flow.edge("work", END)
    return flow


def checked(**node: Any) -> str:
    """Compile a graph whose node has these options."""
    compile(graph(**node))
    return ""


def gated(decisions: Any = None, **gate: Any) -> str:
    """Play a graph whose node proposes a total, at a gate with these options."""
    policy = Gate(**{"reviewers": ["user:ann"], **gate})
    return ran(
        lambda state, ctx: {"total": 1},
        decisions=decisions,
        effect="human",
        gate=policy,
    )


def ran(fn: Callable[[Any, Any], Any], *, decisions: Any = None, **node: Any) -> str:
    """The error with which a played run ended."""
    played = play(graph(fn, **node), {}, decisions=decisions)
    return played.error.message if played.error else ""


def assign(state: Any, ctx: Any) -> None:
    state.total = 5


def assign_input(state: Any, ctx: Any) -> None:
    ctx.input.name = "Ada"


def without_brackets() -> None:
    flow = Graph("orders", input=Order, state=State)
    flow.node(nothing)  # type: ignore[arg-type]


def registered_before() -> None:
    flow = graph()
    registry.replace(flow)
    try:
        flow.node("later")(nothing)
    finally:
        registry.clear()


def with_edge(source: str, target: str, **when: Any) -> None:
    flow = graph()
    flow.edge(source, target, **when)
    compile(flow)


def with_branch(router: Any, labels: Any) -> str:
    flow = graph()
    flow.branch("work", router, labels)
    played = play(flow, {})
    return played.error.message if played.error else ""


def twice() -> str:
    flow = graph(lambda state, ctx: {"total": 1})
    flow.node("other")(lambda state, ctx: {"total": 2})
    flow.edge(START, "other")
    flow.edge("other", END)
    played = play(flow, {})
    return played.error.message if played.error else ""


MISTAKES: dict[str, tuple[Callable[[], Any], str, str]] = {
    # What a node reads
    "a channel is set": (
        lambda: ran(assign),
        "state.total cannot be set",
        "return {'total': ...}",
    ),
    "a channel is deleted": (
        lambda: ran(lambda s, c: delattr(s, "total")),
        "state.total",
        "return {'total': ...}",
    ),
    "a channel is misspelt": (
        lambda: ran(lambda s, c: s.totl),
        "no channel totl",
        "did you mean total?",
    ),
    "a channel is not read": (
        lambda: ran(lambda s, c: s.amount, reads=["total"]),
        "state.amount",
        "reads=[..., 'am",
    ),
    "the state is a dict": (
        lambda: ran(lambda s, c: s["total"]),
        "state['total']",
        "write state.total",
    ),
    "the input is set": (
        lambda: ran(assign_input),
        "input.name cannot be set",
        "in a channel of the state",
    ),
    "the input is misspelt": (
        lambda: ran(lambda s, c: c.input.nme),
        "no field nme",
        "did you mean name?",
    ),
    "ctx is misspelt": (
        lambda: ran(lambda s, c: c.imput),
        "ctx has no imput",
        "did you mean input?",
    ),
    "a secret is missing": (
        lambda: ran(lambda s, c: c.secrets["bank"]),
        "no bank",
        "Graph(secrets=['bank'])",
    ),
    "memory is misspelt": (
        lambda: ran(lambda s, c: c.memory.fetch("a")),
        "ctx.memory has no fetch",
        "it has: ",
    ),
    "ctx.ask": (
        lambda: ran(lambda s, c: c.ask("total", "?", int)),
        "node work: ctx.ask is for nodes",
        "effect='human'",
    ),
    # What a node returns
    "a float for a Decimal": (
        lambda: ran(lambda s, c: {"amount": 0.1}),
        "node work, channel amount",
        "Decimal('0.1')",
    ),
    "a float within": (
        lambda: ran(lambda s, c: {"amounts": {"a": [0.1]}}),
        "amounts.a[0]",
        "Decimal('0.1')",
    ),
    "an unknown channel": (
        lambda: ran(lambda s, c: {"totl": 1}),
        "node work writes totl",
        "did you mean total?",
    ),
    "another type": (
        lambda: ran(lambda s, c: {"total": "x"}),
        "node work, channel total",
        "must be a whole number",
    ),
    "no list for Append": (
        lambda: ran(lambda s, c: {"log": "x"}),
        "node work, channel log",
        "must be a list",
    ),
    "a write to the input": (
        lambda: ran(lambda s, c: {"input": 1}),
        "node work writes input",
        "nothing may write",
    ),
    "a number": (
        lambda: ran(lambda s, c: 5),
        "node work returned a int",
        "return nothing, a dict",
    ),
    "the state": (
        lambda: ran(lambda s, c: s),
        "node work returned a State",
        "return nothing, a dict",
    ),
    "a label that is no text": (
        lambda: ran(lambda s, c: [Write("total", 1, 5)]),
        "node work",
        "must be text",
    ),  # type: ignore[arg-type]
    "a send not declared": (
        lambda: ran(lambda s, c: [Send("other")]),
        "node work names other",
        "sends=['other']",
    ),
    "a goto not declared": (
        lambda: ran(lambda s, c: Command(goto="other")),
        "node work names other",
        "goto=['other']",
    ),
    "two replace a channel": (
        twice,
        "work:1:0 and other:1:0 both replace total",
        "use Last",
    ),
    # Arguments
    "Graph(verison=)": (
        lambda: Graph("a", verison="2"),
        "Graph(verison=...)",
        "did you mean version?",
    ),  # type: ignore[call-arg]
    "Graph without a state": (
        lambda: Graph("a", input=Order),
        "Graph(...) needs state",
        "Graph(state=...)",
    ),  # type: ignore[call-arg]
    "Graph by position": (
        lambda: Graph("a", Order, State),
        "Graph(...)",
        "name the arguments",
    ),  # type: ignore[misc]
    "node(efect=)": (
        lambda: checked(efect="read"),
        "graph.node(efect=...)",
        "did you mean effect?",
    ),
    "Gate(reviewrs=)": (
        lambda: Gate(reviewrs=["a"]),
        "Gate(reviewrs=...)",
        "did you mean reviewers",
    ),  # type: ignore[call-arg]
    "Show(lable=)": (lambda: Show(lable="a"), "Show(lable=...)", "did you mean label?"),  # type: ignore[call-arg]
    "Fact(name=)": (
        lambda: Fact(name="a"),
        "Fact(name=...)",
        "it takes: indexed, label, path",
    ),  # type: ignore[call-arg]
    "Retry(tries=)": (lambda: Retry(tries=3), "Retry(tries=...)", "it takes: attempts"),  # type: ignore[call-arg]
    "Command by position": (
        lambda: Command({"total": 1}),
        "Command(...)",
        "Command(update=...)",
    ),  # type: ignore[misc]
    # Nodes
    "a node without brackets": (
        without_brackets,
        "a node's name is text",
        "write @graph.node() with brackets",
    ),
    "a node of one argument": (
        lambda: compile(graph(lambda s: None)),
        "node work",
        "a function of (state, ctx)",
    ),  # type: ignore[arg-type, misc]
    "a node too late": (
        registered_before,
        "graph orders is registered",
        "can no longer change",
    ),
    "an unknown effect": (
        lambda: checked(effect="wrtie"),
        "node work: effect='wrtie'",
        "none of pure, read, write",
    ),
    "a retry as a number": (
        lambda: checked(retry=3),
        "node work: retry=3",
        "write retry=Retry(attempts=3)",
    ),
    "a retry of an effect": (
        lambda: checked(effect="external", retry=Retry()),
        "node work",
        "declare idempotent=True",
    ),
    "reads of no channel": (
        lambda: checked(reads=["totl"]),
        "node work reads totl",
        "did you mean total?",
    ),
    "a timeout as text": (
        lambda: checked(timeout="5"),
        "node work: timeout",
        "a number of seconds",
    ),
    # Edges
    "an edge to nowhere": (
        lambda: with_edge("work", "wrok"),
        "edge work -> wrok",
        "did you mean work?",
    ),
    "an unknown outcome": (
        lambda: with_edge("work", END, when="aproved"),
        "when='aproved'",
        "none of approved",
    ),
    "labels in a list": (
        lambda: with_branch(lambda s: "a", ["work"]),
        "branch from work",
        "{label: node}",
    ),
    "router and labels swapped": (
        lambda: with_branch({"a": END}, lambda s: "a"),
        "branch from work",
        "{label: node}",
    ),
    "an answer that is no label": (
        lambda: with_branch(lambda s: "no", {"yes": END}),
        "of node work",
        "none of yes",
    ),
    "no answer": (
        lambda: with_branch(lambda s: None, {"yes": END}),
        "of node work",
        "a label is text",
    ),
    # Gates
    "reviewers as text": (
        lambda: gated(reviewers="group:r"),
        "node work: reviewers='group:r'",
        "['group:r']",
    ),
    "reviewers without a kind": (
        lambda: gated(reviewers=["ann"]),
        "node work: reviewer 'ann'",
        "user:<name>",
    ),
    "reviewers answer text": (
        lambda: gated(reviewers=lambda s: "group:r"),
        "node work: reviewers",
        "['group:claims']",
    ),
    "no reviewers": (
        lambda: gated(reviewers=None),
        "node work: the gate has no reviewers",
        "['group:claims']",
    ),
    "a gate as text": (
        lambda: checked(effect="human", gate="user:ann"),
        "node work: gate='user:ann'",
        "gate=Gate(",
    ),
    "no gate": (
        lambda: checked(effect="human"),
        "node work: effect='human' needs a gate",
        "gate=Gate(",
    ),
    "shows as text": (
        lambda: gated(shows="total"),
        "node work: shows='total'",
        "shows=['total']",
    ),
    "writes in a list": (
        lambda: gated(writes=["total"]),
        "node work: writes=['total']",
        "{channel: Show(...)}",
    ),
    "a fact as text": (
        lambda: gated(facts=["total"]),
        "node work: facts=['total']",
        "Fact('Label'",
    ),
    # Graphs
    "a channel without default": (
        lambda: compile(graph(of={"state": NoDefault})),
        "state field total",
        "needs one",
    ),
    "Append of text": (
        lambda: compile(graph(of={"state": AppendedText})),
        "state field log",
        "needs a list",
    ),
    "an unknown policy": (
        lambda: compile(graph(of={"checkpoints": "all"})),
        "checkpoints='all'",
        "none of every_node",
    ),
    "a version as a number": (
        lambda: compile(graph(of={"version": 2})),
        "version",
        "must be text",
    ),
    "a label as a number": (
        lambda: compile(graph(of={"label": 5})),
        "label=5",
        "label='Claim {claim_id}'",
    ),
    "a fact of the graph": (
        lambda: compile(graph(of={"facts": ["name"]})),
        "facts=['name']",
        "Fact('Label'",
    ),
    "an unknown graph": (
        lambda: (compile(graph()), registry.get("order"))[0],
        "no graph order",
        "graphs.py",
    ),
    # Tests
    "decisions answer a word": (
        lambda: gated(lambda request: "approve"),
        "decisions(request) ",
        '{0: "approve"}',
    ),
    "decisions answer a list": (
        lambda: gated(lambda request: ["approve"]),
        "decisions(request) ",
        '{0: "approve"}',
    ),
    "decisions answer True": (
        lambda: gated(lambda request: {0: True}),
        "a write of work:1:0",
        '"approve", "reject"',
    ),
    "decisions by channel": (
        lambda: gated(lambda request: {"total": "approve"}),
        "work:1:0",
        "it has 0 (total)",
    ),
    "an edit without a value": (
        lambda: gated(lambda request: {0: "edit"}),
        "work:1:0",
        '("edit", value)',
    ),
    "an unknown verdict": (
        lambda: gated(lambda request: {0: "approved"}),
        "'approved'",
        "say approve, reject",
    ),
    "decisions in a dict": (
        lambda: gated({0: "approve"}),
        "decisions={0: 'approve'}",
        "lambda request:",
    ),
    "an input that is misspelt": (
        lambda: play(graph(), {"nme": "Ada"}),
        "the input of orders",
        "did you mean name?",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_an_author_is_refused_by_its_place_with_its_cure(
    mistake: str,
) -> None:
    make, place, cure = MISTAKES[mistake]
    try:
        refused = make()
    except Exception as error:
        refused = str(error)
    assert place in refused
    assert cure in refused


def test_a_gate_whose_title_reads_what_nothing_is_is_warned_about() -> None:
    gate = Gate(
        reviewers=["user:ann"],
        title="Pay {totl} for {input.name}",
        facts=[Fact("Sum", "proposal.total")],
    )
    (warning,) = compile(graph(effect="human", gate=gate)).warnings
    assert "node work: title or facts of the gate read totl" in warning
    assert "did you mean total?" in warning


# What stays possible with a state that cannot be changed


def returning(fn: Callable[[Any], Any], state: type[BaseModel] = State) -> Any:
    """Return what a node makes of the state that it reads."""
    got: list[Any] = []
    played = play(
        graph(lambda read, ctx: got.append(fn(read)), of={"state": state}), {}
    )
    assert played.error is None
    return got[0]


@pytest.mark.parametrize("model", [State, Counted])
@pytest.mark.parametrize(
    "how",
    [
        lambda s: s.model_copy(),
        copy.copy,
        copy.deepcopy,
        lambda s: s.model_copy(deep=True),
    ],
)
def test_a_copy_of_the_state_is_an_instance_of_the_model_that_can_be_changed(
    model: Any, how: Any
) -> None:
    changed = returning(how, model)
    changed.total = 9
    assert type(changed) is model
    assert changed == model(total=9)


def test_a_state_that_is_read_whole_cannot_be_set_either_and_is_like_any_instance() -> (
    None
):
    def look(state: Any) -> Any:
        with pytest.raises(Exception, match=r"state\.total cannot be set"):
            state.total = 5
        state._count = 3
        return (
            state.__class__,
            state == Counted(),
            repr(state),
            pickle.loads(pickle.dumps(state)),
        )

    model, equal, text, again = returning(look, Counted)
    assert model is Counted
    assert not equal, "the private attribute differs"
    assert text == repr(Counted())
    assert again.model_dump() == Counted().model_dump()


def test_a_decimal_an_integer_and_text_go_into_a_decimal() -> None:
    values = iter([Decimal("0.1"), 7, "1.50"])
    for _ in range(3):
        assert ran(lambda state, ctx: {"amount": next(values)}) == ""


def test_a_type_error_within_a_declaration_is_not_taken_for_a_wrong_argument() -> None:
    with pytest.raises(TypeError, match="not iterable"):
        Retry(on=(1, 2)) and graph(reads=5)
