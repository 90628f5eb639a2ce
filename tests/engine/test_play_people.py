"""The one who decides in `play`: what is settled, what comes back, and who is asked, as
in a run.
"""

from typing import Any

import pytest

from orchestrator.engine import END, START, Played, play
from orchestrator.engine.play_people import Request
from tests.engine import waiting
from tests.engine.small import rounds


def played(example: waiting.Example) -> tuple[Played, list[Request]]:
    """Return how it went, and the requests that the decider was shown."""
    graph, decide = example
    requests: list[Request] = []

    def noting(request: Request) -> Any:
        requests.append(request)
        return decide(request)

    return play(graph, {}, decisions=noting), requests


def verdicts(request: Request) -> list[str | None]:
    return [write.verdict for write in request.writes]


def test_a_settled_rejection_stays_whatever_is_answered_later() -> None:
    result, requests = played(waiting.rejected_and_then_approved())
    assert [verdicts(request) for request in requests if request.node == "pay"] == [
        [None, None],
        ["rejected", None],
    ]
    assert result.state.note == ""
    assert result.state.letter == "Dear"


def test_a_base_that_moved_and_moved_back_brings_an_approval_back() -> None:
    result, requests = played(waiting.moved_and_moved_back())
    assert [verdicts(request) for request in requests if request.node == "pay"] == [
        [None, None],
        [None, None],
    ]
    (pay, _) = sorted(result.gates, key=lambda gate: gate.node != "pay")
    assert verdicts(pay) == [None, "approved"], (
        "the second answer was about the other write"
    )


def test_a_request_that_comes_back_keeps_approvals_whose_base_did_not_move() -> None:
    result, requests = played(waiting.came_back_in_part())
    assert [verdicts(request) for request in requests if request.node == "second"] == [
        [None, None],
        [None, "approved"],
    ]
    assert result.status == "completed"
    assert result.state.note == "second"
    assert result.state.latest == "kept"


def test_an_edited_value_stays_where_its_write_comes_back() -> None:
    result, _ = played(waiting.came_back_after_an_edit())
    (gate,) = result.gates
    assert [(write.value, write.current, write.verdict) for write in gate.writes] == [
        ("edited", "first", None)
    ]


def test_an_edit_that_changes_the_title_brings_back_what_was_approved_before_it() -> (
    None
):
    result, everybody = played(waiting.edited_beside_an_approval())
    asked = [one for one in everybody if one.node == "ask"]
    assert [request.title for request in asked] == ["Note one", "Note one", "Note two"]
    assert verdicts(asked[1]) == [None, "approved", "rejected", None]
    assert verdicts(asked[2]) == ["approved", None, "rejected", "approved"]
    assert result.status == "completed"
    assert result.state.letter == "Dear"


def test_an_edit_that_changes_no_title_leaves_what_was_approved_before_it() -> None:
    result, requests = played(waiting.edited_to_the_same_title())
    assert result.status == "completed"
    assert result.state.letter == "Dear"
    assert len([request for request in requests if request.node == "ask"]) == 2


def test_a_base_that_is_as_it_was_after_the_settlement_that_moved_it_twice_holds() -> (
    None
):
    result, requests = played(waiting.shown_value_set_back_within_one_settlement())
    assert [request.node for request in requests] == ["up", "looks", "down"], (
        "nobody is asked again"
    )
    assert [superstep.source for superstep in result.supersteps] == [
        "superstep",
        "settlement",
        "settlement",
    ]


def test_a_gated_node_that_proposes_nothing_takes_its_error_edge() -> None:
    result, _ = played(waiting.nothing_proposed_with_an_error_edge())
    assert result.status == "completed"
    assert result.state.log == ["InvalidValue 1"]


def test_a_gated_node_that_proposes_nothing_is_tried_again() -> None:
    result, _ = played(waiting.nothing_proposed_at_first())
    assert result.status == "completed"
    assert result.state.log == ["attempt 2"]


@pytest.mark.parametrize(
    ("example", "status"),
    [
        (waiting.failed_beside_a_gate, "failed"),
        (waiting.unknown_beside_a_gate, "unknown"),
    ],
)
def test_after_a_failed_superstep_who_was_reached_beside_it_is_asked_on_the_state_before_it(
    example: Any, status: str
) -> None:
    result, requests = played(example())
    assert result.status == status
    assert [gate.node for gate in result.gates] == ["early", "ask"]
    assert verdicts(result.gates[0]) == [None, "approved"]
    assert result.gates[1].title == "After ['go']"
    assert "ask" not in [request.node for request in requests], (
        "a failed run is no pause"
    )


