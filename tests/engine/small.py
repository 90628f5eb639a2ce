"""Small graphs for tests: each node adds its task to the channel `log`, so that the
order of what ran can be read.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel

from orchestrator.engine import END, START, Append, Gate, Graph, Last, Played, Sum, play

Edges = Iterable[tuple[str, str] | tuple[str, str, Any]]


class Nothing(BaseModel):
    """An input without fields."""


class Log(BaseModel):
    """What ran, and a few channels to play with."""

    log: Annotated[list[str], Append] = []
    total: Annotated[int, Sum] = 0
    note: str = ""
    latest: Annotated[str, Last] = ""


ASK = Gate(reviewers=["user:ann"])


def logs(state: Any, ctx: Any) -> dict[str, Any]:
    """Note that this task ran."""
    return {"log": [str(ctx.task)]}


def graph_of(
    edges: Edges, nodes: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
) -> Graph:
    """A graph from (source, target[, when]) with every other name as a logging node, in
    order of appearance. `nodes` gives options of a node, `fn` among them.
    """
    graph = Graph("small", input=Nothing, state=options.pop("state", Log), **options)
    listed = list(edges)
    names = dict.fromkeys(
        [*(nodes or {}), *(name for edge in listed for name in edge[:2])]
    )
    for name in names:
        if name not in (START, END):
            settings = dict((nodes or {}).get(name, {}))
            graph.node(name, **{k: v for k, v in settings.items() if k != "fn"})(
                settings.get("fn", logs)
            )
    for edge in listed:
        graph.edge(edge[0], edge[1], when=edge[2] if len(edge) > 2 else None)
    return graph


def chain(*names: str) -> list[tuple[str, str]]:
    """Edges from START through these nodes to END."""
    return list(zip((START, *names), (*names, END), strict=True))


def rounds(played: Played) -> list[list[str]]:
    """The tasks of each superstep, settlements left out."""
    return [
        [str(task) for task in step.tasks]
        for step in played.supersteps
        if step.source == "superstep"
    ]


def log_of(played: Played) -> list[str]:
    """Return what the channel `log` holds in the end."""
    return list(played.state["log"])


def run(graph: Graph, decisions: Any = None, **options: Any) -> Played:
    """Play it on an empty input."""
    return play(graph, {}, decisions=decisions, **options)


def approve(request: Any) -> dict[int, tuple[str, None]]:
    """Approve every write."""
    return {write.position: ("approve", None) for write in request.writes}


def reject(request: Any) -> dict[int, tuple[str, None]]:
    """Reject every write."""
    return {write.position: ("reject", None) for write in request.writes}
