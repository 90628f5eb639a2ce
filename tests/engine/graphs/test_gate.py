"""What a gate holds, what people's verdicts do, and what stays as it was."""

from dataclasses import replace
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from orchestrator.engine import (
    END,
    START,
    Append,
    Command,
    Fact,
    Gate,
    Send,
    Show,
    Task,
    Write,
    outcome_of,
)
from orchestrator.engine.errors import InvalidValue, UnknownThing
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.graphs.gate import (
    needs_approval,
    plain_label,
    present,
    present_edit,
)
from orchestrator.engine.step.frontier import Frontier, Part
from orchestrator.engine.step.output import WriteValue
from orchestrator.engine.step.plan import begin, plan
from orchestrator.engine.step.reduce import (
    Result,
    Settled,
    output_of,
    reduce_step,
    settle_step,
    settleable,
)
from tests.engine.small import ASK, approve, graph_of, log_of, reject, rounds, run

OUTCOMES = [
    ("ask", "yes", "approved"),
    ("ask", "no", "rejected"),
    ("ask", "some", "partial"),
]
ENDS = [("yes", END), ("no", END), ("some", END)]


def two_writes(state: Any, ctx: Any) -> list[Write]:
    return [
        Write("log", ["first"], "The first"),
        Write("log", ["second"]),
        Write("note", "n"),
    ]


def asking(gate: Gate = ASK, **node: Any) -> Any:
    nodes = {"ask": {"effect": "human", "gate": gate, "fn": two_writes, **node}}
    return graph_of([(START, "ask"), *OUTCOMES, *ENDS], nodes)


def test_a_human_node_holds_its_writes_and_its_edges_carry_nothing() -> None:
    played = run(asking())
    assert played.status == "paused"
    assert log_of(played) == []
    assert played.supersteps[-1].pending_edges == []
    assert [str(task) for task in played.supersteps[-1].waiting] == ["ask:1:0"]


def test_each_write_is_decided_on_its_own_and_a_rejected_write_is_not_applied() -> None:
    played = run(
        asking(),
        lambda request: {
            0: ("reject", None),
            1: ("approve", None),
            2: ("approve", None),
        },
    )
    assert log_of(played) == ["second", "some:1:0"]
    assert played.state.note == "n"


def test_an_edited_value_is_applied_in_place_of_the_proposal() -> None:
    played = run(
        asking(),
        lambda request: {
            0: ("edit", ["mine"]),
            1: ("approve", None),
            2: ("approve", None),
        },
    )
    assert log_of(played) == ["mine", "second", "yes:1:0"]


def test_an_edit_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(InvalidValue, match="log"):
        run(asking(), lambda request: {0: ("edit", "not a list")})


def test_a_decision_on_an_unknown_write_is_refused() -> None:
    with pytest.raises(UnknownThing):
        run(asking(), lambda request: {9: ("approve", None)})


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        (["approved", "approved"], "approved"),
        (["rejected"], "rejected"),
        (["approved", "rejected"], "partial"),
        (["partial", "partial"], "partial"),
    ],
)
def test_the_outcome_is_approved_if_all_are_rejected_if_all_are_else_partial(
    verdicts: list[str], outcome: str
) -> None:
    assert outcome_of(verdicts) == outcome


@pytest.mark.parametrize(("decide", "way"), [(approve, "yes"), (reject, "no")])
def test_edges_with_when_follow_the_outcome(decide: Any, way: str) -> None:
    assert rounds(run(asking(), decide))[-1] == [f"{way}:1:0"]


def test_a_rejection_that_has_an_edge_goes_on_and_the_run_completes() -> None:
    assert run(asking(), reject).status == "completed"


def test_gates_settled_together_flow_in_declared_order_whichever_waited_first() -> None:
    def propose(state: Any, ctx: Any) -> Command:
        return Command(update={"log": [ctx.node]}, send=[Send("work", ctx.node)])

    gated = {"effect": "human", "gate": ASK, "fn": propose, "sends": "work"}
    edges = [(START, "p"), (START, "q"), ("p", END), ("q", END), ("work", END)]
    compiled = compile(graph_of(edges, {"p": gated, "q": gated}))
    part = Part("gated", sends=(("work", "x"),))
    waiting = {
        f"{name}:1": (replace(part, sends=(("work", name),)),) for name in ("q", "p")
    }
    settled = [_settled("q", 1, []), _settled("p", 1, [])]
    step = settle_step(
        compiled, Frontier(waiting=waiting), compiled.fresh_state(), settled
    )
    assert step.frontier.sends == (("work", ("p",)), ("work", ("q",)))


