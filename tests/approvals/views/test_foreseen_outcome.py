"""What the review says will happen is what then happens: each combination of verdicts is
drafted, read from the page, signed, and compared with the nodes that ran.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from approvals import reviews
from approvals.views.drafted_outcome import Next
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph
from tests.support import call_graphs, claims, run_actions
from tests.support.cast import People
from tests.support.review_forms import choose
from tests.support.small_graphs import graph

pytestmark = pytest.mark.django_db(transaction=True)
Browse = Callable[[User], Client]
MAY = "may follow"


def routed() -> Graph:
    """A graph with a separate way for each outcome of its gate, one of them over a
    router.
    """
    flow = graph("routed")

    @flow.node("review", effect="human", gate=Gate(reviewers=["group:reviewer"]))
    def review(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "Dear Marta", "total": 3}

    flow.node("count")(lambda state, ctx: {"notes": ["counted"]})
    for name in ("small", "large", "refuse", "sort"):
        flow.node(name, effect="external", idempotent=True)(lambda state, ctx: None)
        if name != "sort":
            flow.edge(name, END)
    flow.edge(START, "review")
    flow.edge("review", "count", when="approved")
    flow.edge("review", "refuse", when="rejected")
    flow.edge("review", "sort", when="partial")
    flow.edge("sort", END)
    flow.branch(
        "count",
        lambda state: "large" if state.total > 2 else "small",
        {"large": "large", "small": "small"},
    )
    return flow


def calling() -> Graph:
    """People approve a payment before it is made."""
    return call_graphs.paying(
        "calling", gate=call_graphs.call_gate(reviewers=["group:reviewer"])
    )


@pytest.fixture
def graphs(db: None) -> Iterator[None]:
    made = (
        claims.graph_of(),
        claims.in_two_steps(),
        claims.in_two_steps("whole", all_or_nothing=True),
        claims.in_two_steps("needy", needs=["payout"]),
        routed(),
        calling(),
    )
    with claims.registered(*made), call_graphs.calls():
        yield


WRITES = {
    "page_claim": ("payout", "letter", "count"),
    "two_steps": ("payout", "letter"),
    "whole": ("payout", "letter"),
    "needy": ("payout", "letter"),
    "routed": ("letter", "total"),
    "calling": ("$call",),
}
CASES = [
    (name, verdicts)
    for name, channels in WRITES.items()
    for verdicts in product(("approve", "reject"), repeat=len(channels))
]


def paused(name: str, people: People) -> Run:
    if name in ("routed", "calling"):
        return runs.advance(runs.start(name, {}, by=people.starter).id)
    return claims.paused("CLM-1", people.starter, graph=name)


def foreseen(client: Client, run: Run, verdicts: dict[str, str]) -> Next:
    """Return what the page says once these verdicts are drafted."""
    address = reverse("review", args=[run.id])
    posted = {**choose(client.get(address), **verdicts), "number": "1"}
    answer = client.post(
        reverse("draft", args=[run.id]), posted, headers={"X-Fragment": "1"}
    )
    assert answer.status_code == 200
    following: Any = client.get(address).context["page"].next
    return following  # type: ignore[no-any-return]


def sign(run: Run, by: User, verdicts: Sequence[str]) -> None:
    items: list[dict[str, str]] = []
    for row, verdict in zip(run_actions.pending(run), verdicts, strict=True):
        item = {"write": str(row.write), "hash": row.hash, "reason": "because"}
        items.append({**item, "verdict": verdict})
    reviews.sign(run.id, items, by=by)


def nodes_after(run: Run, seq: int) -> list[str]:
    """The nodes that ran since a checkpoint, in order, without the gate's own visit."""
    rows = Checkpoint.objects.filter(run=run, seq__gt=seq, source="superstep")
    return [entry["node"] for row in rows.order_by("seq") for entry in row.nodes]


@pytest.mark.parametrize(("name", "verdicts"), CASES)
def test_the_nodes_that_are_foreseen_are_those_that_then_run(
    graphs: None,
    people: People,
    browse: Browse,
    name: str,
    verdicts: tuple[str, ...],
) -> None:
    run = paused(name, people)
    head = Checkpoint.objects.get(id=run.head).seq
    drafted = dict(zip(WRITES[name], verdicts, strict=True))
    following = foreseen(browse(people.reviewer), run, drafted)
    assert not following.waits
    lines = [line for _, lines in following.then for line in lines if line.node]
    sure = [line.node for line in lines if MAY not in line.text and line.icon != "x"]
    may = [line.node for line in lines if MAY in line.text]

    sign(run, people.reviewer, verdicts)
    run = runs.advance(run.id)
    ran = nodes_after(run, head)
    # What is said to run does run, in that order; nothing runs that was not said.
    assert [node for node in ran if node in sure] == sure
    assert set(ran) <= {*sure, *may}
