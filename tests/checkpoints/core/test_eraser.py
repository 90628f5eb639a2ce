"""Erasing documents and changes: what is erased of the changes comes to what is erased
of the state.
"""

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.core.eraser import (
    PathEraser,
    WholeEraser,
    erased_change,
    erased_document,
)
from checkpoints.core.state_paths import parsed_path
from checkpoints.core.tombstone import TEXT, is_tombstone, tombstone
from checkpoints.core.visible_text import CUT
from orchestrator.engine.values import ops

WORDS = st.sampled_from(["Ada Marker", "Ada", "x", "a letter to Ada Marker", ""])
LEAVES = st.one_of(WORDS, st.integers(0, 3), st.none(), st.booleans())
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
)
LONG = "Ada Lovelace lives at " + "street " * 400
STATES = st.fixed_dictionaries({"who": VALUES, "list": st.lists(VALUES, max_size=3)})


def document(state: dict[str, Any]) -> dict[str, Any]:
    frontier = {
        "sends": [["n", [state["who"]]]],
        "tokens": {"a>b": 1},
        "errors": {},
        "waiting": {},
    }
    return {
        "scratch": state,
        "artifacts": {},
        "diagnostics": {"warnings": [], "nodes": {"n": {"ms": 1}}},
        "frontier": frontier,
        "open": {},
        "versions": {"who": 1},
    }


def both(item: dict[str, Any], other: dict[str, Any], eraser: Any) -> tuple[Any, Any]:
    """The erased state, and what the erased change comes to on the erased state before."""
    before = document(item)
    after = document(other)
    op = ops.between(before, after)
    change = erased_change([op] if op else [], before, eraser)
    erased = erased_document(before, eraser)
    for each in change:
        erased = ops.apply(erased, each)
    return erased_document(after, eraser), erased


