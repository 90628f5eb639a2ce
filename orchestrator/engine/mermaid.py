"""A graph as a Mermaid flowchart. Pure text; compiled graphs and the catalogue call it."""

from collections.abc import Iterable

from orchestrator.engine.node import END, START, Edge, Node

_SHAPES = {
    "pure": ("[", "]"),
    "read": ("[/", "/]"),
    "write": ("[(", ")]"),
    "external": ("[[", "]]"),
    "human": ("{{", "}}"),
}


def to_mermaid(nodes: Iterable[Node], edges: Iterable[Edge]) -> str:
    """The flowchart, top down: shapes by effect, labels and outcomes on the edges, sends dotted."""
    listed = list(nodes)
    ids = {START: "start_", END: "end_", **{node.name: f"n{n}" for n, node in enumerate(listed)}}
    lines = ["flowchart TD", "    start_((START))", "    end_((END))"]
    lines += [f"    {ids[node.name]}{_box(node)}" for node in listed]
    lines += [f"    {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}" for edge in edges]
    return "\n".join(lines) + "\n"


def _box(node: Node) -> str:
    left, right = _SHAPES[node.effect]
    return f"{left}{_text(node.name)}{right}"


def _arrow(edge: Edge) -> str:
    line = "-.->" if edge.kind in ("send", "goto") else "-->"
    label = edge.label if edge.label is not None else edge.when
    return f"{line}|{_text(label)}|" if label is not None else line


def _text(text: str) -> str:
    """Quoted as Mermaid wants it; characters that it would take for syntax become entity codes."""
    safe = "".join(c if c.isalnum() or c in " _-.,:" else f"#{ord(c)};" for c in text)
    return f'"{safe}"'
