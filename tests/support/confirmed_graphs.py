"""A gate that asks who signs to show once more who they are, and what signs there."""

from typing import Annotated, Any

from pydantic import BaseModel

from checkpoints.models import Run
from orchestrator.engine import END, START, Append, Gate, Graph, Show, Write
from tests.support.run_actions import pending


class Order(BaseModel):
    folder: str = ""


class Paid(BaseModel):
    payout: dict[str, Any] = {}
    notes: Annotated[list[str], Append] = []


def gated(
    name: str = "confirmed",
    *,
    amount: Any = "6000",
    encrypted: bool = False,
    many: int = 0,
    **options: Any,
) -> Graph:
    """A graph whose gate holds a payout of that amount, or `many` notes."""
    flow = Graph(name, input=Order, state=Paid, encrypted=encrypted)
    options = {"reviewers": ["group:claims"], **options}
    gate = Gate(writes={"payout": Show(label="Pay", money="amount")}, **options)

    @flow.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> Any:
        if many:
            return [Write("notes", [f"note {number}"]) for number in range(many)]
        return {"payout": {"amount": amount}}

    flow.edge(START, "propose")
    flow.edge("propose", END)
    return flow


def doubly_gated(name: str = "doubly") -> Graph:
    """A graph whose payout asks for a password, and whose notes ask for a passkey."""
    flow = Graph(name, input=Order, state=Paid)
    password = Gate(reviewers=["group:claims"], confirm="password")
    passkey = Gate(reviewers=["group:claims"], confirm="passkey")

    @flow.node(effect="human", gate=password)
    def propose(state: Any, ctx: Any) -> Any:
        return {"payout": {"amount": "6000"}}

    @flow.node(effect="human", gate=passkey)
    def note(state: Any, ctx: Any) -> Any:
        return {"notes": ["note"]}

    for node in ("propose", "note"):
        flow.edge(START, node)
        flow.edge(node, END)
    return flow


def items_of(run: Run, verdict: str = "approve", **extra: Any) -> list[dict[str, Any]]:
    """The one pending write of a run, with a verdict, as `sign` takes it."""
    (row,) = pending(run)
    return [{"write": str(row.write), "hash": row.hash, "verdict": verdict, **extra}]


def approval_of(run: Run) -> dict[str, Any]:
    """The form that approves the only write of a run."""
    (row,) = pending(run)
    return {
        "write": str(row.write),
        f"h-{row.write}": row.hash,
        f"v-{row.write}": "approve",
    }
