"""Every difference between two versions is told in words, and says what it means for a
run at a point.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from orchestrator.engine import (
    END,
    START,
    Append,
    Artifact,
    Gate,
    Graph,
    Last,
    Limit,
    Show,
)
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.versions.differences import (
    BREAKING,
    HARMLESS,
    WARNING,
    Difference,
    differences,
)
from orchestrator.engine.versions.pending_parts import Pending
from tests.engine.small import Nothing, logs


class Inner(BaseModel):
    payee: str = ""


class State(BaseModel):
    log: Annotated[list[str], Append] = []
    amount: int = 0
    inner: Inner = Inner()
    kind: Literal["a", "b"] = "a"


def declared(
    *nodes: str,
    state: type[BaseModel] = State,
    input_type: type[BaseModel] = Nothing,
    gate: dict[str, Any] | None = None,
    options: dict[str, dict[str, Any]] | None = None,
    extra: tuple[tuple[str, str], ...] = (),
    version: str = "1",
) -> Any:
    """The structure of a row of nodes; of "pay" people are asked."""
    flow = Graph("g", input=input_type, state=state, version=version)
    names = nodes or ("fetch", "pay", "send")
    for name in names:
        more: dict[str, Any] = (options or {}).get(name, {})
        if name == "pay":
            asks = {"reviewers": ["user:ann", "user:bob"], "quorum": 2, **(gate or {})}
            more = {"approve": "writes", "gate": Gate(**asks), **more}
        flow.node(name, **more)(logs)
    for source, target in [*zip((START, *names), (*names, END), strict=True), *extra]:
        flow.edge(source, target)
    return compile(flow).structure


def declared_call(*, skip: bool) -> Any:
    """The structure in which people decide before "pay" runs."""
    gate = Gate(reviewers=["user:ann"], skip=skip)
    call = {"effect": "external", "approve": "call", "args": Nothing, "prepare": logs}
    return declared(options={"pay": {**call, "gate": gate}})


def said(new: Any, at: Pending | None = None, old: Any = None) -> list[tuple[str, str]]:
    return [
        (difference.weight, difference.words)
        for difference in differences(old or declared(), new, at)
    ]


AT_FETCH = Pending(edges=("START>fetch",))
ASKED = Pending(awaiting_people=("pay",))
BEHIND = Pending(edges=("pay>send",))
PAST = Pending(edges=("send>END",))


class Text(State):
    amount: str = ""  # type: ignore[assignment]


class Fewer(BaseModel):
    log: Annotated[list[str], Append] = []
    inner: Inner = Inner()
    kind: Literal["a", "b"] = "a"


class More(State):
    note: str = "empty"


class Reduced(State):
    amount: Annotated[int, Last] = 0


class Relocated(State):
    amount: Annotated[int, Artifact] = 0


class Default(State):
    amount: int = 5


class Payee(BaseModel):
    payee: int = 0


class Nested(State):
    inner: Payee = Payee()  # type: ignore[assignment]


class Choice(State):
    kind: Literal["a", "c"] = "a"  # type: ignore[assignment]


class Bounded(State):
    amount: Annotated[int, Field(le=10)] = 0


class Titled(State):
    amount: Annotated[int, Field(title="Amount", description="In euros")] = 0


class Real(State):
    amount: float = 0.0  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Text, (BREAKING, "channel `amount`: number became text")),
        (Fewer, (BREAKING, "channel `amount`: was removed")),
        (Reduced, (BREAKING, "channel `amount`: reducer Replace became Last")),
        (Relocated, (BREAKING, "channel `amount`: partition scratch became artifacts")),
        (Nested, (BREAKING, "channel `inner`: field payee: text became number")),
        (Choice, (BREAKING, "channel `kind`: one of a, b became one of a, c")),
        (Bounded, (BREAKING, "channel `amount`: maximum nothing became 10")),
        (Real, (BREAKING, "channel `amount`: whole number became number")),
        (More, (WARNING, "channel `note`: is new, with the default empty")),
        (Default, (WARNING, "channel `amount`: default 0 became 5")),
    ],
)
def test_a_changed_channel_is_named_with_what_became_of_it(
    state: Any, expected: tuple[str, str]
) -> None:
    changes = [
        difference
        for difference in differences(declared(), declared(state=state))
        if not difference.words.startswith("order")
    ]
    assert (changes[0].weight, changes[0].words) == expected
    assert changes[0].migratable == (expected[0] == BREAKING)


def test_titles_and_descriptions_are_no_difference() -> None:
    assert said(declared(state=Titled)) == []


def test_a_version_alone_is_harmless() -> None:
    assert said(declared(version="2")) == [(HARMLESS, "version: 1 became 2")]


class Given(BaseModel):
    claim: str


class Optional(BaseModel):
    claim: str = ""


def test_an_input_that_runs_lack_breaks_and_one_with_a_default_does_not() -> None:
    assert (
        BREAKING,
        "input `claim`: is new, and runs that have begun lack it",
    ) in said(declared(input_type=Given))
    assert said(declared(input_type=Optional)) == [(WARNING, "input `claim`: is new")]
    assert (BREAKING, "input `claim`: was removed") in said(
        declared(), old=declared(input_type=Given)
    )


def test_a_node_that_is_needed_breaks_and_others_do_not() -> None:
    new = declared("fetch", "pay")
    assert (
        BREAKING,
        "node `send`: was removed, and the run was about to go on there",
    ) in said(new, BEHIND)
    assert (WARNING, "node `send`: was removed") in said(new, ASKED)
    gated = declared(
        options={"send": {"approve": "writes", "gate": Gate(reviewers=["user:ann"])}}
    )
    assert BREAKING in {weight for weight, _ in said(new, ASKED, gated)}
    without = declared("pay", "send")
    assert (HARMLESS, "node `fetch`: was removed") in said(without, BEHIND)
    assert all(weight != BREAKING for weight, _ in said(without, BEHIND))


def test_a_gated_node_that_lies_ahead_may_not_be_taken_out_nor_be_left_aside() -> None:
    without = declared("fetch", "send")
    aside = declared(extra=(("fetch", "send"),))
    aside = {**aside, "edges": [edge for edge in aside["edges"] if edge != "fetch>pay"]}
    lost = (
        BREAKING,
        "gate of node `pay`: was removed with its node, and the run was to be asked there",
    )
    left = (
        BREAKING,
        "gate of node `pay`: is not on the way any more, and the run was to be asked there",
    )
    assert lost in said(without, AT_FETCH)
    assert lost in said(without)
    assert left in said(aside, AT_FETCH)
    assert all(
        weight != BREAKING for weight, _ in [*said(without, PAST), *said(aside, PAST)]
    )


def test_a_way_round_a_gate_that_lies_ahead_breaks() -> None:
    new = declared(extra=(("fetch", "send"),))
    free = (
        BREAKING,
        "gate of node `pay`: `send` came only behind it, and can begin without it now",
    )
    assert free in said(new, AT_FETCH)
    assert free in said(new)
    for at in (ASKED, BEHIND, PAST):
        assert all(weight != BREAKING for weight, _ in said(new, at))
    open_before = declared(extra=(("fetch", "send"),))
    assert all(
        weight != BREAKING
        for weight, _ in said(declared("fetch", "check", "pay", "send"), AT_FETCH)
    )
    assert said(new, AT_FETCH, old=open_before) == []


def test_a_gate_breaks_where_items_of_its_node_were_not_all_asked() -> None:
    new = declared(gate={"quorum": 1})
    for at in (
        Pending(nodes=("pay",), awaiting_people=("pay",)),
        Pending(edges=("fetch>pay",), awaiting_people=("pay",)),
    ):
        assert said(new, at) == [(BREAKING, "gate of node `pay`: quorum 2 became 1")]


def test_an_edge_breaks_where_something_is_on_it() -> None:
    new = declared("fetch", "check", "pay", "send")
    assert (WARNING, "node `check`: is new") in said(new, AT_FETCH)
    on = Pending(edges=("fetch>pay",))
    assert (
        BREAKING,
        "edge `fetch>pay`: was removed, and the run was on its way along it",
    ) in said(new, on)
    assert all(weight != BREAKING for weight, _ in said(new, ASKED))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"effect": "write"}, "node `send`: effect external became write"),
        ({"idempotent": True}, "node `send`: safe to do again: no became yes"),
        (
            {"not_done": (KeyError,)},
            "node `send`: the errors that say that nothing happened: none became KeyError",
        ),
    ],
)
def test_what_may_happen_a_second_time_breaks_wherever_the_run_is(
    options: dict[str, Any], words: str
) -> None:
    old = declared(options={"send": {"effect": "external"}})
    new = declared(options={"send": {"effect": "external", **options}})
    for at in (None, AT_FETCH, ASKED):
        assert (BREAKING, words) in said(new, at, old)


def acting(authority: Any = "pay", recheck: Any = logs) -> Any:
    """The structure in which `send` acts on the authority of `pay`."""
    options: dict[str, Any] = {"effect": "external", "authority": authority}
    gate = {"recheck": recheck} if authority else {}
    return declared(options={"send": options}, gate=gate)


def test_a_node_that_may_yet_act_keeps_the_authority_on_which_it_acts() -> None:
    less = (BREAKING, "authority of node `send`: pay became none")
    for at in (None, AT_FETCH, ASKED, BEHIND, Pending(awaiting_people=("send",))):
        assert less in said(acting(()), at, acting())
    assert (HARMLESS, less[1]) in said(acting(()), PAST, acting())
    more = (WARNING, "authority of node `send`: none became pay")
    assert more in said(acting(), AT_FETCH, acting(()))


def test_a_node_that_may_yet_act_keeps_the_recheck_that_it_passes() -> None:
    words = "authority of node `send`: the recheck of pay: logs became none"
    assert (BREAKING, words) in said(acting(recheck=None), BEHIND, acting())
    assert (HARMLESS, words) in said(acting(recheck=None), PAST, acting())
    words = "authority of node `send`: the recheck of pay: none became logs"
    assert (WARNING, words) in said(acting(), BEHIND, acting(recheck=None))


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        ({"quorum": 1}, "quorum 2 became 1"),
        (
            {"reviewers": ["user:ann", "user:cid"]},
            "reviewers user:ann, user:bob became user:ann, user:cid",
        ),
        (
            {"needs_approval": lambda state, proposal: False},
            "whether people are asked: always became",
        ),
        ({"reject_quorum": 2}, "rejections needed 1 became 2"),
        (
            {"deadline": timedelta(hours=1), "on_deadline": "approve"},
            "at the deadline: none became approve",
        ),
    ],
)
def test_a_gate_that_gets_easier_breaks_until_its_request_is_open(
    gate: dict[str, Any], words: str
) -> None:
    new = declared(gate=gate)
    assert any(
        w == BREAKING and f"gate of node `pay`: {words}" in sentence
        for w, sentence in said(new, AT_FETCH)
    )
    assert [weight for weight, _ in said(new, ASKED)] == [HARMLESS]
    assert [weight for weight, _ in said(new, BEHIND)] == [HARMLESS]


def test_a_gate_that_can_be_asked_again_breaks_also_while_it_asks() -> None:
    again = (("send", "pay"),)
    words = said(
        declared(gate={"quorum": 1}, extra=again), ASKED, declared(extra=again)
    )
    assert words == [(BREAKING, "gate of node `pay`: quorum 2 became 1")]


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ({}, "password became nothing"),
        (
            {
                "confirm": "password",
                "confirm_above": 100,
                "writes": {"log": Show(money="value")},
            },
            "password became password above 100",
        ),
    ],
)
def test_a_gate_that_asks_for_less_confirmation_breaks_until_its_request_is_open(
    new: dict[str, Any], words: str
) -> None:
    old = declared(gate={"confirm": "password"})
    change = f"gate of node `pay`: who signs confirms by: {words}"
    assert (BREAKING, change) in said(declared(gate=new), AT_FETCH, old)
    assert BREAKING not in {
        weight for weight, _ in said(declared(gate=new), ASKED, old)
    }


def test_a_gate_that_asks_to_look_for_less_breaks_until_its_request_is_open() -> None:
    old = declared(gate={"considered": timedelta(seconds=10)})
    new = declared(gate={"considered": timedelta(seconds=5)})
    words = "who signs looks first: 10 seconds each became 5 seconds each"
    assert (BREAKING, f"gate of node `pay`: {words}") in said(new, AT_FETCH, old)
    assert BREAKING not in {weight for weight, _ in said(new, ASKED, old)}


def test_a_gate_at_which_people_may_skip_breaks_until_its_request_is_open() -> None:
    calling = declared_call(skip=False)
    new = declared_call(skip=True)
    words = "a call may be skipped no became yes"
    assert (BREAKING, f"gate of node `pay`: {words}") in said(new, AT_FETCH, calling)
    assert BREAKING not in {weight for weight, _ in said(new, ASKED, calling)}
    assert {weight for weight, _ in said(calling, AT_FETCH, new)} == {WARNING}


@pytest.mark.parametrize(
    "gate",
    [
        {"reviewers": ["user:ann"], "quorum": 2},
        {"quorum": 3},
        {"four_eyes": True},
        {"all_or_nothing": True},
        {"shows": ["amount"]},
        {"confirm": "passkey"},
        {"considered": "opened"},
        {"writes": {"log": Show(reason_required=True)}},
        {"writes": {"log": Show(needs=["amount"]), "amount": Show()}},
        {"writes": {"log": Show(limits={"value": Limit(unchanged=True)})}},
    ],
)
def test_a_stricter_gate_is_a_warning(gate: dict[str, Any]) -> None:
    assert {weight for weight, _ in said(declared(gate=gate), AT_FETCH)} == {WARNING}
    assert BREAKING in {
        weight for weight, _ in said(declared(), AT_FETCH, declared(gate=gate))
    }


def test_a_gate_that_is_gone_breaks_before_and_while_it_asks() -> None:
    new = declared(options={"pay": {"approve": None, "gate": None}})
    assert (BREAKING, "gate of node `pay`: was removed") in said(new, AT_FETCH)
    assert (
        BREAKING,
        "gate of node `pay`: was removed, and people are asked there now",
    ) in said(new, ASKED)


def test_a_way_breaks_that_a_kept_result_takes() -> None:
    def leading(*ways: str) -> Any:
        flow = Graph("g", input=Nothing, state=State)
        flow.node(
            "ask",
            goto=["x"] if "goto" in ways else [],
            sends=["x"] if "send" in ways else [],
        )(logs)
        for name in ("x", "mend"):
            flow.node(name)(logs)
            flow.edge(name, END)
        flow.edge(START, "mend")
        flow.edge(START, "ask")
        flow.edge("ask", END)
        for name in ("x", "mend") if "error" in ways else ("x",):
            flow.edge("ask", name, when="error")
        return compile(flow).structure

    old = leading("goto", "send", "error")
    for kept, edge, new in [
        ("ask=>x", "ask=>x", leading("send", "error")),
        ("ask~>x", "ask~>x", leading("goto", "error")),
        ("ask!error", "ask>mend!error", leading("goto", "send")),
    ]:
        lost = (
            BREAKING,
            f"edge `{edge}`: was removed, and a result that is kept leads along it",
        )
        assert lost in said(
            new, Pending(awaiting_people=("ask",), ways_on=(kept,)), old
        )
        assert all(
            weight != BREAKING
            for weight, _ in said(new, Pending(awaiting_people=("ask",)), old)
        )


def test_a_join_breaks_where_a_token_waits_for_it() -> None:
    new = declared(options={"send": {"join": "any"}})
    assert said(new, BEHIND) == [(BREAKING, "node `send`: join all became any")]
    assert said(new, AT_FETCH) == [(WARNING, "node `send`: join all became any")]


def joining(*more: tuple[str, str], order: tuple[str, ...] = ("a", "b", "c")) -> Any:
    """The structure of three nodes side by side, the last of which is a join."""
    flow = Graph("g", input=Nothing, state=State)
    for name in order:
        flow.node(name)(logs)
    for source, target in [
        *((START, one) for one in order),
        *((one, END) for one in order),
        *more,
    ]:
        flow.edge(source, target)
    return compile(flow).structure


def test_a_join_of_an_open_superstep_that_would_wait_now_breaks() -> None:
    open_ = Pending(edges=("START>a", "START>b", "START>c"), nodes=("c",))
    waits = (BREAKING, "node `c`: was begun, and would wait for `a`, `b` now")
    assert waits in said(joining(("a", "b"), ("b", "c")), open_, joining())
    not_begun = Pending(edges=open_.edges)
    for new, at in [
        (joining(("b", "c")), not_begun),
        (joining(("c", "a")), open_),
        (joining(("a", "b")), open_),
    ]:
        assert all(weight != BREAKING for weight, _ in said(new, at, joining())), at
    assert said(joining(("b", "c")), open_, joining(("b", "c"))) == []
    sent = Pending(edges=("START>a",), nodes=("c",))
    assert all(
        weight != BREAKING for weight, _ in said(joining(("a", "c")), sent, joining())
    ), "a send never waits"


def test_the_same_structure_has_no_difference_and_each_that_is_found_survives_json() -> (
    None
):
    assert said(declared()) == []
    for difference in differences(declared(), declared("pay", state=Text)):
        assert Difference.from_json(difference.to_json()) == difference


def test_a_deadline_that_rejects_lets_nothing_through() -> None:
    hour = timedelta(hours=1)
    new = declared(gate={"deadline": hour})
    words = "gate of node `pay`: at the deadline: none became reject"
    assert (WARNING, words) in said(new, AT_FETCH)
    later = declared(gate={"deadline": 2 * hour})
    assert said(later, AT_FETCH, old=new) == []


SILENT = {"deadline": timedelta(hours=1), "on_deadline": "approve"}
ACTS: dict[str, dict[str, Any]] = {"send": {"effect": "external"}}
ACTS_NOW = (
    BREAKING,
    "gate of node `pay`: its deadline approves what people are asked now, and would "
    "let `send` act although nobody signed",
)


@pytest.mark.parametrize("between", [{}, {"approve": "writes", "gate": True}])
def test_an_open_request_that_silence_approves_must_not_come_to_lead_to_effects(
    between: dict[str, Any],
) -> None:
    names = ("pay", "tell", "send")
    # Where people are surely asked, silence at another gate approves nothing.
    asks = Gate(reviewers=["user:ann"])
    rule = Gate(reviewers=["user:ann"], needs_approval=logs)
    old = declared("pay", "tell", gate=SILENT)
    rejects = {**SILENT, "on_deadline": "reject"}
    for gate, is_open in ((asks, False), (rule, True)):
        options = {**ACTS, "tell": {**between, "gate": gate} if between else {}}
        new = declared(*names, gate=rejects, options=options)
        expected = is_open or not between
        assert (ACTS_NOW in said(new, ASKED, old)) is expected
        # It breaks no run in which nobody is asked under the old rule.
        assert ACTS_NOW not in said(new, PAST, old)


def test_an_error_before_a_gate_leads_silence_to_effects_too() -> None:
    old = declared("pay", "tell", gate=SILENT)
    asks: dict[str, Any] = {"approve": "writes", "gate": Gate(reviewers=["user:ann"])}
    new = declared("pay", "tell", "send", options={**ACTS, "tell": asks})
    assert ACTS_NOW not in said(new, ASKED, old)
    failing = {**new, "edges": [*new["edges"], "tell>send!error"]}
    assert ACTS_NOW in said(failing, ASKED, old)


def test_a_request_that_is_recorded_counts_by_its_own_policy() -> None:
    silent = declared("pay", "tell", gate=SILENT)
    asking = declared("pay", "tell", gate={**SILENT, "on_deadline": "reject"})
    new = declared("pay", "tell", "send", options=ACTS)

    def breaks(old: Any, by_silence: set[str]) -> bool:
        every = differences(old, new, ASKED, silent=by_silence)
        return ACTS_NOW in [(one.weight, one.words) for one in every]

    # The request may be older than the version that the run is pinned to.
    assert breaks(asking, {"pay"})
    assert breaks(silent, {"pay"})
    assert not breaks(silent, set())
    assert not breaks(asking, {"tell"})
