"""A claim that people approve and that is then paid; what was paid is kept here, so
that a second time shows.
"""

from typing import Any

from approvals.models import ApprovalRequest, Decision
from checkpoints.core.status import Status
from checkpoints.models import Checkpoint, PendingWrite, Run, TaskResult
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Graph, Show, Write
from tests.support import cast, run_actions
from tests.support.small_graphs import graph, registered

PAID: list[str] = []


def claim(name: str, **gate: Any) -> Graph:
    """first -> ask (human, proposes total 10) -> pay (external) | refuse"""
    flow = graph(name)
    flow.node("first")(lambda state, ctx: {"notes": ["first"]})
    shown = {"writes": {"total": Show(label="Pay {value}")}, **gate}
    flow.node("ask", effect="human", gate=Gate(reviewers=["group:claims"], **shown))(
        lambda state, ctx: [Write("total", 10)]
    )

    def pay(state: Any, ctx: Any) -> dict[str, Any]:
        PAID.append(f"{ctx.idempotency_key}:{state.total}")
        return {"notes": [f"paid {state.total}"]}

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.node("refuse")(lambda state, ctx: {"notes": ["refused"]})
    flow.edge(START, "first")
    flow.edge("first", "ask")
    flow.edge("ask", "pay", when=("approved", "partial"))
    flow.edge("ask", "refuse", when="rejected")
    flow.edge("pay", END)
    flow.edge("refuse", END)
    return flow


def paid(name: str, people: cast.People, **gate: Any) -> Run:
    """A run of `claim` that was approved and has paid 10."""
    PAID.clear()
    registered(claim(name, **gate))
    run = runs.advance(runs.start(name, {}, key=f"key of {name}").id)
    signers = [
        run_actions.reviewer(people.reviewer),
        run_actions.reviewer(people.second_reviewer),
    ]
    for signer in signers[: gate.get("quorum", 1)]:
        run_actions.sign(run, signer, ["approve"])
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert len(PAID) == 1
    return run


def rows_of(run: Run) -> list[Any]:
    return [
        list(model.objects.filter(run=run.id).order_by("pk").values())
        for model in (Checkpoint, PendingWrite, TaskResult, ApprovalRequest, Decision)
    ] + [list(Run.objects.filter(id=run.id).values())]
