"""Graphs whose nodes stand in a row."""

from orchestrator.engine import END, START, Graph


def join_in_a_row(graph: Graph, *names: str) -> None:
    """Edges from START through these nodes to END."""
    for source, target in zip((START, *names), (*names, END), strict=True):
        graph.edge(source, target)