def test_a_partly_decided_request_stays_open() -> None:
    played = run(asking(), lambda request: {0: ("approve", None)})
    assert played.status == "paused"
    assert log_of(played) == []


def test_all_or_nothing_rejects_all_at_the_first_rejection() -> None:
    gate = Gate(reviewers=["user:ann"], all_or_nothing=True)
    played = run(asking(gate), lambda request: {1: ("reject", None)})
    assert log_of(played) == ["no:1:0"]


def test_an_unlabelled_edge_is_taken_for_approved_and_partial_only() -> None:
    graph = graph_of(
        [(START, "ask"), ("ask", "on"), ("on", END)],
        {"ask": {"effect": "human", "gate": ASK, "fn": two_writes}},
    )
    assert rounds(run(graph, approve))[-1] == ["on:1:0"]
    partial = run(
        graph,
        lambda request: {
            0: ("reject", None),
            1: ("approve", None),
            2: ("approve", None),
        },
    )
    assert rounds(partial)[-1] == ["on:1:0"]
    assert run(graph, reject).status == "rejected"


def test_a_rejection_without_an_edge_ends_the_run_rejected_only_when_nothing_is_left() -> (
    None
):
    nodes = {
        "ask": {"effect": "human", "gate": ASK, "fn": two_writes},
        "other": {},
        "after": {},
    }
    graph = graph_of(
        [
            (START, "ask"),
            (START, "other"),
            ("ask", END),
            ("other", "after"),
            ("after", END),
        ],
        nodes,
    )
    played = run(graph, reject)
    assert log_of(played) == ["other:1:0", "after:1:0"]
    assert played.status == "rejected"


def test_other_branches_go_on_while_one_waits() -> None:
    nodes = {
        "ask": {"effect": "human", "gate": ASK, "fn": two_writes},
        "other": {},
        "after": {},
    }
    graph = graph_of(
        [
            (START, "ask"),
            (START, "other"),
            ("ask", END),
            ("other", "after"),
            ("after", END),
        ],
        nodes,
    )
    assert log_of(run(graph)) == ["other:1:0", "after:1:0"]


def test_what_a_gated_task_returned_as_goto_or_sends_follows_approval_only() -> None:
    def propose(state: Any, ctx: Any) -> Command:
        return Command(update={"note": "x"}, goto="to", send=[Send("sent", 1)])

    nodes = {
        "ask": {
            "effect": "human",
            "gate": ASK,
            "fn": propose,
            "goto": "to",
            "sends": "sent",
        }
    }
    graph = graph_of(
        [(START, "ask"), ("ask", "on"), ("on", END), ("to", END), ("sent", END)], nodes
    )
    assert rounds(run(graph, approve))[1:] == [["to:1:0", "sent:1:0"]]
    assert rounds(run(graph, reject))[1:] == []


def fan_out(decide: Any) -> Any:
    def send(state: Any, ctx: Any) -> list[Send]:
        return [Send("ask", n) for n in range(3)]

    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"log": [f"row {ctx.payload}"]}

    nodes = {
        "send": {"fn": send, "sends": "ask"},
        "ask": {"effect": "human", "gate": ASK, "fn": propose},
    }
    return run(graph_of([(START, "send"), *OUTCOMES, *ENDS], nodes), decide)


def test_behind_a_fan_out_the_edges_are_evaluated_once_after_its_last_task() -> None:
    first = fan_out(lambda request: approve(request) if request.index == 1 else None)
    assert first.status == "paused"
    assert log_of(first) == ["row 1"]
    assert log_of(fan_out(approve))[-1] == "yes:1:0"
    assert log_of(fan_out(lambda r: reject(r) if r.index else approve(r))) == [
        "row 0",
        "some:1:0",
    ]


