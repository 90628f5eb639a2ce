"""Two runs are laid side by side by node and visit; and each difference has the nearest
reason that is known.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.core.alignment import (
    REASONS,
    Cause,
    Evidence,
    Reason,
    Stage,
    in_words,
    reason_of,
    side_by_side,
)


def stage(seq: int, *nodes: str, source: str = "superstep", visit: int = 1) -> Stage:
    return Stage(seq, source, {(node, visit): ("pure", "done") for node in nodes})


def aligned(a: list[Stage], b: list[Stage]) -> list[Any]:
    def name(stages: list[Stage], at: int | None) -> str:
        return "-" if at is None else ",".join(node for node, _ in stages[at].visits)

    return [(name(a, left), name(b, right)) for left, right in side_by_side(a, b)]


def test_runs_are_paired_by_node_and_visit_and_what_is_between_stands_side_by_side() -> (
    None
):
    a = [
        stage(7, "screen"),
        stage(8, "route"),
        stage(9, "stage"),
        stage(10, "review"),
        stage(11, "close"),
    ]
    b = [stage(1, "screen"), stage(2, "route"), stage(3, "auto"), stage(4, "close")]
    assert aligned(a, b) == [
        ("screen", "screen"),
        ("route", "route"),
        ("stage", "auto"),
        ("review", "-"),
        ("close", "close"),
    ]


def test_another_visit_or_another_source_is_no_pair() -> None:
    assert side_by_side([stage(1, "a")], [stage(1, "a", visit=2), stage(2, "a")]) == [
        (None, 0),
        (0, 1),
    ]
    assert side_by_side(
        [stage(1, "a")], [stage(1, "a", source="settlement"), stage(2, "a")]
    ) == [(None, 0), (0, 1)]
    assert side_by_side([], []) == []


STAGES = st.lists(
    st.builds(
        lambda nodes, visit: stage(0, *nodes, visit=visit),
        st.sets(st.sampled_from("abcd")),
        st.integers(1, 3),
    ),
    max_size=9,
)


@given(STAGES, STAGES)
def test_every_checkpoint_stands_once_and_in_its_order(
    a: list[Stage], b: list[Stage]
) -> None:
    rows = side_by_side(a, b)
    assert [left for left, _ in rows if left is not None] == list(range(len(a)))
    assert [right for _, right in rows if right is not None] == list(range(len(b)))
    assert (None, None) not in rows


@given(STAGES)
def test_a_run_beside_itself_has_no_gaps(a: list[Stage]) -> None:
    unique = list(
        {
            tuple(stage.marks()): stage
            for stage in a
            if stage.visits and len(stage.visits) == 1
        }.values()
    )
    assert side_by_side(unique, unique) == [(n, n) for n in range(len(unique))]


@given(STAGES, STAGES)
def test_exchanging_both_runs_exchanges_the_pairs(
    a: list[Stage], b: list[Stage]
) -> None:
    assert side_by_side(a, b) == [(left, right) for right, left in side_by_side(b, a)]


SCREEN = ("screen", 1)


def ran(
    seq: int, *visits: tuple[str, int], source: str = "superstep", patched: bool = False
) -> Cause:
    return Cause(
        Stage(seq, source, dict.fromkeys(visits, ("pure", "done"))), visits, patched
    )


NOT = Cause()
CASES: list[tuple[Cause, Cause, Evidence, Reason]] = [
    (ran(7, SCREEN), ran(0, patched=True), Evidence(), Reason("patch", (), "b")),
    (ran(0, patched=True), NOT, Evidence(other_input=True), Reason("patch", (), "a")),
    (ran(0, patched=True), ran(0, patched=True), Evidence(), Reason("patch")),
    (
        ran(8, SCREEN, source="settlement"),
        ran(8, SCREEN, source="settlement"),
        Evidence(answered=(frozenset([SCREEN]), frozenset([SCREEN]))),
        Reason("answer", ("screen",)),
    ),
    (
        ran(8, SCREEN, source="settlement"),
        NOT,
        Evidence(answered=(frozenset([SCREEN]), frozenset())),
        Reason("answer", ("screen",), "a"),
    ),
    (
        ran(8, SCREEN, source="settlement"),
        ran(9, SCREEN, source="settlement"),
        Evidence(
            other_proposals={SCREEN: True},
            answered=(frozenset([SCREEN]), frozenset([SCREEN])),
            first=(8, 9),
        ),
        Reason("unknown", ("screen",)),
    ),
    (
        ran(8, SCREEN),
        ran(8, SCREEN),
        Evidence(other_results={SCREEN: True}),
        Reason("outside", ("screen",)),
    ),
    (
        ran(8, SCREEN),
        ran(8, SCREEN),
        Evidence(other_memory={SCREEN: True}, other_input=True),
        Reason("memory", ("screen",)),
    ),
    (
        ran(8, SCREEN),
        ran(8, SCREEN),
        Evidence(other_input=True, other_code=True),
        Reason("input", ("screen",)),
    ),
    (
        ran(8, SCREEN),
        ran(8, SCREEN),
        Evidence(other_code=True),
        Reason("code", ("screen",)),
    ),
    (
        ran(8, SCREEN),
        ran(9, ("auto", 1)),
        Evidence(other_code=True),
        Reason("path", ("screen", "auto")),
    ),
    (ran(8, SCREEN), NOT, Evidence(), Reason("path", ("screen",), "a")),
    (NOT, ran(8, SCREEN), Evidence(), Reason("path", ("screen",), "b")),
    (
        ran(8, SCREEN),
        ran(9, SCREEN),
        Evidence(first=(8, 9)),
        Reason("unknown", ("screen",)),
    ),
    (
        ran(8, SCREEN),
        ran(9, SCREEN),
        Evidence(first=(7, 9)),
        Reason("follows", ("screen",)),
    ),
    (NOT, NOT, Evidence(), Reason("unknown")),
]


@pytest.mark.parametrize(("a", "b", "known", "wanted"), CASES)
def test_each_difference_has_the_nearest_reason_that_is_known(
    a: Cause, b: Cause, known: Evidence, wanted: Reason
) -> None:
    assert reason_of(a, b, known) == wanted


CAUSES = st.one_of(
    st.just(Cause()),
    st.builds(
        lambda visits, source: ran(8, *sorted(visits), source=source),
        st.sets(st.tuples(st.sampled_from("abc"), st.just(1)), min_size=1),
        st.sampled_from(["superstep", "settlement"]),
    ),
)
ANSWERED = st.frozensets(st.tuples(st.sampled_from("abc"), st.just(1)))
OTHER_RUN = {"a": "b", "b": "a", "": ""}


@given(CAUSES, CAUSES, ANSWERED, ANSWERED)
def test_exchanging_both_runs_exchanges_the_reason(
    a: Cause, b: Cause, in_a: frozenset[Any], in_b: frozenset[Any]
) -> None:
    reason = reason_of(a, b, Evidence(answered=(in_a, in_b)))
    mirrored = reason_of(b, a, Evidence(answered=(in_b, in_a)))
    assert mirrored.kind == reason.kind
    assert {*mirrored.nodes} == {*reason.nodes}
    assert mirrored.run == OTHER_RUN[reason.run]


def test_each_reason_is_said_in_words_with_its_nodes_and_its_run() -> None:
    assert (
        in_words(Reason("unknown", ("fraud_screen",)))
        == "unknown, both ran fraud_screen live"
    )
    assert in_words(Reason("patch", run="b")) == "patched in B"
    assert (
        in_words(Reason("answer", ("propose",), "a"))
        == "answered at propose, in A only"
    )
    assert (
        in_words(Reason("path", ("pay",), "b"), ("one", "two"))
        == "set by pay, in two only"
    )
    for kind in REASONS:
        assert in_words(Reason(kind))
