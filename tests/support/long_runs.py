"""A graph whose run changes parts of its channels at many checkpoints, and a run of it."""

from typing import Annotated, Any

from pydantic import BaseModel

from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator import runs
from orchestrator.engine import END, START, Append, Artifact, Graph, Merge, registry


class Claim(BaseModel):
    claim_id: str = "CLM-1"


class State(BaseModel):
    """Channels of several kinds."""

    case: dict[str, Any] = {}
    table: Annotated[dict[str, Any], Merge] = {}
    notes: Annotated[list[str], Append] = []
    n: int = 0
    letter: Annotated[str, Artifact] = ""


def long_graph(steps: int = 12, **settings: Any) -> Graph:
    """`count` changes n and parts of the case in each visit, `write` a letter in every
    third.
    """
    graph = Graph(
        "path_log", input=Claim, state=State, max_supersteps=2 * steps + 9, **settings
    )

    @graph.node()
    def count(state: State, ctx: Any) -> dict[str, Any]:
        n = state.n + 1
        case = {
            "amount": n // 4,
            "lines": [{"sum": n // 2}, *([{"sum": n}] if n % 3 else [])],
            "by": "count",
        }
        noted = {"notes": [f"note {n}"]} if n % 2 else {}
        return {"n": n, "case": case, "table": {f"k{n % 3}": n // 5}} | noted

    @graph.node()
    def write(state: State, ctx: Any) -> dict[str, Any]:
        return {"letter": f"Dear {state.n}"} if state.n % 3 == 0 else {}

    graph.edge(START, "count")
    graph.edge("count", "write")
    graph.branch(
        "write",
        lambda state: "on" if state.n < steps else "off",
        {"on": "count", "off": END},
    )
    registry.replace(graph)
    return graph


def finished(graph: Graph) -> Run:
    run = runs.advance(runs.start(graph.name, {}).id)
    assert run.status == "completed"
    return run


def head_of(run: Run) -> Checkpoint:
    return timeline.list_checkpoints(run.id, limit=1)[0]
