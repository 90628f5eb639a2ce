"""Going on under another version of the graph from where people are asked for a
value.
"""

from typing import Annotated, Any

import pytest
from django.contrib.auth.models import User
from pydantic import BaseModel

from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Gate, Graph
from orchestrator.engine.errors import InvalidValue
from tests.support import cast, run_actions
from tests.support.run_actions import sign, state
from tests.support.small_graphs import Notes, Order, advanced
from tests.support.versioned_graphs import Texts, deployed

pytestmark = pytest.mark.django_db(transaction=True)
FAILS = [True]


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def ask_only(state: Any, ctx: Any) -> None:
    ctx.ask("total", "How many euros?")


def fails(state: Any, ctx: Any) -> None:
    if FAILS:
        raise ValueError("not yet")


def asking_in(version: str, *, beside: bool, state: type[BaseModel] = Notes) -> Graph:
    """A version of a graph that asks, perhaps `beside` a node that fails."""
    flow = Graph("asking", version=version, input=Order, state=state)
    gate = Gate(reviewers=["group:claims"])
    flow.node("ask", effect="human", gate=gate)(ask_only)
    flow.node("after")(lambda state, ctx: {"notes": [f"total {state.total}"]})
    flow.edge(START, "ask")
    flow.edge("ask", "after", when=("approved", "partial"))
    flow.edge("after", END)
    if beside:
        flow.node("fails")(fails)
        flow.edge(START, "fails")
        flow.edge("fails", END)
    return flow


def notes_it(state: Any) -> None:
    state["scratch"]["notes"] = ["migrated"]


def in_cents(state: Any) -> None:
    state["scratch"]["total"] = 100 * state["scratch"]["total"] + 1


def in_text(state: Any) -> None:
    state["scratch"]["total"] = "none"


def without_total(state: Any) -> None:
    del state["scratch"]["total"]


class NoTotal(BaseModel):
    notes: Annotated[list[str], Append] = []
    letter: str = ""


def run_that_asks(*, beside: bool) -> Run:
    FAILS[:] = [True]
    run = advanced(asking_in("1", beside=beside))
    assert run.status == (Status.FAILED if beside else Status.PAUSED)
    FAILS.clear()
    return run


@pytest.mark.parametrize("beside", [False, True])
def test_what_nobody_has_answered_is_asked_on_the_version_that_goes_on(
    rita: User, beside: bool
) -> None:
    run = run_that_asks(beside=beside)
    newer = asking_in("2", beside=beside)
    newer.migration(from_version="1")(notes_it)
    deployed(newer)
    fork = runs.advance(runs.fork(run.head or "", by=rita).id)
    assert fork.status == Status.PAUSED
    sign(fork, rita, [("edit", 7)])
    fork = runs.advance(fork.id)
    assert (fork.version, state(fork)["notes"]) == ("2", ["migrated", "total 7"])
    assert verify_run(fork.id) == []


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("migrates", "model"),
    [(in_cents, Notes), (in_text, Texts), (without_total, NoTotal)],
)
def test_a_question_for_what_a_migration_changed_is_refused_with_its_place(
    rita: User, beside: bool, migrates: Any, model: type[BaseModel]
) -> None:
    run = run_that_asks(beside=beside)
    newer = asking_in("2", beside=beside, state=model)
    newer.migration(from_version="1")(migrates)
    deployed(newer)
    with pytest.raises(InvalidValue, match="ask:1:0 wrote to total") as refused:
        runs.fork(run.head or "", by=rita)
    assert refused.value.facts["path"] == "ask.total"
