"""A graph as a Mermaid flowchart. Pure text; compiled graphs and the catalogue call it."""

from collections.abc import Iterable

from orchestrator.engine.graphs.node import END, START, Edge, Node

_SHAPES = {
    "pure": ("[", "]"),
    "read": ("[/", "/]"),
    "write": ("[(", ")]"),
    "external": ("[[", "]]"),
    "human": ("{{", "}}"),
}


def to_mermaid(nodes: Iterable[Node], edges: Iterable[Edge]) -> str:
    """Return the flowchart, top down: shapes by effect, labels and outcomes on the edges,
    sends and gotos dotted.
    """
    # Ids are made up, because a name may be a word of Mermaid's syntax, such as `end`.
    ids = {START: "start_", END: "end_"}
    lines = ["flowchart TD", "    start_((START))", "    end_((END))"]
    for number, node in enumerate(nodes):
        ids[node.name] = f"n{number}"
        lines.append(f"    n{number}{_box(node)}")
    for edge in edges:
        lines.append(f"    {ids[edge.source]} {_arrow(edge)} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _box(node: Node) -> str:
    opening, closing = _SHAPES[node.effect]
    return f"{opening}{_text(node.name)}{closing}"


def _arrow(edge: Edge) -> str:
    line = "-.->" if edge.kind in ("send", "goto") else "-->"
    label = edge.label
    if label is None:
        label = edge.when
    if label is None:
        return line
    return f"{line}|{_text(label)}|"


def _text(text: str) -> str:
    """Return the text in quotes for Mermaid; characters that it would take for syntax
    become entity codes.
    """
    safe = ""
    for character in text:
        if character.isalnum() or character in " _-.,:":
            safe += character
        else:
            safe += f"#{ord(character)};"
    return f'"{safe}"'
