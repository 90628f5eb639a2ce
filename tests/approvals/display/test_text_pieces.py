"""Two texts as one: what is marked as gone and come, put together, is the two texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.display.edit_script import Steps
from approvals.display.text_pieces import pieces

TEXTS = st.lists(
    st.sampled_from(["pay", " ", "10", "days", "\n", "  ", "ä", "x" * 300, "."]),
    max_size=30,
).map("".join)


@given(TEXTS, TEXTS)
def test_pieces_put_together_are_the_two_texts(now: str, proposed: str) -> None:
    text_pieces = pieces(now, proposed, Steps())
    assert (
        "".join(piece.text for piece in text_pieces if piece.state != "out") == proposed
    )
    if now and proposed:
        assert (
            "".join(piece.text for piece in text_pieces if piece.state != "in") == now
        )


def test_no_word_is_cut_where_texts_differ() -> None:
    text_pieces = pieces("pay within 10 days", "pay within 100 days", Steps())
    assert [(piece.state, piece.text) for piece in text_pieces] == [
        ("same", "pay within "),
        ("out", "10"),
        ("in", "100"),
        ("same", " days"),
    ]


@pytest.mark.parametrize(
    ("now", "proposed", "states"),
    [("", "", []), ("", "a", ["same"]), ("a", "", ["out"])],
)
def test_where_one_text_is_empty_the_other_stands_whole(
    now: str, proposed: str, states: list[str]
) -> None:
    assert [piece.state for piece in pieces(now, proposed, Steps())] == states


def test_where_a_text_begins_and_ends_is_marked_so_that_blanks_there_are_drawn() -> (
    None
):
    text_pieces = pieces("a b", "a c", Steps())
    assert [text_pieces[0].starts, text_pieces[-1].ends] == [True, True]
