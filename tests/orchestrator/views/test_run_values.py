"""Values on the page of a run: what differs is seen to differ, and a huge state costs
no more than what is shown.
"""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from checkpoints import timeline
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.engine import Graph, registry
from orchestrator.engine.values.canonical import encode
from orchestrator.engine.values.ops import same
from orchestrator.views import run_details
from tests.support import claims
from tests.support.cast import People
from tests.support.chain import join_in_a_row

JSON = st.recursive(
    st.sampled_from(
        [
            None,
            True,
            1,
            1.0,
            "1",
            "true",
            "",
            "x" * 500,
            "x" * 500 + "y",
            "a\u202e",
            "a⟨U+202E⟩",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "a.b"]), inner, max_size=3)
    ),
    max_leaves=8,
)


def stored(value: Any) -> Any:
    """The value as rows give it back: its keys are in order."""
    return json.loads(encode(value))


@given(JSON, JSON)
@example({"b": None, "a.b": None}, {"a.b": None, "b": None})
def test_two_values_never_have_one_line(left: Any, right: Any) -> None:
    lines = [run_details.compact(stored(value)) for value in (left, right)]
    assert (lines[0] == lines[1]) == same(left, right)


def test_a_long_value_is_shown_from_where_it_differs() -> None:
    before, after = (f"{'word ' * 200}{end}" for end in ("ten", "three"))
    change = timeline.Change("scratch", "letter", "changed", before, after)
    row = run_details._change(change)
    assert "ten" in row["before"].text
    assert "three" in row["after"].text
    assert row["after"].text.startswith("…")


def set_to(people: People, *values: Any) -> Run:
    """A run that sets the channel to one value after the other."""
    graph = Graph("details", input=claims.Claim, state=claims.Anything)
    names = [f"set_{n}" for n in range(len(values))]
    for name, value in zip(names, values, strict=True):
        graph.node(name)(lambda state, ctx, value=value: {"anything": value})
    join_in_a_row(graph, *names)
    registry.replace(graph)
    run_input = {"claim_id": "CLM-1", "amount": "1"}
    return runs.advance(runs.start("details", run_input, by=people.starter).id)


def test_only_the_first_of_very_many_changes_are_shown_and_counted(
    people: People,
) -> None:
    run = set_to(people, list(range(100_000)), list(range(1, 100_001)))
    listed = run_details.changed_rows(timeline.list_checkpoints(run.id)[0], {}, {})
    assert listed["shown"] == run_details.MOST_CHANGES
    assert listed["total"] == run_details.MOST_COUNTED
    assert listed["uncounted"] is True


def test_an_output_that_is_cut_says_so_and_looks_like_no_other() -> None:
    left, right = (["x" * run_details.CUT, end] for end in ("a", "b"))
    texts = [run_details._cut(value) for value in (left, right)]
    assert texts[0] != texts[1]
    assert "more characters, fingerprint" in texts[0]


def test_a_value_of_the_state_is_shown_as_it_is_stored() -> None:
    assert json.loads(run_details._leaf("k", {"a": "\u202e"})["text"]) == {
        "a": "\u202e"
    }