@pytest.mark.parametrize("answer", [True, None, "big", 0, "", [], 1 / 3])
def test_anything_but_the_literal_false_means_that_people_decide(answer: Any) -> None:
    gate = Gate(reviewers=["user:ann"], needs_approval=lambda state, proposal: answer)
    assert needs_approval(gate, None, None)[0] is True
    assert run(asking(gate)).status == "paused"


def test_a_check_that_raises_means_that_people_decide_and_says_why() -> None:
    gate = Gate(
        reviewers=["user:ann"],
        needs_approval=lambda state, proposal: proposal["missing"],
    )
    assert needs_approval(gate, None, {}) == (
        True,
        "the check failed: KeyError: 'missing'",
    )


def test_a_string_is_the_reason() -> None:
    gate = Gate(
        reviewers=["user:ann"], needs_approval=lambda state, proposal: "above 1,000"
    )
    assert needs_approval(gate, None, {}) == (True, "above 1,000")


def test_a_gate_passed_by_its_check_holds_nothing_and_its_outcome_is_approved() -> None:
    seen: list[Any] = []

    def check(state: Any, proposal: Any) -> bool:
        seen.append(
            (
                proposal["log"],
                proposal["note"],
                [write.value for write in proposal.writes],
            )
        )
        return False

    played = run(asking(Gate(reviewers=["user:ann"], needs_approval=check)))
    assert log_of(played) == ["first", "second", "yes:1:0"]
    assert seen == [(["second"], "n", [["first"], ["second"], "n"])]


def test_a_gated_node_that_proposes_nothing_passes_no_gate() -> None:
    played = run(asking(fn=lambda state, ctx: None))
    assert played.status == "failed"
    assert "proposed no write" in played.error.message  # type: ignore[union-attr]


def test_a_gate_in_a_loop_asks_anew_at_each_visit() -> None:
    calls: list[str] = []

    def decide(request: Any) -> Any:
        calls.append(str(request.task))
        return approve(request)

    graph = graph_of(
        [(START, "ask"), ("end", END)],
        {"ask": {"effect": "human", "gate": ASK, "fn": two_writes}},
    )
    graph.branch(
        "ask",
        lambda state: "again" if len(state.log) < 4 else "on",
        {"again": "ask", "on": "end"},
    )
    assert run(graph, decide).status == "completed"
    assert calls == ["ask:1:0", "ask:2:0"]


def two_gates(channel: str, gate: Gate = ASK) -> Any:
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {channel: [ctx.node] if channel == "log" else ctx.node}

    nodes = {
        name: {"effect": "human", "gate": gate, "fn": propose} for name in ("p", "q")
    }
    return graph_of([(START, "p"), (START, "q"), ("p", END), ("q", END)], nodes)


def counting(graph: Any) -> list[tuple[str, Any]]:
    """Return who was asked, and what the channel held then, while everything is
    approved.
    """
    calls = []

    def decide(request: Any) -> Any:
        calls.append((request.node, request.writes[0].current))
        return approve(request)

    assert run(graph, decide).status == "completed"
    return calls


def test_a_decision_whose_base_an_earlier_one_of_the_same_act_moved_comes_back() -> (
    None
):
    assert counting(two_gates("note")) == [("p", ""), ("q", ""), ("q", "p")]


def test_a_base_that_does_not_count_for_the_reducer_brings_nothing_back() -> None:
    assert counting(two_gates("log")) == [("p", []), ("q", [])]


def test_shows_bind_like_a_base() -> None:
    gate = Gate(reviewers=["user:ann"], shows=["log"])
    assert counting(two_gates("log", gate)) == [("p", []), ("q", []), ("q", ["p"])]


def test_writes_of_one_request_do_not_bring_each_other_back() -> None:
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("note", "one"), Write("note", "two")]

    graph = graph_of(
        [(START, "p"), ("p", END)],
        {"p": {"effect": "human", "gate": ASK, "fn": propose}},
    )
    assert counting(graph) == [("p", "")]


