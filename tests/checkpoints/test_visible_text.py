"""Texts as people can see them: nothing invisible passes, and no two texts look the
same.
"""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkpoints.core.visible_text import is_odd, stretches, visible_text

UNSEEN = (
    "\u061c\u0085\u2028\u2029\u3164\u115f\u1160\uffa0"
    "\u2800\u00a0\U000e0000\U000e0041\U000e007f\ufe0f\U000e0100"
    "\u202e\u202d\u2066\u200b\u200d\u200e"
    "\ufeff\u00ad\u034f\u180e\t\r\x07\x7f\ue000\U0010ffff\u2009\u3000\u0378"
)
TEXTS = st.text(
    st.one_of(
        st.sampled_from(
            list(
                "ab1 \n\nij⟨U+0␣↵⟩eé\u0301\u0307\u0323אב\u05b0ㅎ\u1112\u1161\u11ab\u212b\u2126"
                + UNSEEN
            )
        ),
        st.characters(exclude_categories=["Cs"]),
    ),
    max_size=12,
)


@pytest.mark.parametrize("letter", UNSEEN, ids=lambda letter: f"U+{ord(letter):04X}")
def test_what_cannot_be_seen_is_written_out(letter: str) -> None:
    assert visible_text(f"a{letter}b") == f"a⟨U+{ord(letter):04X}⟩b"


def test_whole_categories_are_written_out() -> None:
    unseen = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs")
    letters = [chr(n) for n in range(0x30000) if unicodedata.category(chr(n)) in unseen]
    assert {letter for letter in letters if not is_odd(letter)} == {" ", "\n"}


def test_common_letters_of_all_scripts_stay_as_they_are() -> None:
    for text in (
        "Grüße, Zoë",
        "Кириллица",
        "日本語",
        "한국어",
        "ภาษาไทย",
        "हिन्दी",
        "שָׁלוֹם",
        "Tiếng Việt",
        "🙂 ½ µ €",
    ):
        assert visible_text(text) == text


def test_a_mark_that_a_text_spells_out_itself_is_told_from_a_real_one() -> None:
    assert visible_text("⟨U+202E⟩") == "⟨U+27E8⟩U+202E⟩"
    assert visible_text("␣") == "⟨U+2423⟩"


def test_blanks_at_the_ends_and_in_a_row_are_drawn() -> None:
    assert visible_text(" a  b ") == "␣a␣␣b␣"
    assert visible_text("a b") == "a b"
    assert visible_text("a \n b") == "a␣↵␣b"


def test_a_line_end_that_could_be_taken_for_a_wrapped_line_is_drawn() -> None:
    assert [stretch.kind for stretch in stretches("a\nb")] == ["plain", "end", "plain"]
    assert [stretch.kind for stretch in stretches("a\n\nb")] == ["plain"]
    assert [stretch.kind for stretch in stretches("a\n\n")] == ["plain", "end", "end"]


def test_blanks_that_indent_code_are_no_marks() -> None:
    kinds = [
        (stretch.kind, stretch.text)
        for stretch in stretches('{\n    "a": "x  y"\n}', code=True)
    ]
    assert kinds == [("plain", '{\n    "a": "x'), ("blank", "  "), ("plain", 'y"\n}')]


def test_letters_written_in_two_ways_are_told_apart() -> None:
    assert visible_text("e\u0301") == "e⟨U+0301⟩"
    assert visible_text("é") == "é"
    assert visible_text("\u212b") == "⟨U+212B⟩"
    assert visible_text("\u1112\u1161\u11ab") == "\u1112⟨U+1161⟩⟨U+11AB⟩"


def test_marks_that_no_script_needs_are_written_out() -> None:
    assert visible_text("x\u0302\u0302") == "x⟨U+0302⟩⟨U+0302⟩"
    assert visible_text("\u0301a") == "⟨U+0301⟩a"
    assert visible_text("i\u0307") == "i⟨U+0307⟩"
    assert (
        visible_text("q\u0302\u0303\u0304\u0305\u0306")
        == "q\u0302\u0303\u0304\u0305⟨U+0306⟩"
    )


def test_where_directions_meet_each_stretch_stands_for_itself() -> None:
    pieces = stretches("pay אב גד 12")
    assert [(one.kind, one.text) for one in pieces] == [
        ("plain", "pay "),
        ("turned", "אב גד"),
        ("plain", " 12"),
    ]
    assert [stretch.kind for stretch in stretches("אב גד")] == ["plain"]


@given(TEXTS, TEXTS)
def test_no_two_texts_look_the_same(left: str, right: str) -> None:
    looks = [unicodedata.normalize("NFC", visible_text(text)) for text in (left, right)]
    assert (looks[0] == looks[1]) == (left == right)


@given(TEXTS)
def test_stretches_are_the_text_and_nothing_odd_is_plain(text: str) -> None:
    pieces = stretches(text)
    assert "".join(piece.text for piece in pieces) == text
    flat = [inner for piece in pieces for inner in (piece.inner or (piece,))]
    assert "".join(piece.text for piece in flat) == text
    assert not any(
        is_odd(letter)
        for piece in flat
        if piece.kind in ("plain", "end")
        for letter in piece.text
    )


@given(TEXTS, st.booleans(), st.booleans())
def test_a_part_of_a_text_hides_nothing_either(
    text: str, starts: bool, ends: bool
) -> None:
    for code in (False, True):
        pieces = stretches(text, starts=starts, ends=ends, code=code)
        assert "".join(one.text for one in pieces) == text