@given(STATES, STATES)
def test_erased_changes_come_to_the_erased_state(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    wanted, erased = both(before, after, WholeEraser("r"))
    assert erased == wanted
    assert all(
        value is None or is_tombstone(value) for value in erased["scratch"].values()
    )
    paths = [parsed_path(path) for path in ("who.a", "list[1]", "who.b.c")]
    wanted, erased = both(before, after, PathEraser("r", paths, ["Ada Marker", "Ada"]))
    assert erased == wanted
    assert "Ada Marker" not in str(erased)


def test_names_numbers_and_tokens_stay_and_every_value_goes() -> None:
    erased = erased_document(document({"who": "Ada", "list": [1]}), WholeEraser("r"))
    assert erased["scratch"] == {"who": tombstone("r"), "list": tombstone("r")}
    assert erased["frontier"] == {
        "sends": [["n", [tombstone("r")]]],
        "tokens": {"a>b": 1},
        "errors": {},
        "waiting": {},
    }
    assert erased["versions"] == {"who": 1}
    assert erased["diagnostics"]["nodes"] == {"n": {"ms": 1}}


def test_what_an_open_superstep_keeps_goes_but_its_form() -> None:
    output = {
        "writes": [{"channel": "who", "value": "Ada", "label": "for Ada"}],
        "goto": None,
        "sends": [["n", "Ada"]],
    }
    open_ = {
        "results": {
            "n:1:0": {
                "output": output,
                "error": {"type": "E", "message": "Ada"},
                "why": "Ada",
            }
        }
    }
    erased = erased_document({"open": open_}, WholeEraser("r"))["open"]["results"][
        "n:1:0"
    ]
    assert erased["output"] == {
        "writes": [{"channel": "who", "value": tombstone("r"), "label": TEXT}],
        "goto": None,
        "sends": [["n", tombstone("r")]],
    }
    assert erased["error"] == {"type": "E", "message": TEXT}
    assert erased["why"] == TEXT


def test_memory_that_a_replay_put_goes_and_so_does_what_nobody_knows() -> None:
    trace = {"value": {"content": {"who": "Ada"}, "strength": 1.0}, "version": 2}
    open_ = {
        "overlay": {"people": {"7": trace, "8": {"value": None, "version": 3}}},
        "new": ["Ada"],
        "superstep": 3,
    }
    erased = erased_document(
        {"open": open_, "frontier": {"new": "Ada", "visited": ["a"]}}, WholeEraser("r")
    )
    assert erased["open"] == {
        "overlay": {
            "people": {
                "7": {"value": tombstone("r"), "version": 2},
                "8": {"value": None, "version": 3},
            }
        },
        "new": tombstone("r"),
        "superstep": 3,
    }
    assert erased["frontier"] == {"new": tombstone("r"), "visited": ["a"]}
    deep = ops.between(
        {"open": {"overlay": {}}}, {"open": {"overlay": {"people": {"7": trace}}}}
    )
    assert deep is not None
    assert "Ada" not in str(erased_change([deep], None, WholeEraser("r")))


def test_a_word_is_erased_within_texts_and_a_short_one_at_its_path_alone() -> None:
    eraser = PathEraser("r", [parsed_path("who.name")], ["Ada Marker", "DE"])
    assert eraser.texts({"title": "Pay Ada Marker in DE"}) == {
        "title": f"Pay {TEXT} in DE"
    }
    assert eraser.value("who", {"name": "DE", "land": "DE"}) == {
        "name": tombstone("r"),
        "land": "DE",
    }
    assert eraser.input({"who": {"name": "x"}}) == {"who": {"name": "x"}}
    assert PathEraser("r", [parsed_path("input.who.name")], []).input(
        {"who": {"name": "x"}}
    )["who"] == {"name": tombstone("r")}


@pytest.mark.parametrize(
    "text",
    ['for Zo\\xeb "Z" Marker', 'for Zo\\u00eb \\"Z\\" Marker', 'for Zoë "Z" Marker'],
)
def test_a_word_is_found_in_texts_in_which_it_was_escaped(text: str) -> None:
    assert PathEraser("r", [], ['Zoë "Z" Marker']).texts([text]) == [f"for {TEXT}"]


def test_error_texts_are_erased_as_a_whole_where_paths_are_erased() -> None:
    eraser = PathEraser("r", [parsed_path("who.name")], ["Zoë Marker of Long Street"])
    error = {
        "code": "invalid",
        "type": "ValidationError",
        "message": "input_value='Zo\\xeb Ma...reet'",
        "attempt": 2,
    }
    assert eraser.error(error) == {**error, "message": TEXT}
    assert eraser.error("Zo\\xeb Ma...reet") == TEXT


def test_error_texts_within_the_engines_notes_are_erased_as_a_whole_where_paths_are_erased() -> (
    None
):
    failure = {
        "node": "pay",
        "type": "ValueError",
        "message": "'Zo\\xeb Ma...reet'",
        "attempt": 1,
    }
    notes = {
        "frontier": {"errors": {"pay>end": [failure]}, "tokens": {"a>b": 1}},
        "open": {"results": {"pay:1:0": {"error": failure, "why": "'Zo\\xeb'"}}},
        "diagnostics": {"warnings": ["'Zo\\xeb Ma...reet'"]},
    }
    erased = erased_document(
        notes, PathEraser("r", [parsed_path("who.name")], ["Zoë Marker of Long Street"])
    )
    assert erased["frontier"]["errors"]["pay>end"] == [{**failure, "message": TEXT}]
    assert erased["open"]["results"]["pay:1:0"] == {
        "error": {**failure, "message": TEXT},
        "why": TEXT,
    }
    assert erased["diagnostics"]["warnings"] == [TEXT]
    assert erased["frontier"]["tokens"] == {"a>b": 1}


def test_a_word_that_the_engine_uses_too_breaks_no_form_of_its_notes() -> None:
    eraser = PathEraser("r", [parsed_path("status")], ["rejected", "nodes", "paid"])
    errors = {"e": [{"node": "paid", "message": "not paid"}]}
    frontier = {"rejected": "paid:1", "visits": {"paid": 1}, "errors": errors}
    before = {
        "scratch": {"status": "rejected", "paid": 1},
        "frontier": frontier,
        "diagnostics": {"nodes": {"paid": {}}},
    }
    erased = erased_document(before, eraser)
    assert erased["scratch"] == {"status": tombstone("r"), "paid": 1}
    assert erased["frontier"] == {
        **frontier,
        "errors": {"e": [{"node": "paid", "message": TEXT}]},
    }
    assert erased["diagnostics"] == {"nodes": {"paid": {}}}


def test_names_within_a_value_are_erased_and_stay_different() -> None:
    eraser = PathEraser("r", [parsed_path("who")], ["Ada Marker", "Bob Marker"])
    before = {"scratch": {"sums": {"Ada Marker": 1, "Bob Marker": 2, "Eve": 3}}}
    after = {"scratch": {"sums": {"Bob Marker": 5, "Eve": 3, "of Ada Marker": 4}}}
    erased = erased_document(before, eraser)
    assert sorted(erased["scratch"]["sums"].values()) == [1, 2, 3]
    assert "Marker" not in str(erased)
    op = ops.between(before, after)
    assert op is not None
    change = erased_change([op], before, eraser)
    assert "Marker" not in str(change)
    assert ops.apply(erased, change[0]) == erased_document(after, eraser)


def test_what_was_written_to_a_list_is_erased_whatever_its_number_was() -> None:
    eraser = PathEraser("r", [parsed_path("lines[2].amount")], [])
    assert eraser.value("lines", [{"amount": 52300, "n": 1}]) == [
        {"amount": tombstone("r"), "n": 1}
    ]
    insert = {"op": "insert", "items": [{"amount": 52300}]}
    inner = ops.within({"scratch": ops.within({"lines": insert})})
    assert "52300" not in str(erased_change([inner], None, eraser))
    change = {"scratch": {"lines": [{"amount": 1}, {"amount": 2}, {"amount": 3}]}}
    assert erased_document(change, eraser)["scratch"]["lines"] == [
        {"amount": 1},
        {"amount": 2},
        {"amount": tombstone("r")},
    ]


def test_what_a_fork_changed_is_erased_by_path() -> None:
    eraser = PathEraser("r", [parsed_path("salary"), parsed_path("pay.sum")], [])
    assert eraser.patch({"scratch": {"salary": 52300, "n": 1}}) == {
        "scratch": {"salary": tombstone("r"), "n": 1}
    }
    assert eraser.patch({"salary": 52300, "pay": {"sum": 7}}) == {
        "salary": tombstone("r"),
        "pay": {"sum": tombstone("r")},
    }


@pytest.mark.parametrize("length", sorted(CUT))
def test_the_end_of_a_text_that_was_cut_is_erased_where_a_word_begins_so(
    length: int,
) -> None:
    eraser = PathEraser("r", [parsed_path("letter")], [LONG, "Lovelace lives"])
    cut = f"Send {LONG}"[:length]
    assert eraser.text(cut) == f"Send {TEXT}"
    assert eraser.texts({"label": [cut]}) == {"label": [f"Send {TEXT}"]}


def test_the_end_of_a_text_that_was_not_cut_stays() -> None:
    eraser = PathEraser("r", [parsed_path("who")], ["Adamson, who was paid"])
    for text in ("Claim of Adam", "Adam", "x" * 250 + "Adam"):
        assert eraser.text(text) == text
    # No shorter word is looked for either.
    assert eraser.text(("x" * 300 + "Ada")[-300:]) == ("x" * 300 + "Ada")[-300:]


def test_the_end_of_a_cut_text_of_which_something_was_erased_before_is_found_too() -> (
    None
):
    label = f"Bob Marker, {LONG}"[:300]
    label = PathEraser("r", [parsed_path("who")], ["Bob Marker"]).text(label)
    assert len(label) != 300
    assert (
        PathEraser("s", [parsed_path("letter")], [LONG]).text(label)
        == f"{TEXT}, {TEXT}"
    )


def test_words_that_overlap_are_erased_whole() -> None:
    eraser = PathEraser("r", [parsed_path("who")], ["Ada Marker", "Marker of Bath"])
    assert eraser.text("to Ada Marker of Bath, Bath") == f"to {TEXT}, Bath"
    assert eraser.text("Ada MarkerAda Marker") == TEXT * 2


def test_operations_are_erased_at_the_place_that_they_point_to() -> None:
    paths = [
        parsed_path(path)
        for path in (
            "letter",
            "pay.sum",
            "lines[2].amount",
            'sums["7"]',
            'sums["9"].in',
            "box",
        )
    ]
    eraser = PathEraser("r", paths, ["Ada Marker"])

    mark = tombstone("r")
    operations = {
        ("/letter", "Ada"): tombstone("r"),
        ("/pay", "whole"): "whole",
        ("/pay/sum", 7): tombstone("r"),
        ("/pay/other", 7): 7,
        ("/lines/0/amount", 7): tombstone("r"),
        ("/lines/-/n", 7): 7,
        ("/sums/7", 1): tombstone("r"),
        ("/sums/8", 1): 1,
        ("/sums/9", (("in", 1), ("out", 2))): {"in": tombstone("r"), "out": 2},
        ("/box/in/side", 3): tombstone("r"),
        ("/notes/-", "to Ada Marker"): f"to {TEXT}",
        ("/letter", None): None,
    }
    for (pointer, value), left in operations.items():
        stored = dict(value) if isinstance(value, tuple) else value
        [said] = eraser.patch(
            {"scratch": [{"op": "add", "path": pointer, "value": stored}]}
        )["scratch"]
        assert said["op"] == "add", pointer
        assert said["path"] == pointer, pointer
        assert said["value"] == left, pointer
    whole = {
        "op": "replace",
        "path": "",
        "value": {"letter": "Ada", "pay": {"sum": 7, "n": 1}},
    }
    [said] = eraser.patch({"scratch": [whole]})["scratch"]
    assert said["value"] == {"letter": mark, "pay": {"sum": mark, "n": 1}}
    move = {"op": "move", "from": "/sums/Ada Marker", "path": "/sums/a~1b"}
    assert eraser.patch({"scratch": [move]}) == {
        "scratch": [{"op": "move", "from": f"/sums/{TEXT}", "path": "/sums/a~1b"}]
    }
    assert WholeEraser("r").patch({"scratch": [whole]}) == mark


def test_another_process_gives_an_erased_name_the_same_number() -> None:
    """A process counts hashes of texts from a seed of its own."""
    code = (
        "from checkpoints.core.eraser import PathEraser\n"
        "from checkpoints.core.state_paths import parsed_path\n"
        "words = ['Ada Marker', 'Bob Marker', 'Eve Marker', 'Joe Marker']\n"
        "eraser = PathEraser('r', [parsed_path('who')], words)\n"
        "print([eraser.key(word, ('scratch', 'sums')) for word in words])"
    )
    numbered = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(numbered) == 1


def test_what_a_call_was_prepared_from_and_called_with_goes() -> None:
    args = {"channel": "$call", "value": {"payee": "Ada"}, "label": None}
    waiting = {"status": "gated", "goto": None, "sends": [], "payload": "Ada"}
    kept = {
        "frontier": {"waiting": {"pay:1": [waiting]}},
        "open": {
            "passed": {"pay:1:0": {"call": args}},
            "results": {"pay:2:0": {"call": args}},
        },
    }
    erased = erased_document(kept, WholeEraser("r"))
    assert erased["frontier"]["waiting"]["pay:1"] == [
        {**waiting, "payload": tombstone("r")}
    ]
    without = {**args, "value": tombstone("r")}
    assert erased["open"]["passed"] == {"pay:1:0": {"call": without}}
    assert erased["open"]["results"] == {"pay:2:0": {"call": without}}


def test_what_a_node_acts_on_is_erased_as_the_channels_that_it_came_from() -> None:
    eraser = PathEraser("r", [parsed_path("payout.amount")], [])
    payout = {"channel": "payout", "value": {"amount": 7, "memo": "x"}}
    value = {"gate": "review", "writes": [payout, {"channel": "total", "value": 7}]}
    assert eraser.value("$authority", value) == {
        "gate": "review",
        "writes": [
            {"channel": "payout", "value": {"amount": tombstone("r"), "memo": "x"}},
            {"channel": "total", "value": 7},
        ],
    }
