"""What a node says of itself."""

from typing import Any

from orchestrator.engine.graphs.node import Node


def paying(state: Any, ctx: Any) -> None:
    """Pay what was approved. The key is the same however often this runs, so the
    endpoint pays once.

    Raises what the endpoint answers.
    """


def test_a_docstring_is_shown_with_each_paragraph_on_one_line() -> None:
    node = Node(name="pay", fn=paying)
    assert node.doc.split("\n\n") == [
        "Pay what was approved. The key is the same however often this"
        " runs, so the endpoint pays once.",
        "Raises what the endpoint answers.",
    ]


def test_a_node_without_a_docstring_has_no_words() -> None:
    assert Node(name="pay", fn=lambda state, ctx: None).doc == ""
