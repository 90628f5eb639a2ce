"""An encrypted graph that says something of its own in every place that a value can
come from; see `marked`.
"""

import time
from typing import Annotated, Any
from uuid import uuid4

from pydantic import BaseModel

from orchestrator.engine import (
    END,
    START,
    Append,
    Fact,
    Gate,
    Graph,
    Send,
    Show,
    Write,
    registry,
)
from tests.support.sealed_tables import ONE_KEY

BATCH = uuid4().hex
"""Part of every mark, so that what an earlier test left in the file of a database is
not found.
"""


def marked(place: str) -> str:
    """A text that can only have come from this place."""
    return f"mark-{BATCH}-{place}-end"


broken: set[str] = set()
"""Names of nodes that fail while they are in it."""


class Claim(BaseModel):
    """What starts a journey."""

    number: str = "7"
    person: str = ""
    branch: str = ""


class State(BaseModel):
    """What the claim comes to."""

    notes: Annotated[list[str], Append] = []
    payout: dict[str, str] = {}
    letter: str = ""
    sent: str = ""


def keys() -> dict[str, Any]:
    """Settings with one key."""
    return dict(ONE_KEY)


GATE = Gate(
    reviewers=["group:claims"],
    title="Pay {input.person}: " + marked("title"),
    facts=[Fact("Person", "input.person")],
    shows=["letter"],
    writes={
        "payout": Show(label="the payout", reversible=marked("reversible")),
        "notes": Show(label="a note"),
    },
)


def registered(*, encrypted: bool = True) -> Graph:
    """gather sends to look up; people decide on a payout and a letter; something
    breaks, and sending is unknown.
    """
    flow = Graph(
        "secret_claim",
        input=Claim,
        state=State,
        encrypted=encrypted,
        label="Claim of {person}",
        facts=[
            Fact("Branch", "input.branch", indexed=True),
            Fact("Person", "input.person"),
        ],
    )
    _asking(flow)
    _acting(flow)
    flow.edge(START, "gather")
    flow.edge("gather", "propose")
    flow.edge("look", END)
    flow.edge("propose", "fragile", when=("approved", "partial"))
    flow.edge("fragile", "send")
    flow.edge("send", "pay")
    flow.edge("pay", END)
    registry.replace(flow)
    return flow


def _asking(flow: Graph) -> None:
    @flow.node(sends=["look"])
    def gather(state: State, ctx: Any) -> list[Send]:
        ctx.report(1, 2, marked("report"))
        time.sleep(0.15)
        ctx.memory.put("claims", {"said": marked("memory")}, namespace="people")
        return [Send("look", {"where": marked("payload")})]

    @flow.node(effect="read")
    def look(state: State, ctx: Any) -> dict[str, Any]:
        ctx.metadata("found", marked("noted"))
        ctx.figure("tokens", 12)
        return {"notes": [marked("state")]}

    @flow.node(effect="human", gate=GATE)
    def propose(state: State, ctx: Any) -> list[Write]:
        return [
            Write(
                "payout",
                {"to": ctx.input.person, "memo": marked("write")},
                label=marked("label"),
            ),
            Write("letter", marked("letter")),
            Write("notes", [marked("rejected")]),
        ]


def _acting(flow: Graph) -> None:
    @flow.node()
    def fragile(state: State, ctx: Any) -> dict[str, Any]:
        if "fragile" in broken:
            raise RuntimeError(marked("failure"))
        return {"notes": [marked("node")]}

    @flow.node(effect="external", timeout=0.2)
    def send(state: State, ctx: Any) -> dict[str, Any]:
        time.sleep(0.5)
        return {"sent": marked("late")}

    @flow.node(effect="external", idempotent=True)
    def pay(state: State, ctx: Any) -> dict[str, Any]:
        ctx.metadata("paid", marked("paid"))
        ctx.figure("cost", 3)
        return {"notes": [marked("result")]}
