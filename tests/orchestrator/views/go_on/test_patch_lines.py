"""What a patch changes."""

from typing import Any

from orchestrator.views.go_on.patch_lines import MOST_LINES, patch_lines
from tests.support.patch_points import point


def texts_of(there: Any, patch: dict[str, Any]) -> list[tuple[str | None, str | None]]:
    """Both values of each line; in quotes where it has quotes."""
    pairs = []
    for line in patch_lines(there, patch):
        texts = []
        for leaf in (line.before, line.after):
            quoted = leaf is not None and leaf.kind == "quoted"
            texts.append(f'"{leaf.text}"' if leaf and quoted else leaf and leaf.text)
        pairs.append((texts[0], texts[1]))
    return pairs


def test_each_value_that_changes_is_a_line_with_the_old_one_before_it() -> None:
    there = point(notes=["a"], payout={"amount": "1", "account": "DE1", "paid": False})
    patch = {
        "scratch": {"notes": ["a", "b"], "payout": {"account": "DE2"}},
        "artifacts": {"letter": "dear"},
    }
    assert [line.path for line in patch_lines(there, patch)] == [
        "scratch.notes[1]",
        "scratch.payout.account",
        "artifacts.letter",
    ]
    assert texts_of(there, patch) == [
        (None, "b"),
        ("DE1", "DE2"),
        ("empty text", "dear"),
    ]
    assert patch_lines(there, {}) == []


def test_money_reads_as_its_type_declares_and_only_ambiguous_values_are_quoted() -> (
    None
):
    there = point(
        payout={"amount": "4512.50", "account": "DE1", "paid": False},
        anything={"a": 1, "b": "x"},
        text="y",
    )
    patch = {
        "scratch": {
            "payout": {"amount": "12512.50", "account": "12"},
            "anything": {"a": "1", "b": " x"},
        }
    }
    assert texts_of(there, patch) == [
        ("1", '"1"'),
        ("x", " x"),
        ("DE1", '"12"'),
        ("4,512.50", "12,512.50"),
    ]


def test_two_values_that_differ_never_read_the_same() -> None:
    there = point(anything={"a": None, "b": "not set"}, maybe=3)
    patch = {
        "scratch": [
            {"op": "replace", "path": "/anything", "value": {"a": "not set", "b": None}}
        ]
    }
    for line in patch_lines(there, patch):
        assert line.before != line.after


def test_no_more_lines_are_made_than_are_shown() -> None:
    many = {"scratch": {"notes": [str(n) for n in range(5000)]}}
    assert len(patch_lines(point(), many)) == MOST_LINES + 1
