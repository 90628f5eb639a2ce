"""A gate that permits standing policies: what may stand beside that, and what is within
the limits of one.
"""

from datetime import timedelta
from typing import Any

import pytest

from orchestrator.engine import Gate
from orchestrator.engine.graphs.standing_policy import (
    faults_of_standing,
    reason_against,
    signs_by_itself,
    standing_policy,
)


@pytest.mark.parametrize(
    "options",
    [
        {"standing": "yes"},
        {"standing": True, "auto": lambda state, proposal: True},
        {"standing": True, "four_eyes": True},
        {"standing": True, "confirm": "password"},
        {"standing": True, "considered": "opened"},
        {"standing": True, "considered": timedelta(seconds=5)},
        {"standing": True, "exclusive": True},
    ],
)
def test_what_would_go_round_a_person_is_refused(options: dict[str, Any]) -> None:
    assert len(list(faults_of_standing(Gate(**options)))) == 1


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"four_eyes": True},
        {"standing": True},
        {"standing": True, "four_eyes": True, "quorum": 2},
        {"standing": True, "confirm": "password", "confirm_above": 500},
        {"standing": True, "veto": lambda state, proposal: False},
    ],
)
def test_what_leaves_people_their_part_is_permitted(options: dict[str, Any]) -> None:
    assert list(faults_of_standing(Gate(**options))) == []


def test_a_gate_without_it_is_hashed_as_before() -> None:
    assert standing_policy(Gate()) == {}
    assert standing_policy(Gate(standing=True)) == {"standing": True}
    assert not signs_by_itself({"quorum": 1})
    assert signs_by_itself({"standing": True})
    assert signs_by_itself({"auto": "small"})


@pytest.mark.parametrize(
    ("limits", "value"),
    [
        ({}, {"amount": 9}),
        ({"amount": "10"}, {"amount": 10}),
        ({"amount": "10.50"}, {"amount": "10.5"}),
        ({"payment.amount": "10", "fee": "1"}, {"payment": {"amount": 0}, "fee": 0.5}),
        ({"0.amount": "10"}, [{"amount": 3}]),
        ({"value": "10"}, 7),
        ({"value": "10"}, {"value": 7}),
    ],
)
def test_numbers_from_0_to_the_limit_are_within_it(
    limits: dict[str, str], value: Any
) -> None:
    assert reason_against({"payment": limits}, "payment", value) == ""


@pytest.mark.parametrize(
    "value",
    [
        {"amount": 10.01},
        {"amount": "11"},
        {"amount": -1},
        {"amount": True},
        {"amount": None},
        {"amount": "10 EUR"},
        {"amount": "NaN"},
        {"amount": [1]},
        {"amount": {"amount": 1}},
        {"Amount": 1},
        {},
        [],
        None,
        1,
        "1",
    ],
)
def test_all_else_is_not(value: Any) -> None:
    assert reason_against({"payment": {"amount": "10"}}, "payment", value)


def test_each_limit_holds() -> None:
    limits = {"amount": "10", "fee": "1"}
    assert (
        reason_against({"fees": limits}, "fees", {"amount": 5})
        == "there is no number at fee"
    )
    assert (
        reason_against({"fees": limits}, "fees", {"amount": 5, "fee": 2})
        == "fee is more than 1"
    )


def test_a_channel_has_its_own_limits_and_one_without_an_entry_is_left_to_people() -> (
    None
):
    limits = {"payment": {"amount": "10"}, "fee": {"amount": "1"}, "note": {}}
    assert reason_against(limits, "payment", {"amount": 10}) == ""
    assert reason_against(limits, "fee", {"amount": 10}) == "amount is more than 1"
    assert reason_against(limits, "note", "anything") == ""
    assert reason_against(limits, "letter", {"amount": 0})
