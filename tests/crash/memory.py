"""Graphs that remember, for the sweep: each mode of memory, an effect that remembers,
and a gate that holds what to remember.
"""

from typing import Any

from orchestrator.engine import END, START, Gate, Graph

SPACE = "sweep"


def declare(graph: Graph, *, gate: Gate, when: tuple[str, ...]) -> Graph:
    """Two remember side by side, one of them with an effect; one reads and counts on;
    people decide; one looks.
    """
    graph.node(memory="journaled")(seed)
    graph.node(effect="external", idempotent=True)(act)
    graph.node(memory="snapshot")(count)
    graph.node(effect="human", gate=gate)(propose)
    graph.node()(look)
    for name in ("seed", "act"):
        graph.edge(START, name)
        graph.edge(name, "count")
    graph.edge("count", "propose")
    graph.edge("propose", "look", when=when)
    graph.edge("look", END)
    return graph


def seed(state: Any, ctx: Any) -> dict[str, Any]:
    """Take its journal down."""
    ctx.memory.put("count", 1, SPACE)
    ctx.memory.put("old", {"text": "to be forgotten"}, SPACE, strength=0.5)
    return {"notes": ["seeded"]}


def act(state: Any, ctx: Any) -> dict[str, Any]:
    """Acts, and remembers that it did."""
    ctx.memory.put("acted", ctx.node, SPACE)
    return {"notes": ["acted"]}


def count(state: Any, ctx: Any) -> dict[str, Any]:
    """Read what landed, and counts on."""
    trace = ctx.memory.get("count", SPACE)
    named = [trace.key for trace in ctx.memory.search("acted forgotten", SPACE)]
    ctx.memory.put("count", trace.content + 1, SPACE)
    return {"notes": [f"{trace.content} {trace.version} {named}"]}


def propose(state: Any, ctx: Any) -> dict[str, Any]:
    """Ask people what to remember and what to forget."""
    ctx.memory.put("rule", "proposed", SPACE)
    ctx.memory.delete("old", SPACE)
    return {"letter": "proposed"}


def look(state: Any, ctx: Any) -> dict[str, Any]:
    """Say what is remembered in the end."""
    traces = {
        key: ctx.memory.get(key, SPACE) for key in ("count", "old", "acted", "rule")
    }
    return {
        "notes": [f"{key} {trace and trace.content}" for key, trace in traces.items()]
    }
