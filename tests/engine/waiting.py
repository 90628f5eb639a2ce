"""Small graphs at whose gates something happens that a decider must not get wrong, each
with one that decides it so.

They are played by the tests of `play`, and run for real by those that compare the two.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    Gate,
    Graph,
    Last,
    Merge,
    Retry,
    Show,
    Sum,
    Write,
)
from tests.engine.small import Nothing

Decide = Callable[[Any], Mapping[int, Any] | None]
Example = tuple[Graph, Decide]
ANN = ["user:ann"]


class State(BaseModel):
    log: Annotated[list[str], Append] = []
    note: str = ""
    latest: Annotated[str, Last] = ""
    total: Annotated[int, Sum] = 0
    table: Annotated[dict[str, Any], Merge] = {}
    letter: Annotated[str, Artifact] = ""


def graph(**options: Any) -> Graph:
    return Graph("waiting", input=Nothing, state=State, **options)


def answers(**of: list[Any]) -> Decide:
    """A decider by node: its n-th answer when it is asked for the n-th time, after the
    last one None.
    """
    left = {node: list(listed) for node, listed in of.items()}

    def decide(request: Any) -> Any:
        listed = left.get(request.node, [])
        return listed.pop(0) if listed else None

    return decide


def node(
    flow: Graph, name: str, writes: Any, *, to: str | None = END, **options: Any
) -> None:
    """A node that returns these writes, with an edge."""
    flow.node(name, **options)(
        writes if callable(writes) else lambda state, ctx: writes
    )
    if to is not None:
        flow.edge(name, to)


def human(
    flow: Graph, name: str, proposal: Any, *, to: str | None = END, **gate: Any
) -> None:
    """A node whose writes wait for people."""
    node(
        flow,
        name,
        proposal,
        to=to,
        effect="human",
        gate=Gate(**{"reviewers": ANN, **gate}),
    )


def rejected_and_then_approved() -> Example:
    """A write is rejected; at the next pause its request is answered with a yes to all."""
    flow = graph()
    human(flow, "pay", {"note": "paid", "letter": "Dear"})
    human(flow, "beside", {"log": ["beside"]}, to="after")
    human(flow, "after", {"log": ["after"]})
    flow.edge(START, "pay")
    flow.edge(START, "beside")
    yes = {0: "approve", 1: "approve"}
    return flow, answers(
        pay=[{0: "reject"}, yes], beside=[{0: "approve"}], after=[None]
    )


def moved_and_moved_back() -> Example:
    """A branch sets the channel that an approval looked at, and sets it back."""
    flow = graph()
    human(flow, "pay", [Write("note", "paid"), Write("log", ["paid"])])
    human(flow, "beside", {"log": ["beside"]}, to="there")
    node(flow, "there", {"note": "moved"}, to="back")
    node(flow, "back", {"note": ""}, to="last")
    human(flow, "last", {"log": ["last"]})
    flow.edge(START, "pay")
    flow.edge(START, "beside")
    return flow, answers(pay=[{0: "approve"}, {1: "approve"}], beside=[{0: "approve"}])


def came_back_in_part() -> Example:
    """A graph in which an earlier settlement moves the base of one of two approved
    writes.
    """
    flow = graph()
    human(flow, "first", {"note": "first"})
    human(flow, "second", [Write("note", "second"), Write("latest", "kept")])
    for name in ("first", "second"):
        flow.edge(START, name)
    return flow, answers(
        first=[{0: "approve"}], second=[{0: "approve", 1: "approve"}, {0: "approve"}]
    )


def came_back_after_an_edit() -> Example:
    """An edited write comes back: what waits is the edited value."""
    flow = graph()
    human(flow, "first", {"note": "first"})
    human(flow, "second", {"note": "second"}, title="Note {proposal.note}")
    for name in ("first", "second"):
        flow.edge(START, name)
    return flow, answers(first=[{0: "approve"}], second=[{0: ("edit", "edited")}, None])


def edited_beside_an_approval() -> Example:
    """An edit changes the title beside a write that was approved before: that one comes
    back, a rejected one stays.
    """
    flow = graph()
    writes = [
        Write("note", "one"),
        Write("letter", "Dear"),
        Write("log", ["x"]),
        Write("log", ["y"]),
    ]
    human(flow, "ask", writes, title="Note {proposal.note}")
    _settled_in_turn(flow)
    flow.edge(START, "ask")
    first = {1: "approve", 2: "reject"}
    return flow, answers(
        ask=[first, {0: ("edit", "two"), 3: "approve"}, {1: "approve"}], **IN_TURN
    )


def edited_to_the_same_title() -> Example:
    """An edit that changes no text leaves the approval beside it."""
    flow = graph()
    human(
        flow,
        "ask",
        [Write("note", "one"), Write("letter", "Dear")],
        title="Letter {proposal.letter}",
    )
    _settled_in_turn(flow)
    flow.edge(START, "ask")
    return flow, answers(ask=[{1: "approve"}, {0: ("edit", "two")}], **IN_TURN)


IN_TURN: dict[str, Any] = {"first": [{0: "approve"}], "second": [None, {0: "approve"}]}


def _settled_in_turn(flow: Graph) -> None:
    """Two gates of which one is settled at each pause, so that whoever waits beside
    them is asked again.
    """
    for name in IN_TURN:
        human(flow, name, {"log": [name]})
        flow.edge(START, name)


def shown_value_set_back_within_one_settlement() -> Example:
    """Three gates settle at once: the second is shown what the first moves and the
    third moves back.
    """
    flow = graph()
    human(flow, "up", {"total": 1})
    human(flow, "looks", {"log": ["looked"]}, shows=["total"])
    human(flow, "down", {"total": -1})
    for name in ("up", "looks", "down"):
        flow.edge(START, name)
    return flow, answers(
        up=[{0: "approve"}], looks=[{0: "approve"}], down=[{0: "approve"}]
    )


def nothing_proposed_with_an_error_edge() -> Example:
    flow = graph()
    human(flow, "ask", None, to="on")
    node(flow, "on", {"log": ["on"]})
    node(
        flow,
        "mend",
        lambda state, ctx: {"log": [f"{ctx.error.type} {ctx.error.attempt}"]},
    )
    flow.edge(START, "ask")
    flow.edge("ask", "mend", when="error")
    return flow, answers()


def nothing_proposed_at_first() -> Example:
    """A gated node that proposes something in its second attempt only."""
    flow = graph()
    retried = Gate(reviewers=ANN)
    node(
        flow,
        "ask",
        lambda state, ctx: (
            {"log": [f"attempt {ctx.attempt}"]} if ctx.attempt > 1 else []
        ),
        effect="human",
        gate=retried,
        retry=Retry(attempts=2, backoff=0),
    )
    flow.edge(START, "ask")
    return flow, answers(ask=[{0: "approve"}])


def breaks(state: Any, ctx: Any) -> None:
    raise RuntimeError("broken")


def failed_beside_a_gate(effect: str = "pure") -> Example:
    """A task fails in the superstep in which another one asks, while an earlier request
    is decided in part.
    """
    flow = graph()
    human(flow, "early", [Write("log", ["one"]), Write("log", ["two"])])
    human(flow, "go", {"log": ["go"]}, to=None)
    human(flow, "ask", {"note": "asked"}, title="After {latest}{log}")
    node(flow, "fails", breaks, effect=effect)
    for name in ("ask", "fails"):
        flow.edge("go", name)
    for name in ("early", "go"):
        flow.edge(START, name)
    return flow, answers(early=[{1: "approve"}], go=[{0: "approve"}])


def unknown_beside_a_gate() -> Example:
    return failed_beside_a_gate("external")


def conflict_beside_a_gate() -> Example:
    """All tasks end well, but their writes cannot be reduced."""
    flow = graph()
    human(flow, "ask", {"note": "asked"})
    for name in ("one", "two"):
        node(flow, name, {"letter": name})
    for name in ("ask", "one", "two"):
        flow.edge(START, name)
    return flow, answers()


def router_that_fails_behind_a_gate() -> Example:
    flow = graph()
    human(flow, "ask", {"note": "asked"}, to=None)
    human(flow, "beside", {"log": ["beside"]})
    flow.branch("ask", lambda state: "nowhere", {"on": END})
    for name in ("ask", "beside"):
        flow.edge(START, name)
    return flow, answers(ask=[{0: "approve"}])


def reviewers_that_name_nobody() -> Example:
    flow = graph()
    human(flow, "early", {"log": ["early"]})
    human(flow, "go", {"log": ["go"]}, to=None)
    human(flow, "ask", {"note": "asked"}, reviewers=lambda state: [])
    human(flow, "beside", {"note": "beside"})
    for name in ("ask", "beside"):
        flow.edge("go", name)
    for name in ("early", "go"):
        flow.edge(START, name)
    return flow, answers(go=[{0: "approve"}])


def journal_decided_as_one() -> Example:
    """Return what a journal of memory wants to remember is decided as a whole."""
    flow = graph(memory="journaled")

    def remember(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.memory.put("a", 1, "played")
        ctx.memory.put("b", 2, "played")
        return {"log": ["seen"]}

    human(flow, "ask", remember)
    flow.edge(START, "ask")
    return flow, answers(ask=[{0: "approve", 2: "reject"}])


def memory_set_to_the_same() -> Example:
    """A branch remembers again what is there: the version moved, so the approval comes
    back.
    """
    flow = graph()

    def remember(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.memory.put("a", "same", "played")
        return {"log": [ctx.node]}

    node(flow, "begin", remember, to=None)
    human(flow, "ask", remember)
    human(flow, "go", {"log": ["go"]}, to="again")
    node(flow, "again", remember, to="last")
    human(flow, "last", {"log": ["last"]})
    flow.edge(START, "begin")
    for name in ("ask", "go"):
        flow.edge("begin", name)
    return flow, answers(ask=[{1: "approve"}, {0: "approve"}], go=[{0: "approve"}])


def forgotten_twice() -> Example:
    """Two gates wish to forget one key: the second comes back, and then forgets
    nothing.
    """
    flow = graph()

    def forget(state: Any, ctx: Any) -> None:
        ctx.memory.delete("a", "played")

    def remember(state: Any, ctx: Any) -> None:
        ctx.memory.put("a", "there", "played")

    node(flow, "begin", remember, to=None)
    for name in ("one", "two"):
        human(flow, name, forget)
        flow.edge("begin", name)
    flow.edge(START, "begin")
    yes = {0: "approve"}
    return flow, answers(one=[yes], two=[yes, yes])


def title_of_the_moment() -> Example:
    """A title, a fact and a label stay as they were when the request was opened."""
    flow = graph()
    shown = {"log": Show(label="A line")}
    human(
        flow,
        "ask",
        [Write("log", ["x"]), Write("note", "y", "As said")],
        title="At {total}",
        writes=shown,
    )
    human(flow, "go", {"log": ["go"]}, to="moves")
    node(flow, "moves", {"total": 5, "log": ["moved"]}, to="last")
    human(flow, "last", {"log": ["last"]})
    for name in ("ask", "go"):
        flow.edge(START, name)
    return flow, answers(ask=[{0: "approve"}], go=[{0: "approve"}])


def partly_answered_with_nothing_new() -> Example:
    """An answer about settled writes alone decides nothing, and the run stays paused."""
    flow = graph()
    human(flow, "ask", [Write("log", ["x"]), Write("note", "y")])
    human(flow, "go", {"log": ["go"]}, to="more")
    human(flow, "more", {"log": ["more"]})
    for name in ("ask", "go"):
        flow.edge(START, name)
    return flow, answers(
        ask=[{0: "approve"}, {0: ("edit", ["z"])}], go=[{0: "approve"}]
    )


EXAMPLES: list[Callable[[], Example]] = [
    rejected_and_then_approved,
    moved_and_moved_back,
    came_back_in_part,
    came_back_after_an_edit,
    edited_beside_an_approval,
    edited_to_the_same_title,
    shown_value_set_back_within_one_settlement,
    nothing_proposed_with_an_error_edge,
    nothing_proposed_at_first,
    failed_beside_a_gate,
    unknown_beside_a_gate,
    conflict_beside_a_gate,
    router_that_fails_behind_a_gate,
    reviewers_that_name_nobody,
    journal_decided_as_one,
    memory_set_to_the_same,
    forgotten_twice,
    title_of_the_moment,
    partly_answered_with_nothing_new,
]
