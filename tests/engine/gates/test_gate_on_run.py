"""What a gate asks for in one run: its terms, a function of the run's input."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.engine import END, START, Fact, Gate, Graph, Show, play
from orchestrator.engine.errors import InvalidGraph, InvalidValue
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.graphs.structure import in_words
from orchestrator.engine.versions.gate_differences import gate_changes
from tests.support.small_graphs import graph

ASKED: dict[str, Any] = {"reviewers": ["user:ann"]}


def _graph(**gate: Any) -> Graph:
    flow = graph("on-terms")
    flow.node("propose", effect="human", gate=Gate(**gate))(
        lambda state, ctx: {"total": 1}
    )
    flow.edge(START, "propose")
    flow.edge("propose", END)
    return flow


def _on(options: Any) -> Gate:
    gate = Gate(terms=lambda asked: options)
    return gate_on_run(compile(_graph(terms=gate.terms)), gate, {"folder": "a"})


def test_the_options_that_the_input_names_take_the_place_of_those_declared() -> None:
    def terms(asked: Any) -> Mapping[str, Any]:
        return {"reviewers": [f"user:{asked.folder}"], "quorum": 2, "four_eyes": True}

    gate = Gate(terms=terms)
    on_run = gate_on_run(compile(_graph(terms=terms)), gate, {"folder": "ann"})
    assert (on_run.reviewers, on_run.quorum, on_run.four_eyes) == (
        ["user:ann"],
        2,
        True,
    )
    assert on_run.terms is None


def test_a_gate_without_terms_is_itself() -> None:
    gate = Gate(reviewers=["user:ann"])
    assert gate_on_run(compile(_graph(reviewers=["user:ann"])), gate, {}) is gate


def test_a_moment_that_has_passed_makes_a_request_due_at_once() -> None:
    now = datetime(2026, 11, 27, 9, 0, tzinfo=UTC)
    gate = _on({**ASKED, "deadline": now - timedelta(days=1)})
    assert callable(gate.deadline)
    assert now < gate.deadline(now, None) < now + timedelta(minutes=1)
    ahead = now + timedelta(days=1)
    gate = _on({**ASKED, "deadline": ahead})
    assert callable(gate.deadline)
    assert gate.deadline(now, None) == ahead


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"quorum": 0}, "quorum must be a whole number"),
        ({"reject_quorum": True}, "reject_quorum must be a whole number"),
        ({"four_eyes": 1}, "four_eyes must be True or False"),
        ({"on_deadline": "approve"}, "on_deadline must be"),
        ({"deadline": datetime(2027, 1, 1)}, "deadline must be"),  # noqa: DTZ001
        ({"deadline": timedelta(0)}, "deadline must be"),
        ({"facts": [{"label": "x"}]}, "facts must be a list of Fact"),
        ({"quorum": 101}, "quorum must be a whole number from 1 to 100"),
        ({"reject_quorum": 101}, "reject_quorum must be a whole number from 1 to 100"),
        ({"deadline": datetime(2100, 1, 1, tzinfo=UTC)}, "before the year 2100"),
        ({"reviewers": lambda state: ["user:ann"]}, "reviewers must be a list"),
        ({"reviewers": "user:ann"}, "reviewers must be a list"),
        ({"reviewers": None}, "reviewers must be a list"),
        ({"reviewers": ["ann"]}, "must name somebody as user:"),
        ({"reviewers": []}, "must name somebody as user:"),
        ({"facts": [Fact("Sum", "total")]}, "'Sum' reads total, which is no"),
        ({"facts": [Fact("Sum", "state.total")]}, "reads state.total, which is no"),
        ({"facts": [Fact("Sum", "totl")]}, "reads totl, which is no"),
        ({"facts": [Fact("Where", "input.foldr")]}, "reads input.foldr, which is no"),
        ({"auto": None}, "auto is none of"),
        ([], "must be a dict"),
    ],
)
def test_terms_that_no_gate_can_ask_for_are_refused(options: Any, fault: str) -> None:
    with pytest.raises(InvalidValue, match=fault):
        _on(options)


def test_terms_that_fail_leave_the_gate_shut() -> None:
    def terms(asked: Any) -> Mapping[str, Any]:
        raise LookupError("no such list")

    played = play(_graph(terms=terms), {}, decisions=lambda request: {0: "approve"})
    assert played.status == "failed"
    assert "the terms of a gate failed: LookupError" in played.error.message


def test_facts_of_terms_are_shown() -> None:
    options = {**ASKED, "facts": [Fact("Where", "input.folder")]}
    [request] = play(_graph(terms=lambda asked: options), {"folder": "here"}).gates
    assert request.facts == [{"label": "Where", "value": "here"}]


@pytest.mark.parametrize(
    "beside",
    [
        {"standing": True},
        {"exclusive": True},
        {"auto": lambda state, proposal: True},
        {"deadline": timedelta(hours=1), "on_deadline": "approve"},
    ],
)
def test_what_was_examined_beside_a_quorum_does_not_go_with_terms(beside: Any) -> None:
    with pytest.raises(InvalidGraph, match="cannot stand beside terms="):
        compile(_graph(terms=lambda asked: ASKED, **beside))


def test_other_terms_may_be_weaker() -> None:
    before = compile(_graph(reviewers=["user:ann"])).structure["nodes"][0]
    after = compile(_graph(terms=lambda asked: ASKED)).structure["nodes"][0]
    changes = [
        change for change in gate_changes(before, after) if "terms" in change.words
    ]
    assert [change.weaker for change in changes] == [True]


def test_facts_of_terms_follow_an_edit() -> None:
    options = {**ASKED, "facts": [Fact("Total", "proposal.total")]}
    flow = graph("two-writes")
    gate = Gate(terms=lambda asked: options)
    flow.node("propose", effect="human", gate=gate)(
        lambda state, ctx: {"total": 1, "letter": "Dear"}
    )
    flow.edge(START, "propose")
    flow.edge("propose", END)
    [request] = play(flow, {}, decisions=lambda request: {0: ("edit", 9)}).gates
    assert request.facts == [{"label": "Total", "value": 9}]


@pytest.mark.parametrize(
    "path", ["input.folder", "folder", "proposal.total", "state.total", "total", "node"]
)
def test_facts_of_terms_read_the_input_the_proposal_and_bound_channels(
    path: str,
) -> None:
    options = {**ASKED, "facts": [Fact("It", path)]}
    made = _graph(terms=lambda asked: options, writes={"total": Show()})
    assert play(made, {}).gates[0].facts[0]["label"] == "It"


def test_terms_are_a_function_of_the_input() -> None:
    for wrong in ({"quorum": 2}, lambda asked, state: ASKED):
        with pytest.raises(InvalidGraph, match="is no function of the input"):
            compile(_graph(terms=wrong))


def test_the_catalogue_says_what_stands_beside_terms() -> None:
    gate = {"four_eyes": True, "confirm": "password"}
    compiled = compile(_graph(terms=lambda asked: ASKED, **gate))
    words = str(in_words(compiled.nodes["propose"])["gate"])
    assert words == (
        "as many signatures as the run asks for, of the people whom it names "
        "under four eyes; confirmed by password"
    )
