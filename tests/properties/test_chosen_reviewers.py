"""Whatever an operator who is no reviewer does by forks, rewinds, resumes, patches and
signatures, nothing happens outside with a value that no reviewer has signed.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, note, seed
from hypothesis import strategies as st
from pydantic import BaseModel

from approvals import reviews
from approvals.models import ApprovalRequest
from checkpoints.core.status import Status
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, registry
from orchestrator.engine.errors import CountersignError
from tests.properties.drawing import SEED, drawn
from tests.support import cast, run_actions
from tests.support.small_graphs import Order

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
PAID: list[str] = []


class Counter(BaseModel):
    lead: str = "rita"


class Transfer(BaseModel):
    account: str = ""
    payee: str = "Ines"
    team: str = "rita"
    counter: Counter = Counter()
    risk: int = 9
    noted: str = ""


def by_team(state: Transfer) -> list[str]:
    return [f"user:{state.model_dump()['team']}"]


def by_counter(state: Transfer) -> list[str]:
    return [f"user:{getattr(state, 'counter').lead}"]  # noqa: B009


def is_risky(state: Transfer, proposal: Any) -> bool:
    return state.risk > 1


def transfer() -> Graph:
    """begin -> ask (proposes an account) -> check (asks others, whether the state says
    so) -> pay (external)
    """
    flow = Graph("chosen", input=Order, state=Transfer)
    flow.node("begin")(lambda state, ctx: {"noted": "begun"})
    first = Gate(reviewers=by_team, writes={"account": Show()}, shows=["payee"])
    flow.node("ask", effect="human", gate=first)(lambda state, ctx: {"account": "PT50"})
    second = Gate(
        reviewers=by_counter, needs_approval=is_risky, writes={"noted": Show()}
    )
    flow.node("check", effect="human", gate=second)(
        lambda state, ctx: {"noted": "checked"}
    )

    def pay(state: Transfer, ctx: Any) -> None:
        PAID.append(f"{state.account} to {state.payee}")

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.edge(START, "begin")
    flow.edge("begin", "ask")
    flow.edge("ask", "check", when=("approved", "partial"))
    flow.edge("check", "pay", when=("approved", "partial"))
    flow.edge("pay", END)
    registry.replace(flow)
    return flow


PATCHES: list[dict[str, Any]] = [
    {"account": "OLIVE"},
    {"payee": "OLIVE"},
    {"team": "olive"},
    {"counter": {"lead": "olive"}},
    {"risk": 0},
    {"noted": "x"},
]
PATCH = st.lists(st.sampled_from(PATCHES), min_size=1, max_size=2).map(
    lambda some: {k: v for one in some for k, v in one.items()}
)
VERBS = st.sampled_from(["fork", "fork", "fork", "rewind", "resume"])
POINTS = st.sampled_from(["newest", "newest", "signed", "any"])
STEP = st.tuples(
    VERBS, POINTS, st.integers(0, 30), st.one_of(PATCH, PATCH, st.just({}))
)
Step = tuple[str, str, int, dict[str, Any]]


@seed(SEED)
@drawn(many=25)
@given(st.lists(STEP, min_size=2, max_size=5))
def test_no_effect_has_a_value_that_no_reviewer_signed(
    people: cast.People, quick: None, steps: list[Step]
) -> None:
    PAID.clear()
    transfer()
    family = [runs.advance(runs.start("chosen", {}, by=people.second_reviewer).id)]
    for _ in range(2):
        run_actions.sign_open(family[0], people.reviewer, "approve")
        family[0] = runs.advance(family[0].id)
    assert family[0].status == Status.COMPLETED
    for step in steps:
        note(f"{step}")
        # What is refused changes nothing; the next step tries something else.
        with suppress(CountersignError):
            _take(step, family, people)
        _try_to_sign(family, people)
    assert {*PAID} == {"PT50 to Ines"}


def _point(kind: str, which: int, family: list[Run]) -> Checkpoint:
    """Return where the newest run began, behind a gate of the first, or anywhere."""
    points = Checkpoint.objects.filter(
        run__in=[one.id for one in family], kept=True
    ).order_by("id")
    if kind == "newest":
        points = points.filter(
            run=family[-1].id, source__in=["input", "fork", "rewind"]
        )
    elif kind == "signed":
        points = points.filter(source="settlement")
    return points[which % len(points)]


def _take(step: Step, family: list[Run], people: cast.People) -> None:
    verb, kind, which, values = step
    olive = people.starter
    patch = {"scratch": values} if values else None
    run = Run.objects.get(id=family[which % len(family)].id)
    point = _point(kind, which, family)
    if verb == "fork":
        family.append(runs.fork(point.id, patch=patch, allow_effects=["pay"], by=olive))
    elif verb == "rewind":
        runs.rewind(
            point.run_id, point.id, patch=patch, allow_effects=["pay"], by=olive
        )
    elif verb == "resume":
        runs.resume(run.id, patch=patch, allow_effects=["pay"], by=olive)


def _try_to_sign(family: list[Run], people: cast.People) -> None:
    """The operator approves all that he may, and every run goes on as far as it gets."""
    for run in family:
        runs.advance(run.id)
        for request in ApprovalRequest.objects.filter(run=run.id, status="open"):
            with suppress(CountersignError):
                _approve(request, people)
        runs.advance(run.id)


def _approve(request: ApprovalRequest, people: cast.People) -> None:
    rows = pending_writes.of_tasks(
        request.run_id, request.line, [(request.node, request.visit)]
    )
    own = [row for row in rows if row.index == request.index]
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": "approve"} for row in own
    ]
    reviews.sign(request.run_id, items, by=people.starter)