def test_held_writes_take_no_part_in_conflicts() -> None:
    def note(state: Any, ctx: Any) -> dict[str, Any]:
        return {"note": "free"}

    nodes = {
        "ask": {"effect": "human", "gate": ASK, "fn": two_writes},
        "free": {"fn": note},
    }
    played = run(
        graph_of([(START, "ask"), (START, "free"), ("ask", END), ("free", END)], nodes),
        approve,
    )
    assert played.status == "completed"
    assert played.state.note == "n"


def test_settling_what_does_not_wait_is_refused() -> None:
    compiled = compile(asking())
    with pytest.raises(InvalidValue, match="does not wait"):
        settle_step(
            compiled, begin(compiled), compiled.fresh_state(), [_settled("ask", 1, [])]
        )


def test_nothing_can_be_settled_twice() -> None:
    compiled = compile(asking())
    planned = plan(compiled, begin(compiled))
    output = output_of(compiled, "ask", two_writes(None, None))
    step = reduce_step(
        compiled,
        planned,
        compiled.fresh_state(),
        {planned.starts[0].task: Result(output, gated=True)},
    )
    assert [(write.position, write.channel, write.label) for write in step.held] == [
        (0, "log", "The first"),
        (1, "log", None),
        (2, "note", None),
    ]
    after = settle_step(
        compiled, step.frontier, step.state, [_settled("ask", 1, ["x"])]
    )
    with pytest.raises(InvalidValue, match="does not wait"):
        settle_step(compiled, after.frontier, after.state, [_settled("ask", 1, ["x"])])


def _settled(node: str, visit: int, lines: list[str]) -> Settled:
    return Settled(Task(node, visit), (WriteValue("log", lines),), "approved")


def test_settleable_keeps_the_order_of_the_decisions() -> None:
    compiled = compile(two_gates("note"))
    planned = plan(compiled, begin(compiled))
    results = {
        s.task: Result(
            output_of(compiled, s.task.node, {"note": s.task.node}), gated=True
        )
        for s in planned.starts
    }
    step = reduce_step(compiled, planned, compiled.fresh_state(), results)
    p, q = (
        Settled(start.task, (WriteValue("note", start.task.node),), "approved")
        for start in planned.starts
    )
    assert settleable(compiled, step.frontier, step.state, [q, p]) == ([q], [p])
    rejected = Settled(p.task, (), "rejected")
    assert settleable(compiled, step.frontier, step.state, [q, rejected]) == (
        [q, rejected],
        [],
    )


def test_what_a_decision_was_shown_counts_where_another_nodes_gate_held_it() -> None:
    compiled = compile(two_gates("note"))
    planned = plan(compiled, begin(compiled))
    results = {
        s.task: Result(
            output_of(compiled, s.task.node, {"log": [s.task.node]}), gated=True
        )
        for s in planned.starts
    }
    step = reduce_step(compiled, planned, compiled.fresh_state(), results)
    first = _settled("p", 1, ["p"])
    second = _settled("q", 1, ["q"])
    assert settleable(compiled, step.frontier, step.state, [first, second]) == (
        [first, second],
        [],
    )
    shown = replace(second, shows=("log",))
    assert settleable(compiled, step.frontier, step.state, [first, shown]) == (
        [first],
        [shown],
    )


class Shown(BaseModel):
    payout: dict[str, Any] | None = None
    risk: int = 0
    log: Annotated[list[str], Append] = []


def shown(gate: Gate, writes: list[WriteValue]) -> dict[str, Any]:
    state = {"scratch": {"payout": None, "risk": 3, "log": []}, "artifacts": {}}
    return present(
        gate, node="propose", input={"claim_id": "C1"}, state=state, writes=writes
    )


PAYOUT = [WriteValue("payout", {"amount": "4512.50", "to": {"iban": "DE00"}}, None)]


def test_title_and_facts_are_filled_from_proposal_state_and_input() -> None:
    gate = Gate(
        title="Pay {payout[amount]} for {input.claim_id} at risk {risk:03d}",
        facts=[
            Fact("IBAN", "payout.to.iban"),
            Fact("Risk before", "state.risk"),
            Fact("Claim", "input.claim_id"),
        ],
    )
    presented = shown(gate, PAYOUT)
    assert presented["title"] == "Pay 4512.50 for C1 at risk 003"
    assert [fact["value"] for fact in presented["facts"]] == ["DE00", 3, "C1"]
    assert presented["notes"] == []


