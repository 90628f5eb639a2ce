"""A small claim with a gate, and the ways to bring a run of it to where a test wants
it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any

from django.contrib.auth.models import Group, User
from pydantic import BaseModel, Field, create_model

from approvals import reviews
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import (
    END,
    START,
    Append,
    Fact,
    FileRef,
    Gate,
    Graph,
    Limit,
    Show,
    Write,
    registry,
)
from tests.support import run_actions


class Cause(StrEnum):
    WATER = "water"
    FIRE = "fire"


class Holder(BaseModel):
    name: str
    phone: str | None = None


class Claim(BaseModel):
    claim_id: str = Field(description="As on the letter")
    amount: Decimal
    cause: Cause = Cause.WATER
    holder: Holder = Holder(name="Marta")
    photos: list[str] = []
    urgent: bool = False
    letter: FileRef | None = None


class Payout(BaseModel):
    amount: Decimal
    account: str


class State(BaseModel):
    """A claim for tests."""

    notes: Annotated[list[str], Append] = []
    payout: Payout | None = None
    letter: str = ""
    count: int = 0
    ended: str = ""


class Euros(BaseModel):
    """A payment in a declared currency."""

    amount: Annotated[Decimal, Field(json_schema_extra={"currency": "EUR"})]
    account: str


class Payments(BaseModel):
    """Where payments stand."""

    payments: Annotated[list[Euros], Append] = []


class NotesAndPayments(Payments):
    """Notes and payments."""

    notes: Annotated[list[str], Append] = []


class Anything(BaseModel):
    """A channel for values of any shape."""

    anything: Any = None


BROKEN: set[str] = set()
"""Names of nodes that fail now."""


def graph_of(name: str = "page_claim", **gate: Any) -> Graph:
    """read → propose (a gate with three writes) → pay, or refuse."""
    graph = Graph(
        name,
        input=Claim,
        state=State,
        label="Claim {claim_id}",
        facts=[Fact("Claim", "input.claim_id", True)],
    )
    shows = {
        "letter": Show(
            label="Send the letter",
            reversible="A letter cannot be taken back.",
            reason_required=True,
        )
    }
    texts = {
        "title": "Pay {input.claim_id}?",
        "facts": [Fact("Amount", "input.amount")],
        "writes": shows,
    }

    @graph.node(effect="read")
    def read(state: State, ctx: Any) -> Any:
        if "read" in BROKEN:
            raise RuntimeError("the register does not answer")
        return {"notes": [f"claim {ctx.input.claim_id}"]}

    @graph.node(
        effect="human", gate=Gate(reviewers=["group:reviewer"], **{**texts, **gate})
    )
    def propose(state: State, ctx: Any) -> Any:
        return [
            Write(
                "payout",
                {"amount": "12.50", "account": "DE89370400440532013000"},
                label="Pay €12.50",
            ),
            Write(
                "letter",
                f"Dear {ctx.input.holder.name},\n\nwe pay within 10 days.",
                label="Send the letter",
            ),
            Write("count", 3, label="Count to three"),
        ]

    _behind(graph)
    graph.edge(START, "read")
    graph.edge("read", "propose")
    graph.edge("propose", "pay", when=("approved", "partial"))
    graph.edge("propose", "refuse", when="rejected")
    return graph


def in_two_steps(
    name: str = "two_steps",
    *,
    limits: Mapping[str, Limit] | None = None,
    needs: Sequence[str] = (),
    **gate: Any,
) -> Graph:
    """The same gate; behind it `transfer` reads the payout and `post` the letter. The
    payout has these `limits`, and the letter `needs` these channels.
    """
    graph = Graph(name, input=Claim, state=State)
    shows = {
        "payout": Show(label="Pay EUR {amount}", money="amount", limits=limits or {}),
        "letter": Show(label="Send the letter", needs=needs),
    }

    @graph.node(
        effect="human", gate=Gate(reviewers=["group:reviewer"], writes=shows, **gate)
    )
    def propose(state: State, ctx: Any) -> Any:
        return {"payout": {"amount": "1900.00", "account": "DE89"}, "letter": "We pay."}

    @graph.node(effect="external", idempotent=True)
    def transfer(state: State, ctx: Any) -> Any:
        return {"ended": f"paid {state.payout.amount}"} if state.payout else None

    @graph.node(effect="external", idempotent=True)
    def post(state: State, ctx: Any) -> Any:
        return {"notes": [state.letter]} if state.letter else None

    graph.edge(START, "propose")
    graph.edge("propose", "transfer")
    graph.edge("transfer", "post")
    graph.edge("post", END)
    return graph


def _behind(graph: Graph) -> None:
    """Add the nodes that follow the gate."""

    @graph.node(effect="external", idempotent=True)
    def pay(state: State, ctx: Any) -> Any:
        return {"ended": "paid"}

    @graph.node()
    def refuse(state: State, ctx: Any) -> Any:
        return {"ended": "refused"}

    graph.edge("pay", END)
    graph.edge("refuse", END)


@contextmanager
def registered(*graphs: Graph) -> Iterator[None]:
    """The graphs among those of this process, for as long as the block lasts."""
    before = dict(registry._registered)
    for graph in graphs:
        registry.replace(graph)
    try:
        yield
    finally:
        registry._registered.clear()
        registry._registered.update(before)
        BROKEN.clear()


def paused(claim: str, by: User, *, graph: str = "page_claim") -> Run:
    """A run that waits at its gate."""
    started = runs.start(
        graph, {"claim_id": claim, "amount": "12.50"}, key=claim, by=by
    )
    return runs.advance(started.id)


def member(user: User, group: str) -> User:
    """The user, in that group too."""
    user.groups.add(Group.objects.get_or_create(name=group)[0])
    return user


def many_writes(name: str, count: int) -> Graph:
    """A graph that proposes many writes at once."""
    graph = Graph(name, input=Claim, state=State)

    @graph.node(effect="human", gate=Gate(reviewers=["group:reviewer"]))
    def propose(state: State, ctx: Any) -> Any:
        return [Write("notes", [f"note {n}"], label=f"Note {n}") for n in range(count)]

    @graph.node()
    def close(state: State, ctx: Any) -> Any:
        return None

    graph.edge(START, "propose")
    graph.edge("propose", "close", when=("approved", "partial", "rejected"))
    graph.edge("close", END)
    return graph


def two_likenesses(name: str, count: int) -> Graph:
    """A graph that proposes as many writes, half of them notes and half of them
    payments.
    """
    graph = Graph(name, input=Claim, state=NotesAndPayments)
    payment = {"amount": "10.00", "account": "DE89370400440532013000"}

    @graph.node(effect="human", gate=Gate(reviewers=["group:reviewer"]))
    def propose(state: NotesAndPayments, ctx: Any) -> Any:
        half = range(count // 2)
        notes = [Write("notes", [f"note {n}"], label=f"Note {n}") for n in half]
        return notes + [Write("payments", [payment], label=f"Pay {n}") for n in half]

    graph.edge(START, "propose")
    graph.edge("propose", END)
    return graph


def many_payouts(name: str, amounts: Sequence[str]) -> Graph:
    """A graph that proposes a payout of each of these amounts, which an external node
    then reads.
    """
    graph = Graph(name, input=Claim, state=Payments)
    shows = {"payments": Show(label="Pay", money="0.amount")}

    @graph.node(effect="human", gate=Gate(reviewers=["group:reviewer"], writes=shows))
    def propose(state: Payments, ctx: Any) -> Any:
        account = "DE89370400440532013000"
        payouts = [{"amount": amount, "account": account} for amount in amounts]
        return [
            Write("payments", [payout], label=f"Pay €{payout['amount']}")
            for payout in payouts
        ]

    @graph.node(effect="external", idempotent=True)
    def pay(state: Payments, ctx: Any) -> Any:
        return None

    graph.edge(START, "propose")
    graph.edge("propose", "pay", when=("approved", "partial", "rejected"))
    graph.edge("pay", END)
    return graph


def long_list(name: str, count: int, *, value: Any = None) -> Graph:
    """A graph that proposes one long list, or the value that is given."""
    graph = Graph(name, input=Claim, state=Anything)

    @graph.node(effect="human", gate=Gate(reviewers=["group:reviewer"]))
    def propose(state: Anything, ctx: Any) -> Any:
        return [
            Write(
                "anything",
                [f"note {n}" for n in range(count)] if value is None else value,
                label="Anything",
            )
        ]

    graph.edge(START, "propose")
    graph.edge("propose", END)
    return graph


def decide_all(run: Run, *, by: User, verdict: str = "approve") -> None:
    """Give every pending write of the run this verdict."""
    rows = run_actions.pending(run)
    decisions = [
        {
            "write": str(row.write),
            "hash": row.hash,
            "verdict": verdict,
            "reason": "because",
        }
        for row in rows
    ]
    reviews.sign(run.id, decisions, by=by)


def with_a_file(name: str, *, required: bool) -> Graph:
    """A graph whose input is a file, or may be one."""
    kind: Any = (FileRef, ...) if required else (FileRef | None, None)
    graph = Graph(name, input=create_model("Letter", letter=kind), state=State)
    graph.node("read")(lambda state, ctx: None)
    graph.edge(START, "read")
    graph.edge("read", END)
    return graph
