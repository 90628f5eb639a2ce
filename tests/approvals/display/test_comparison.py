"""What a proposal changes: two values that differ never look the same, and `now` is
what the caller says it is.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from approvals.display import comparison
from approvals.display.change_blocks import FieldTable, Items, LongText
from approvals.display.edit_script import CHUNK, Steps
from approvals.views.card_pages import CardPages
from orchestrator.engine.values.ops import same
from tests.approvals.views.looks import ALIKE, WRITE, look_of, rendered

LETTERS = "Dear Ann,\n\nwe pay within 10 days."
LEAVES = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        1.0,
        12.5,
        "1",
        "1.0",
        "12.5",
        "true",
        "yes",
        "no",
        "",
        "not set",
        "empty text",
        "none",
    ]
    + [
        "empty list",
        "no fields",
        "not there",
        "removed",
        "—",
        "null",
        "[]",
        "{}",
        '{"a": 1}',
        '"1"',
        "a",
        "A",
        "a b",
    ]
    + [
        "a  b",
        " a",
        "a ",
        "a\nb",
        "a\u202eb",
        "ab",
        "⟨U+202E⟩",
        "é",
        "e\u0301",
        "א1",
        "1א",
        LETTERS,
        LETTERS + "\n",
    ]
    + [
        LETTERS.replace("10", "3"),
        "x" * 130,
        "x" * 131,
        "y" * 2100,
        "y" * 2101,
        "y" * 2100 + "z",
        "FORGED",
    ]
)
KEYS = st.sampled_from(
    [
        "a",
        "A",
        "a_",
        "amount",
        "amount_",
        "before",
        "after",
        "a b",
        "a › b",
        "",
        '"a"',
        "\u200b",
    ]
)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.lists(LEAVES, max_size=30)
    ),
    max_leaves=6,
)
HOW = st.fixed_dictionaries(
    {"adds": st.booleans(), "change": st.sampled_from([(), ("before", "after")])}
)
PATIENT = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@PATIENT
@given(JSON, JSON, JSON, HOW)
def test_two_proposals_that_differ_never_look_the_same(
    now: Any, left: Any, right: Any, how: dict[str, Any]
) -> None:
    assert (look_of(now, left, **how) == look_of(now, right, **how)) == same(
        left, right
    )


@PATIENT
@given(JSON, JSON, JSON, HOW)
def test_two_current_values_that_differ_never_look_the_same(
    left: Any, right: Any, proposed: Any, how: dict[str, Any]
) -> None:
    assert (look_of(left, proposed, **how) == look_of(right, proposed, **how)) == same(
        left, right
    )


@PATIENT
@given(JSON, JSON, JSON, HOW)
def test_nor_do_those_with_so_many_fields_that_they_are_not_entered(
    now: Any, left: Any, right: Any, how: dict[str, Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "MANY", -1)
        assert (look_of(now, left, **how) == look_of(now, right, **how)) == same(
            left, right
        )
        assert (look_of(left, now, **how) == look_of(right, now, **how)) == same(
            left, right
        )


@PATIENT
@given(JSON, JSON)
def test_what_differs_is_never_said_to_be_unchanged(now: Any, proposed: Any) -> None:
    change = comparison.compare(now, proposed)
    assert bool(change.blocks) == (not same(now, proposed))
    assert ("Nothing changes" in rendered(now, proposed)) == same(now, proposed)


@PATIENT
@given(JSON, JSON)
def test_what_is_there_now_never_comes_from_the_proposal(
    now: Any, proposed: Any
) -> None:
    assume("FORGED" not in repr(now))
    html = rendered(now, proposed)
    columns = [part.partition("</td>")[0] for part in html.split('<td class="now"')[1:]]
    columns += [part.partition("</del>")[0] for part in html.split("<del>")[1:]]
    columns += [part.partition("</p>")[0] for part in html.split("Now: ")[1:]]
    assert not any("FORGED" in column for column in columns)


@pytest.mark.parametrize("case", ALIKE)
def test_what_could_be_mistaken_is_told_apart(case: str) -> None:
    left, right = ALIKE[case]
    looks = {
        look_of(left, right),
        look_of(right, left),
        look_of(left, left),
        look_of(right, right),
    }
    assert len(looks) == 4
    for now in (None, {}, [], "", "something", ["something"], {"something": 1}):
        for adds in (False, True):
            assert look_of(now, left, adds=adds) != look_of(now, right, adds=adds)
            assert look_of(now, {"k": left}, adds=adds) != look_of(
                now, {"k": right}, adds=adds
            )
            assert look_of(now, [left], adds=adds) != look_of(now, [right], adds=adds)


def rows(now: Any, proposed: Any, **how: Any) -> dict[str, tuple[str, str]]:
    change = comparison.compare(now, proposed, **how)
    tables = [block for block in change.blocks if isinstance(block, FieldTable)]
    table_rows = [row for table in tables for row in table.units(0, 100)]
    return {row.label: (row.now.text, row.proposed.text) for row in table_rows}


def test_a_proposal_cannot_say_what_is_there_now() -> None:
    forged = {"before": {"amount": "9000.00"}, "after": {"amount": "10.00"}}
    assert rows({"amount": "10.00"}, forged) == {
        "Amount": ("10.00", "removed"),
        "Before › Amount": ("not there", "9000.00"),
        "After › Amount": ("not there", "10.00"),
    }


def test_a_gate_can_have_a_value_say_its_own_change_with_the_present_value_shown_too() -> (
    None
):
    forged = {"before": {"amount": "9000.00"}, "after": {"amount": "10.00"}, "row": 7}
    change = comparison.compare({"amount": "12.00"}, forged, change=("before", "after"))
    table, more = change.blocks
    assert isinstance(table, FieldTable)
    assert isinstance(more, FieldTable)
    assert table.heads == ("Before", "After")
    assert [(row.now.text, row.proposed.text) for row in table.units(0, 9)] == [
        ("9000.00", "10.00")
    ]
    assert more.title == "Other fields"
    assert [row.label for row in more.units(0, 9)] == ["Row"]
    assert [(text, leaf and leaf.text) for text, leaf in change.lead] == [
        ("What changes, as stated in the proposal:", None),
        ("There now:", '{"amount": "12.00"}'),
    ]


@pytest.mark.parametrize("after", [None, {}, [], "x"])
def test_a_value_that_says_no_whole_change_is_shown_as_any_other(after: Any) -> None:
    value = {"before": {"a": 1}, "after": after}
    if after != {}:
        assert comparison.compare(
            {}, value, change=("before", "after")
        ) == comparison.compare({}, value)
    assert look_of({}, value, change=("before", "after")) != look_of(
        {}, {**value, "after": {"a": None}}
    )


def test_fields_are_shown_with_both_values_and_folded_where_they_are_equal() -> None:
    now = {"kept": 1, "moved": "a", "left": True, "gone": 2}
    proposed = {"kept": 1, "moved": "b", "left": None, "came": [1, 2]}
    change = comparison.compare(now, proposed)
    (table,) = change.blocks
    assert {row.label: row.state for row in table.units(0, 9)} == {
        "Moved": "changed",
        "Left": "gone",
        "Gone": "gone",
        "Came": "new",
    }
    assert [row.label for row in change.same.units(0, 9)] == ["Kept"]


def test_inner_fields_are_shown_by_their_path() -> None:
    assert rows({"payee": {"name": "Ann"}}, {"payee": {"name": "Bea"}}) == {
        "Payee › Name": ("Ann", "Bea")
    }


def test_words_of_a_letter_are_marked() -> None:
    (letter,) = comparison.compare(LETTERS, LETTERS.replace("10", "3")).blocks
    assert isinstance(letter, LongText)
    states = [(piece.state, piece.text) for piece in letter.units(0, 9)]
    assert states == [
        ("same", "Dear Ann,\n\nwe pay within "),
        ("out", "10"),
        ("in", "3"),
        ("same", " days."),
    ]


def test_a_long_field_is_shown_as_a_letter_beside_the_others() -> None:
    table, letter = comparison.compare(
        None, {"to": "ann@example.com", "body": LETTERS}
    ).blocks
    assert [row.label for row in table.units(0, 9)] == ["To"]
    assert isinstance(letter, LongText)
    assert letter.title == "Body"
    assert letter.notes == []


def states(change: comparison.Comparison) -> list[tuple[str, str, str]]:
    (items,) = change.blocks
    assert isinstance(items, Items)
    units = items.units(0, 100)
    return [
        (
            unit.state,
            unit.out.text if unit.out else "",
            unit.come.text if unit.come else unit.gap,
        )
        for unit in units
    ]


def test_items_of_a_list_are_added_and_removed() -> None:
    assert states(comparison.compare(["a", "b"], ["a", "c"])) == [
        ("same", "", "a"),
        ("changed", "b", "c"),
    ]
    assert states(comparison.compare(["a"], ["a", "b"])) == [
        ("same", "", "a"),
        ("in", "", "b"),
    ]
    assert states(comparison.compare(["b", "a"], ["a"])) == [
        ("out", "b", ""),
        ("same", "", "a"),
    ]


def test_what_is_added_to_a_list_is_shown_and_what_is_there_beside_it() -> None:
    change = comparison.compare(["a"], ["b", "c"], adds=True)
    assert [state for state, *_ in states(change)] == ["in", "in"]
    ((text, there),) = change.lead
    assert text == "Adds 2 items to what was there when it was proposed:"
    assert there is not None
    assert [item.text for item in there.items] == ["a"]


def test_an_item_that_changed_is_shown_once_with_its_changes_marked() -> None:
    before = [
        {"id": n, "name": "a name that is rather long", "amount": n} for n in range(3)
    ]
    after = [{**one, "amount": 9} if one["id"] == 1 else one for one in before]
    (items,) = comparison.compare(before, after).blocks
    (item,) = [one for one in items.units(0, 9) if one.state == "changed"]
    assert [
        (piece.state, piece.text) for piece in item.pieces if piece.state != "same"
    ] == [("out", "1"), ("in", "9")]


def test_a_long_list_shows_only_its_changes_and_their_neighbours() -> None:
    before = list(range(8000))
    after = [*before[:4000], -1, *before[4001:]]
    shown = states(comparison.compare(before, after))
    assert [(state, come.partition(",")[0]) for state, _, come in shown] == [
        ("gap", "3"),
        ("same", "3998"),
        ("same", "3999"),
        ("changed", "-1"),
        ("same", "4001"),
        ("same", "4002"),
        ("gap", "3"),
    ]
    assert shown[0][2].startswith("3,998 items are unchanged: 1 to 3,998, fingerprint ")


def test_unchanged_items_that_are_folded_do_not_look_like_others() -> None:
    before = list(range(100))
    other = [*range(50), -7, *range(51, 100)]
    assert look_of(before, [*before, 1]) != look_of(other, [*other, 1])


def test_a_long_list_has_pages_and_each_item_stands_on_one_of_them() -> None:
    change = comparison.compare([], [f"item {n}" for n in range(8000)])
    assert change.pages == 8000 // comparison.PAGE
    seen = [
        item.come.text
        for n in range(change.pages)
        for part in change.page(n)
        for item in part.units
    ]
    assert seen == [f"item {n}" for n in range(8000)]


def test_a_page_holds_no_more_than_its_share_of_anything() -> None:
    value = {
        "letter": "word " * 20_000,
        "list": list(range(500)),
        **{f"f{n}": n for n in range(300)},
    }
    html = rendered(None, value)
    assert html.count("<tr>") == comparison.PAGE + 1
    assert len(html) < 20_000
    assert len(rendered(None, value, pages=CardPages({(WRITE, "change"): 8}))) < 60_000


HUGE = 4 * 1024 * 1024
SHAPES = {
    "numbers": ([1] * (HUGE // 2), [2] * (HUGE // 2)),
    "numbers, one more": (list(range(600_000)), [0, *range(600_000)]),
    "objects": (
        [{"id": n} for n in range(300_000)],
        [{"id": n, "x": 1} for n in range(200_000)],
    ),
    "turned round": (list(range(600_000)), list(range(600_000))[::-1]),
    "two items": ([True, False] * 300_000, [False, True, True] * 200_000),
    "one line": ("x" * HUGE, "y" * HUGE),
    "words": ("word other " * (HUGE // 11), "other word " * (HUGE // 11)),
    "lines": ("line\n" * (HUGE // 5), "lime\nline\n" * (HUGE // 10)),
    "blanks": (" " * HUGE, " \n" * (HUGE // 2)),
    "fields": (
        {f"{n}": n for n in range(300_000)},
        {f"{n}": -n for n in range(300_000)},
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_comparing_four_mebibytes_takes_a_bounded_number_of_steps(shape: str) -> None:
    now, proposed = SHAPES[shape]
    steps = Steps()
    change = comparison.compare(now, proposed, steps=steps)
    change.page(0)
    change.page(change.pages - 1)
    assert steps.scanned <= 2 * (len(now) + len(proposed)) + 40 * CHUNK
    assert steps.taken <= 2 * steps.most