@pytest.mark.parametrize(
    "title",
    [
        "{nobody.has.this}",
        "{payout.__class__}",
        "{0}",
        "{}",
        "{risk:%Q}",
        "{unclosed",
        "{a!x}",
    ],
)
def test_a_title_that_cannot_be_filled_in_is_still_shown_and_noted(title: str) -> None:
    presented = shown(Gate(title=title, facts=[Fact("None", "no.such")]), PAYOUT)
    assert presented["title"]
    assert "object at" not in presented["title"]
    assert presented["facts"] == [{"label": "None", "value": None}]
    assert len(presented["notes"]) >= 2


def test_labels_money_and_reversibility_stand_by_position() -> None:
    changing = Show(change=("before", "after"))
    assert shown(Gate(writes={"payout": changing}), PAYOUT)["writes"][0]["change"] == [
        "before",
        "after",
    ]
    show = Show(
        label="Payment",
        money="amount",
        reversible="Cannot be called back.",
        reason_required=True,
    )
    writes = [
        *PAYOUT,
        WriteValue("payout", None, "By hand"),
        WriteValue("risk", 1, None),
    ]
    assert shown(Gate(writes={"payout": show}), writes)["writes"] == [
        {
            "label": "Payment",
            "money": "4512.50",
            "reversible": "Cannot be called back.",
            "reason_required": True,
        },
        {
            "label": "By hand",
            "money": None,
            "reversible": "Cannot be called back.",
            "reason_required": True,
        },
        {"label": "risk", "money": None, "reversible": None, "reason_required": False},
    ]


@pytest.mark.parametrize(
    ("before", "after", "label"),
    [
        (
            {"amount": "1900.00", "to": "x"},
            {"amount": "1800.00", "to": "x"},
            "Payout: amount 1800.00",
        ),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "Payout: a b 2"),
        ({"a": 1, "b": 2}, {"b": 2}, "Payout: a removed"),
        ({"a": 1}, {"a": None}, "Payout: a not set"),
        (3, 5, "Payout: 5"),
        ("Dear", "Dear\nMarta", "Payout: edited"),
        (
            dict.fromkeys("abcde", 1),
            dict.fromkeys("abcde", 2),
            "Payout: a 2, b 2, c 2 and 2 more",
        ),
        ({"a": 1}, {"a": 1.0}, "Payout: a 1.0"),
    ],
)
def test_the_label_of_an_edited_write_says_what_is_different(
    before: Any, after: Any, label: str
) -> None:
    shown = {"label": "Pay EUR 1,900.00", "money": None}
    presented = present_edit(
        Gate(reviewers=["user:a"]), "payout", after, original=before, shown=shown
    )
    assert presented["label"] == label
    assert presented["as_proposed"] == "Pay EUR 1,900.00"
    again = present_edit(
        Gate(reviewers=["user:a"]), "payout", before, original=before, shown=presented
    )
    assert again == shown, "edited back"


def test_a_label_is_a_template_over_the_value() -> None:
    show = Show(label="Pay {amount:,.2f} to {payee}", money="amount")
    gate = Gate(
        reviewers=["user:a"],
        writes={"payout": show, "count": Show(label="Count to {value}")},
    )
    proposal = [WriteValue("payout", {"amount": "1900", "payee": "Marta"}, None)]
    proposal.append(WriteValue("count", 3, None))
    request = present(gate, node="n", input={}, state={}, writes=proposal)
    assert [write["label"] for write in request["writes"]] == [
        "Pay 1,900.00 to Marta",
        "Count to 3",
    ]
    assert [plain_label(gate, write, node="n") for write in proposal] == [
        "payout",
        "count",
    ]
    shown = request["writes"][0]
    edited = present_edit(
        gate,
        "payout",
        {"amount": "1800", "payee": "Marta"},
        original=proposal[0].value,
        shown=shown,
    )
    assert edited == {
        **shown,
        "label": "Pay 1,800.00 to Marta",
        "money": "1800",
        "as_proposed": shown["label"],
    }
