"""Versions of one graph, and deployments of them: what tests of versions start, change
and go on with.
"""

from typing import Annotated, Any

from pydantic import BaseModel

from checkpoints.models import Run
from orchestrator import discovery
from orchestrator.engine import END, START, Append, Gate, Graph, Show, registry
from tests.support import cast, run_actions
from tests.support.chain import join_in_a_row
from tests.support.small_graphs import Notes, Order, advanced, slice_of


class Texts(BaseModel):
    """`Notes` in which the total became text."""

    notes: Annotated[list[str], Append] = []
    letter: str = ""
    total: str = "none"
    copy_to: str = "archive"


class Copied(Notes):
    """`Notes` with one more channel."""

    copy_to: str = "archive"


def paying(
    version: str,
    state: type[BaseModel] = Notes,
    *,
    guards: tuple[str, ...] = ("letter",),
    quorum: int = 1,
    nodes: tuple[str, ...] = ("fetch", "propose", "send"),
    title: str = "",
    effect: str = "pure",
) -> Graph:
    """fetch sets the total, people are asked at propose, send notes what it saw; every
    other node does nothing.
    """
    flow = Graph(
        "paying", version=version, input=Order, state=state, label=title or None
    )
    gate = Gate(
        reviewers=["group:claims"],
        quorum=quorum,
        writes={name: Show() for name in guards},
        title=title,
    )
    acts: dict[str, Any] = {
        "fetch": lambda state, ctx: {"total": type(state.total)(3)},
        "propose": lambda state, ctx: {"letter": "Dear"},
        "send": lambda state, ctx: {"notes": [f"sent {state.letter} {state.total}"]},
    }
    for name in nodes:
        options: dict[str, Any] = (
            {"effect": "human", "gate": gate} if name == "propose" else {}
        )
        options |= (
            {"effect": effect, "timeout": 9 if title else None}
            if name == "send"
            else {}
        )
        flow.node(name, **options)(acts.get(name, lambda state, ctx: None))
    join_in_a_row(flow, *nodes)
    return flow


def in_euros(state: Any) -> Any:
    """The migration to `Texts`."""
    return {
        **state,
        "scratch": {**state["scratch"], "total": f"{state['scratch']['total']} euros"},
    }


def deployed(*graphs: Graph) -> Graph:
    """Give this process these versions and no others; those before were noted."""
    discovery.note_versions()
    registry.clear()
    for made in graphs:
        registry.replace(made)
    return graphs[-1]


def signed_letter(people: cast.People) -> Run:
    """A run of version 1 whose letter was signed, at a gate that declares nothing; it
    is about to be sent.
    """
    run = advanced(paying("1", guards=(), nodes=("fetch", "propose", "file", "send")))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    turns = iter([False, False])
    slice_of(run, draining=lambda: next(turns, True))
    assert run_actions.state(run)["letter"] == "Dear"
    assert run_actions.state(run)["notes"] == []
    return run


__all__ = [
    "END",
    "START",
    "Copied",
    "Texts",
    "deployed",
    "in_euros",
    "paying",
    "signed_letter",
]
