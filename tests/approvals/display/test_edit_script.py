"""How one sequence became another, and what finding it may cost."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.display.edit_script import (
    CHUNK,
    MOST_ITEMS,
    MOST_PAIRS,
    MOST_SPANS,
    PAIRS_IN_STEP,
    Span,
    Steps,
    edit_script,
    shared_end,
    shared_start,
)
from orchestrator.engine.values.ops import same

ITEMS = st.lists(
    st.sampled_from([1, 1.0, True, "1", "a", "b", None, [], {}, [1], [True], {"a": 1}]),
    max_size=12,
)


def script(before: Any, after: Any) -> list[Span]:
    return edit_script(before, after, Steps())


@given(ITEMS, ITEMS)
def test_a_script_leads_from_one_to_the_other(
    before: list[Any], after: list[Any]
) -> None:
    spans = script(before, after)
    assert [item for span in spans for item in before[span.a : span.b]] == before
    assert [item for span in spans for item in after[span.c : span.d]] == after
    assert all(
        same(before[span.a : span.b], after[span.c : span.d])
        for span in spans
        if span.equal
    )
    assert all(
        span.equal != following.equal
        for span, following in zip(spans, spans[1:], strict=False)
    )
    assert (not any(not span.equal for span in spans)) == same(before, after)


def test_a_script_is_as_short_as_it_can_be() -> None:
    assert script("abcabba", "cbabac") == script(list("abcabba"), list("cbabac"))
    kept_count = sum(
        span.b - span.a
        for span in script(list("abcabba"), list("cbabac"))
        if span.equal
    )
    assert kept_count == 4


def test_what_stands_once_on_both_sides_is_matched_although_all_between_is_new() -> (
    None
):
    before = [n if n % 2 else -n for n in range(4000)]
    after = [n if n % 2 else n * 10_000 for n in range(1, 4001)]
    kept_count = sum(span.b - span.a for span in script(before, after) if span.equal)
    assert kept_count == 2000


def test_numbers_and_truth_do_not_match() -> None:
    assert [span.equal for span in script([1], [True])] == [False]
    assert [span.equal for span in script([[1.0]], [[1]])] == [False]


N = 8000
SHAPES = {
    "one changed": (
        [{"id": n} for n in range(N)],
        [{"id": n if n != 4000 else -1} for n in range(N)],
    ),
    "all changed": (list(range(N)), list(range(N, 2 * N))),
    "turned round": (list(range(N)), list(range(N))[::-1]),
    "every second": (list(range(N)), [n if n % 2 else -n for n in range(N)]),
    "the same few": ([n % 3 for n in range(N)], [n * 7 % 3 for n in range(N)]),
    "one of two": ([n % 2 for n in range(N)], [(n // 2) % 2 for n in range(N)]),
    "begins later": (list(range(N)), [0, *range(N)]),
    "blanks": ([" "] * N, ([" "] * 3 + ["x"]) * (N // 4)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_eight_thousand_items_cost_a_bounded_number_of_comparisons(shape: str) -> None:
    steps = Steps()
    spans = edit_script(*SHAPES[shape], steps)
    assert steps.scanned <= 4 * N + 8 * CHUNK
    assert steps.taken <= steps.most + N
    assert [
        item for span in spans for item in SHAPES[shape][1][span.c : span.d]
    ] == SHAPES[shape][1]


def test_beyond_its_steps_everything_between_counts_as_replaced() -> None:
    before = [n % 3 for n in range(60)]
    after = [n * 7 % 3 for n in range(1, 61)]
    assert any(span.equal for span in edit_script(before, after, Steps()))
    spans = edit_script(before, after, Steps(most=3))
    assert [span for span in spans if not span.equal] == spans


def test_very_many_items_are_compared_only_at_their_ends() -> None:
    before = list(range(MOST_ITEMS))
    steps = Steps()
    after = [0, *[-n for n in before[1:-1]], MOST_ITEMS - 1]
    assert [span.equal for span in edit_script(before, after, steps)] == [
        True,
        False,
        True,
    ]
    assert steps.taken == 0


def drained() -> Steps:
    """A budget that other cards of the page have used up."""
    return Steps(most=0)


def replaced(spans: list[Span]) -> int:
    """The number of old items that count as replaced."""
    return sum(span.b - span.a for span in spans if not span.equal)


def test_two_distant_changes_are_seen_although_no_steps_are_left() -> None:
    before = [f"item {n}" for n in range(2000)]
    after = [*before[:10], "new", *before[10:1990], "other", *before[1991:]]
    spans = edit_script(before, after, drained())
    changes = [(span.a, span.b, span.c, span.d) for span in spans if not span.equal]
    assert changes == [(10, 10, 10, 11), (1990, 1991, 1991, 1992)]


def test_each_of_three_long_lists_on_one_budget_shows_only_what_changed() -> None:
    steps = Steps()
    before = list(range(20_000))
    after = [-n if n in (5, 10_000, 19_990) else n for n in before]
    scripts = [edit_script(before, after, steps) for _ in range(3)]
    assert [replaced(spans) for spans in scripts] == [3, 3, 3]


def test_without_steps_repeated_items_are_matched_at_equal_offsets() -> None:
    before = [n % 3 for n in range(600)]
    after = [*before]
    after[5] = after[590] = 7
    spans = edit_script(before, after, drained())
    assert [(span.a, span.b) for span in spans if not span.equal] == [
        (5, 6),
        (590, 591),
    ]


def test_very_many_items_are_matched_at_equal_offsets() -> None:
    before = list(range(MOST_ITEMS))
    after = [-n if n in (5, 50_000) else n for n in before]
    assert replaced(script(before, after)) == 2
    assert replaced(script([1, True, 1], [1, 1, 1])) == 1


def test_items_at_equal_offsets_make_a_bounded_number_of_spans() -> None:
    before = [0] * (4 * MOST_SPANS)
    spans = script(before, [0, 1] * (2 * MOST_SPANS))
    assert len(spans) <= MOST_SPANS + 2
    assert spans[-1].b == spans[-1].d == len(before)


def test_a_comparison_keeps_no_more_than_25_megabytes() -> None:
    assert MOST_PAIRS // 8 <= 25_000_000
    steps = Steps()
    before = [n % 3 for n in range(30_000)]
    after = [n * 7 // 5 % 3 for n in range(30_000)]
    edit_script(before, after, steps)
    assert steps.taken * PAIRS_IN_STEP <= MOST_PAIRS


@given(ITEMS, ITEMS)
def test_a_script_without_steps_leads_from_one_to_the_other(
    before: list[Any], after: list[Any]
) -> None:
    spans = edit_script(before, after, drained())
    assert [item for span in spans for item in before[span.a : span.b]] == before
    assert [item for span in spans for item in after[span.c : span.d]] == after
    for span in spans:
        if span.equal:
            assert same(before[span.a : span.b], after[span.c : span.d])


@given(st.text("ab", max_size=9), st.text("ab", max_size=9))
def test_shared_ends_are_found_exactly(left: str, right: str) -> None:
    start = shared_start(left, right, Steps())
    assert left[:start] == right[:start]
    assert start == min(len(left), len(right)) or left[start] != right[start]
    end = shared_end(left, right, Steps(), start)
    assert left[len(left) - end :] == right[len(right) - end :]
    assert start + end <= min(len(left), len(right))


def test_shared_ends_of_long_texts_are_found_by_chunks() -> None:
    text = "x" * 1_000_000
    steps = Steps()
    assert shared_start(text, text[:700_001] + "y", steps) == 700_001
    assert shared_end(text, "y" + text[:700_001], steps) == 700_001
    assert steps.scanned <= 2 * (700_001 + 3 * CHUNK)