def test_after_writes_that_cannot_be_reduced_who_was_reached_is_asked_too() -> None:
    result, _ = played(waiting.conflict_beside_a_gate())
    assert result.error is not None
    assert result.error.type == "ConflictingWrites"
    assert [gate.node for gate in result.gates] == ["ask"]


def test_a_settled_request_that_cannot_be_applied_waits_for_nobody() -> None:
    result, _ = played(waiting.router_that_fails_behind_a_gate())
    assert result.status == "failed"
    assert [gate.node for gate in result.gates] == ["beside"]
    assert result.state.note == ""


def test_a_gate_that_names_nobody_fails_the_run_and_nothing_of_its_superstep_counts() -> (
    None
):
    result, _ = played(waiting.reviewers_that_name_nobody())
    assert result.error is not None
    assert "reviewers must name somebody" in result.error.message
    assert rounds(result) == [["early:1:0", "go:1:0"]]
    assert [gate.node for gate in result.gates] == ["early"]


def test_a_journal_of_memory_is_decided_as_one() -> None:
    result, _ = played(waiting.journal_decided_as_one())
    assert result.status == "rejected"
    assert result.memory == {}


def test_memory_that_is_set_to_the_same_again_brings_an_approval_back() -> None:
    _, requests = played(waiting.memory_set_to_the_same())
    assert [verdicts(request) for request in requests if request.node == "ask"] == [
        [None, None],
        [None, None],
    ]


def test_what_is_shown_stays_as_it_was_when_the_request_was_opened() -> None:
    _, requests = played(waiting.title_of_the_moment())
    assert [request.title for request in requests if request.node == "ask"] == [
        "At 0",
        "At 0",
    ]


def test_an_answer_of_none_leaves_a_write_open() -> None:
    graph, _ = waiting.rejected_and_then_approved()
    result = play(
        graph,
        {},
        decisions=lambda request: {0: None} if request.node == "pay" else None,
    )
    assert [verdicts(gate) for gate in result.gates] == [[None, None], [None]]


def test_what_a_node_exits_with_is_an_error_of_it() -> None:
    def leaves(state: Any, ctx: Any) -> None:
        raise SystemExit(3)

    graph = waiting.graph()
    graph.node("a")(leaves)
    graph.edge(START, "a")
    graph.edge("a", END)
    result = play(graph, {})
    assert result.status == "failed"
    assert (result.error and result.error.type) == "SystemExit"


class Vetoes:
    """A veto that keeps open what is approved, the first time that it is asked."""

    def __init__(self) -> None:
        self.has_kept_open = False

    def __call__(self, state: Any, proposal: Any) -> bool:
        is_first = not self.has_kept_open
        self.has_kept_open = True
        return is_first


def test_a_policy_is_asked_about_what_a_person_edited_and_a_veto_kept_open() -> None:
    def is_edited(state: Any, proposal: Any) -> bool:
        return bool(proposal["note"] == "edited")

    graph = waiting.graph()
    waiting.human(graph, "a", {"note": "first"}, auto=is_edited, veto=Vetoes())
    graph.edge(START, "a")
    result, requests = played((graph, waiting.answers(a=[{0: ("edit", "edited")}])))
    assert result.status == "completed"
    assert result.state.note == "edited"
    assert len(requests) == 1


def test_a_policy_is_asked_about_each_revision_once() -> None:
    def always(state: Any, proposal: Any) -> bool:
        return True

    graph = waiting.graph()
    proposal = {"log": ["a"], "note": "of a"}
    waiting.human(graph, "a", proposal, auto=always, veto=Vetoes())
    waiting.human(graph, "b", {"note": "of b"})
    graph.edge(START, "a")
    graph.edge(START, "b")
    result, _ = played((graph, waiting.answers(b=[{0: "approve"}])))
    # The note came back, as b had changed it; what was vetoed before waits for people.
    [waits] = result.gates
    assert verdicts(waits) == [None, "approved"]


def test_a_policy_is_not_shown_what_a_person_has_rejected() -> None:
    shown: list[list[str]] = []

    def noting(state: Any, proposal: Any) -> bool:
        shown.append(sorted(proposal))
        return False

    graph = waiting.graph()
    waiting.human(graph, "a", {"log": ["a"], "note": "of a"}, auto=noting)
    waiting.human(graph, "b", {"note": "of b"})
    graph.edge(START, "a")
    graph.edge(START, "b")
    played((graph, waiting.answers(a=[{0: "reject"}], b=[{0: "approve"}])))
    assert shown == [["log", "note"], ["note"]]
