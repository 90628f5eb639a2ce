"""Writes of one likeness as groups: what they share, what differs, what stands apart,
and what must be opened.
"""

from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from approvals.display.value_types import NOTHING_DECLARED
from approvals.views.write_effects import WriteEffect
from approvals.views.write_groups import (
    WriteGroup,
    WriteLine,
    amount_of,
    changed_fields,
    choose_by_drafts,
    grouped,
)
from checkpoints.models import PendingWrite

REQUEST = uuid4()


def line(
    number: int, now: Any, proposed: Any, *, amount: str = "", **row: Any
) -> WriteLine:
    """The line of a write that changes one value into another."""
    columns = {
        "node": "propose",
        "channel": "notes",
        "hash": f"{number:064}",
        "size": 10,
        **row,
    }
    changed, others = changed_fields(now, proposed, adds=False, stated=())
    return WriteLine(
        number,
        PendingWrite(write=UUID(int=number), revision=1, **columns),
        REQUEST,
        f"Write {number}",
        "Correct a row",
        open=True,
        may=True,
        changed=changed,
        others=others,
        declared=NOTHING_DECLARED,
        effect=WriteEffect(),
        amount=Decimal(amount) if amount else None,
    )


def merged(number: int, **row: Any) -> WriteLine:
    """The line of an account that is merged into another."""
    before = {"status": "active", "into": None, "name": "Ek"}
    return line(
        number, before, {**before, "status": "merged", "into": str(number)}, **row
    )


def one_group(lines: list[WriteLine]) -> WriteGroup:
    """The only group of these lines."""
    (group,), _ = grouped(lines)
    return group


def test_writes_that_change_the_same_fields_are_one_group_and_others_stand_apart() -> (
    None
):
    other = line(9, {"name": "Ek"}, {"name": "Holm"})
    (group,), apart = grouped([*map(merged, range(1, 6)), other])
    assert [one.number for one in group.lines] == [1, 2, 3, 4, 5]
    assert [one.number for one in apart] == [9]


def test_few_writes_of_a_likeness_stand_apart() -> None:
    groups, apart = grouped([merged(number) for number in (1, 2, 3)])
    assert groups == []
    assert len(apart) == 3


def test_a_group_shows_what_is_shared_and_how_many_values_differ() -> None:
    group = one_group([merged(number) for number in range(1, 189)])
    rows = {
        row.label: (row.now.text if row.now else "", row.proposed.text)
        for row in group.rows
    }
    assert rows == {
        "Status": ("active", "merged"),
        "Into": ("not set", "188 different values"),
    }
    assert group.title == "188 × Correct a row: status, into"


def test_a_group_shows_where_two_long_values_that_it_shares_differ() -> None:
    text = "word " * 100
    lines = []
    for number in range(1, 9):
        lines.append(line(number, {"note": f"{text}ten"}, {"note": f"{text}three"}))
    (row,) = one_group(lines).rows
    assert row.now is not None
    assert row.now.text.endswith('ten"')
    assert row.proposed.text.endswith('three"')
    assert "fingerprint" in row.proposed.rest


def test_a_field_that_a_group_removes_or_adds_has_one_value() -> None:
    removed = one_group([line(number, {"a": 1}, {}) for number in range(1, 9)])
    assert removed.rows[0].now is not None
    assert removed.rows[0].now.text == "1"
    assert removed.rows[0].proposed.text == "not there"
    added = one_group([line(number, {}, {"a": 1}) for number in range(1, 9)])
    assert added.fresh
    assert added.rows[0].proposed.text == "1"


def test_what_a_value_states_besides_its_change_is_shown_too() -> None:
    value = {"before": {"a": "1"}, "after": {"a": "2"}, "row": 7}
    changed, others = changed_fields(
        None, [value], adds=True, stated=("before", "after")
    )
    assert changed == {"a": ("1", "2")}
    assert [(key, new) for key, (_, new) in others.items()] == [("row", 7)]


def test_writes_that_nobody_may_decide_are_in_no_group() -> None:
    lines = [merged(number) for number in range(1, 9)]
    lines[0].may = False
    assert [one.number for one in one_group(lines).lines] == [2, 3, 4, 5, 6, 7, 8]


def test_an_amount_far_above_the_others_stands_apart() -> None:
    lines = [merged(number, amount="10.00") for number in range(1, 9)]
    (group,), apart = grouped([*lines, merged(9, amount="101.00")])
    assert group.count == 8
    assert [one.number for one in apart] == [9]


def test_the_samples_are_the_first_the_last_and_the_one_farthest_from_the_rest() -> (
    None
):
    lines = [merged(number, amount="10.00") for number in range(1, 9)]
    lines[4].amount = Decimal("90.00")
    assert [sample.number for sample in one_group(lines).samples] == [1, 5, 8]


def test_a_group_may_be_approved_once_each_sample_was_opened() -> None:
    group = one_group([merged(number) for number in range(1, 9)])
    group.seen = {sample.write for sample in group.samples[:2]}
    assert group.to_open == 1
    assert group.may_approve is False
    group.seen.add(group.samples[2].write)
    assert group.to_open == 0
    assert group.may_approve is True


def test_the_seal_of_a_group_changes_with_any_of_its_writes() -> None:
    lines = [merged(number) for number in range(1, 9)]
    seal = one_group(lines).seal
    assert one_group(lines).seal == seal
    lines[3].row.hash = "f" * 64
    assert one_group(lines).seal != seal


def test_a_group_is_chosen_once_each_of_its_writes_has_a_draft() -> None:
    group = one_group([merged(number) for number in range(1, 9)])
    for line in group.lines[1:]:
        line.chosen = "approve"
    choose_by_drafts(group)
    assert group.chosen == ""
    group.lines[0].chosen = "reject"
    choose_by_drafts(group)
    assert group.chosen == "approve"
    assert group.own == 1


def test_more_groups_than_a_page_shows_stand_apart() -> None:
    lines = [
        line(kind * 10 + number, {}, {f"field{kind}": number})
        for kind in range(20)
        for number in range(4)
    ]
    groups, apart = grouped(lines)
    assert len(groups) == 12
    assert len(apart) == 32


@pytest.mark.parametrize(
    "money",
    [
        "1E+1000000",
        "1E+999999",
        "-1E+999999",
        "1E-999999",
        "1E+99999999999999999999999999",
        "9" * 5000,
        "NaN",
        "sNaN",
        "Infinity",
        "a lot",
        {"amount": "1"},
        None,
    ],
)
def test_what_cannot_be_counted_with_is_no_amount(money: Any) -> None:
    assert amount_of(money) is None


def test_money_is_an_amount() -> None:
    assert amount_of("-12.50") == Decimal("-12.50")
    assert amount_of(0) == 0
    assert amount_of("1E+3") == 1000


def test_writes_with_different_forms_are_in_different_groups() -> None:
    lines = [merged(number) for number in range(1, 21)]
    for line in lines[10:]:
        line.form = "digest"
    groups, apart = grouped(lines)
    assert [len(group.lines) for group in groups] == [10, 10]
    assert apart == []
