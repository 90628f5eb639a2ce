"""A run is pinned to the graph that it was started with; another content under the same name stops it, by name."""

from typing import Any

import pytest

from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run
from checkpoints.queue import leases
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import discovery, runs
from orchestrator.engine import END, START, Fact, Gate, Graph, Interval, Retry, Show, registry
from orchestrator.worker import claimable
from tests.support import cast, run_actions
from tests.support.chain import join_in_a_row
from tests.support.small_graphs import advanced, graph, registered, slice_of, started

pytestmark = pytest.mark.django_db(transaction=True)


def _graph(*nodes: str) -> Graph:
    made = graph("versioned")
    for name in nodes:
        made.node(name)(lambda state, ctx: {"notes": [ctx.node]})
    join_in_a_row(made, *nodes)
    return made


def test_a_run_whose_graph_is_registered_with_other_content_stops_as_incompatible_and_says_what_to_do() -> None:
    run = started(_graph("a"))
    registered(_graph("a", "b"))
    run = runs.advance(run.id)
    assert (run.status, run.error_code) == (Status.INCOMPATIBLE, "incompatible_graph")
    error = stored_error(run)
    assert error is not None
    assert "deploy the version" in error["message"]


def test_an_incompatible_run_goes_on_where_its_graph_is_registered_again() -> None:
    run = started(_graph("a"))
    registered(_graph("a", "b"))
    runs.advance(run.id)
    registered(_graph("a"))
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED


def _gone() -> None:
    """This process has no graph at all."""
    registry.clear()


def _older() -> None:
    """This process has the graph as it was before, and somebody has seen that."""
    registered(_graph("a"))


@pytest.mark.parametrize("lacking", [_gone, _older])
def test_a_process_that_lacks_the_version_of_a_run_leaves_it_to_others_whoever_asks(lacking: Any) -> None:
    discovery.note_version(registry.replace(_graph("a")))
    run = started(_graph("a", "b"))
    lacking()
    assert leases.claim(worker=None, limit=9, only=claimable.claimable()) == []
    for _ in range(2):
        left = runs.advance(run.id)
        assert (left.status, left.epoch, left.event_seq, left.error_code) == (Status.QUEUED, 0, run.event_seq, "")
    slice_of(run)
    assert (run.status, run.claims_since_progress, run.error_code) == (Status.QUEUED, 0, "")
    registered(_graph("a", "b"))
    assert runs.advance(run.id).status == Status.COMPLETED


def _asking(**corrected: Any) -> Graph:
    """A run of it waits for people; then words, limits and retries are corrected."""
    made = graph("corrected", **corrected.pop("graph", {}))
    made.node("propose", effect="human", gate=Gate(reviewers=["group:claims"], **corrected.pop("gate", {})))(
        lambda state, ctx: {"letter": "Dear"}
    )
    made.node("send", **corrected)(lambda state, ctx: {"notes": [f"sent {state.letter}"]})
    for source, target in ((START, "propose"), ("propose", "send"), ("send", END)):
        made.edge(source, target)
    return made


def test_a_run_that_waits_goes_on_when_texts_limits_and_retries_of_its_graph_are_corrected(people: cast.People) -> None:
    old = {"writes": {"letter": Show(label="Lettre")}, "title": "Sned?"}
    run = advanced(_asking(gate=old, graph={"checkpoints": "none", "max_supersteps": 1}))
    assert run.status == Status.PAUSED
    shown = {"letter": Show(label="Letter", reversible="It can be called back.", money="amount")}
    new = {"writes": shown, "title": "Send?", "facts": [Fact("Letter", "letter")]}
    kept = {
        "checkpoints": Interval(2),
        "snapshot": 1,
        "label": "Letter",
        "max_supersteps": 9,
        "on_save_error": "continue",
    }
    registered(_asking(gate=new, graph=kept, timeout=3, retry=Retry(), max_visits=3, checkpoint="both"))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    run = runs.advance(run.id)
    assert (run.status, run_actions.state(run)["notes"]) == (Status.COMPLETED, ["sent Dear"])
    assert read_value(ApprovalRequest.objects.get(), "title") == "Sned?", "a request keeps what it was opened with"
    assert verify_run(run.id) == []


def test_a_runaway_goes_on_under_a_higher_limit() -> None:
    def looping(most: int) -> Graph:
        made = graph("looping", max_supersteps=most)
        made.node("step")(lambda state, ctx: {"total": state.total + 1})
        made.edge(START, "step")
        made.branch("step", lambda state: state.total < 4, {True: "step", False: END})
        return made

    run = advanced(looping(2))
    assert (run.status, run.error_code) == (Status.FAILED, "runaway")
    registered(looping(5))
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.COMPLETED
    assert verify_run(Run.objects.get().id) == []
