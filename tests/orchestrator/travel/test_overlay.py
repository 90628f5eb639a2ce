"""What is laid over a point: patches of every kind, and those that are refused."""

from typing import Any

import pytest
from pydantic import BaseModel

from approvals.models import ApprovalRequest
from checkpoints import timeline
from checkpoints.models import Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Fact, Gate, Graph, Show
from orchestrator.engine.errors import InvalidValue, PayloadTooLarge
from tests.support import cast, run_actions
from tests.support.paid_claims import claim, paid, rows_of
from tests.support.small_graphs import Order, advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_mutator_patches_like_any_patch(people: cast.People) -> None:
    run = paid("mutated", people)

    def raise_it(state: Any) -> None:
        state["scratch"]["total"] = 9999
        state["scratch"]["letter"] = "x"

    fork = runs.advance(
        runs.fork(
            timeline.list_checkpoints(run.id)[1].id, patch=raise_it, by=people.starter
        ).id
    )
    assert fork.status == "paused"
    assert run_actions.state(fork)["total"] == 10
    assert run_actions.state(fork)["letter"] == "x"
    assert [row.task for row in run_actions.pending(fork)] == ["$patch:1:0"]


class Parts(BaseModel):
    """A channel of parts, and one beside it that is set."""

    parts: dict[str, int] = {}
    letter: str = "none"


def test_a_key_that_a_mutator_deletes_is_gone_and_a_channel_is_at_its_default_again(
    people: cast.People,
) -> None:
    flow = Graph("deleted", input=Order, state=Parts)
    flow.node("fill")(lambda state, ctx: {"parts": {"a": 1, "b": 2}, "letter": "dear"})
    flow.edge(START, "fill")
    flow.edge("fill", END)
    run = advanced(flow)

    def without_a(state: Any) -> None:
        del state["scratch"]["parts"]["a"]
        del state["scratch"]["letter"]

    def returning(state: Any) -> Any:
        return {"scratch": {"parts": {"b": 2}}}

    point = f"{run.key}:step-1"
    assert runs.plan(point, patch=without_a).patched == ("letter", "parts")
    fork = runs.fork(point, patch=without_a, by=people.starter)
    assert run_actions.state(fork) == {"parts": {"b": 2}, "letter": "none"}
    assert run_actions.state(runs.fork(point, patch=returning)) == {
        "parts": {"b": 2},
        "letter": "dear",
    }
    assert run_actions.state(run) == {"parts": {"a": 1, "b": 2}, "letter": "dear"}
    back = runs.rewind(run.id, point, patch=without_a, by=people.starter)
    assert run_actions.state(back) == {"parts": {"b": 2}, "letter": "none"}


def test_a_guarded_value_that_a_mutator_deletes_waits_for_its_gate(
    people: cast.People,
) -> None:
    run = paid("deleted_guarded", people)

    def without_total(state: Any) -> None:
        del state["scratch"]["total"]

    point = timeline.list_checkpoints(run.id)[1].id
    assert runs.plan(point, patch=without_total).guarded == {"total": "ask"}
    fork = runs.advance(runs.fork(point, patch=without_total, by=people.starter).id)
    held = [
        (row.task, row.channel, read_value(row, "value"))
        for row in run_actions.pending(fork)
    ]
    assert fork.status == "paused"
    assert run_actions.state(fork)["total"] == 10
    assert held == [("$patch:1:0", "total", 0)]


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "input": ({"input": {"folder": "x"}}, InvalidValue, "not input"),
    "diagnostics": ({"diagnostics": {}}, InvalidValue, "not diagnostics"),
    "unknown channel": ({"scratch": {"nobody": 1}}, InvalidValue, "no channel nobody"),
    "wrong type": ({"scratch": {"total": "many"}}, InvalidValue, "total"),
    "no json": ({"scratch": {"letter": object()}}, InvalidValue, "letter"),
    "too large": ({"scratch": {"letter": "x" * 5_000_000}}, PayloadTooLarge, "bytes"),
    "test fails": (
        {"scratch": [{"op": "test", "path": "/total", "value": 7}]},
        InvalidValue,
        "operation 0",
    ),
    "no object": ([1], InvalidValue, "a patch is"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_patch_is_refused_and_changes_nothing(
    people: cast.People, name: str
) -> None:
    run = advanced(claim("bad"))
    before = rows_of(run)
    (patch, error, words) = BAD[name]
    for act in (
        lambda: runs.fork(f"{run.key}:step-1", patch=patch, by=people.starter),
        lambda: runs.rewind(
            run.id, f"{run.key}:step-1", patch=patch, by=people.starter
        ),
        lambda: runs.resume(run.id, patch=patch, by=people.starter),
        lambda: runs.plan(f"{run.key}:step-1", patch=patch),
    ):
        with pytest.raises(error, match=words):
            act()
    assert rows_of(run) == before
    assert Run.objects.count() == 1


def test_a_patch_is_shown_with_the_facts_of_terms_that_do_not_read_it(
    people: cast.People,
) -> None:
    facts = [Fact("Where", "input.folder"), Fact("Total", "proposal.total")]
    flow = graph("patched-terms")
    gate = Gate(
        terms=lambda asked: {"reviewers": ["group:claims"], "facts": facts},
        facts=[Fact("Declared", "input.folder")],
        writes={"total": Show()},
    )
    flow.node("propose", effect="human", gate=gate)(lambda state, ctx: {"total": 7})
    flow.edge(START, "propose")
    flow.edge("propose", END)
    run = advanced(flow)
    patch = {"scratch": {"total": 999}}
    forked = runs.fork(f"{run.key}:initial", patch=patch, by=people.steward)
    request = ApprovalRequest.objects.get(run=forked.id, node="$patch")
    assert read_value(request, "facts") == [{"label": "Where", "value": ""}]
    assert request.policy["reviewers"] == ["group:claims"]
    assert verify_run(forked.id) == []
