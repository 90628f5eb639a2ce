"""Which decisions a person must confirm, and which gates ask for less of it."""

from decimal import Decimal
from typing import Any

import pytest

from orchestrator.engine import Gate, Show
from orchestrator.engine.graphs.confirmation import (
    confirmation_needed,
    confirmation_policy,
    is_weaker,
    satisfies,
    strongest,
)

MONEY = {"note": Show(money="amount")}
LIMITED = Gate(confirm="password", confirm_above=Decimal("5000.00"), writes=MONEY)


def test_a_gate_without_confirmation_says_nothing_of_it() -> None:
    assert confirmation_policy(Gate()) == {}
    assert confirmation_needed({}, "note", [{"amount": "9999999"}]) == ""


def test_a_gate_without_a_limit_asks_for_every_decision() -> None:
    policy = confirmation_policy(Gate(confirm="passkey"))
    assert policy == {"confirm": "passkey"}
    assert confirmation_needed(policy, "note", [{"amount": "0"}]) == "passkey"


@pytest.mark.parametrize("amount", ["5000", 5000, "4999.99", 0, "-5000"])
def test_nothing_is_asked_up_to_the_limit(amount: Any) -> None:
    policy = confirmation_policy(LIMITED)
    assert confirmation_needed(policy, "note", [{"amount": amount}]) == ""


@pytest.mark.parametrize(
    "amount", ["5000.01", 5001, "-5000.01", "6e3", None, "five", True, {"amount": 1}]
)
def test_above_the_limit_and_where_it_cannot_be_read_it_is_asked(amount: Any) -> None:
    policy = confirmation_policy(LIMITED)
    assert confirmation_needed(policy, "note", [{"amount": amount}]) == "password"
    # An edit has two amounts: what was seen, and what it makes of it.
    two = [{"amount": "1"}, {"amount": amount}]
    assert confirmation_needed(policy, "note", two) == "password"


@pytest.mark.parametrize("value", [None, "10", {"sum": "10"}, []])
def test_a_write_in_which_no_amount_is_where_the_gate_says_is_asked(value: Any) -> None:
    policy = confirmation_policy(LIMITED)
    assert confirmation_needed(policy, "note", [value]) == "password"
    assert confirmation_needed(policy, "log", [{"amount": "10"}]) == "password"


def test_the_same_limit_has_one_form() -> None:
    same = Gate(confirm="password", confirm_above=5000, writes=MONEY)
    assert confirmation_policy(same) == confirmation_policy(LIMITED)
    assert confirmation_policy(same)["confirm_above"] == "5000"


def test_a_passkey_does_for_a_password_and_not_the_other_way_round() -> None:
    assert satisfies("passkey", "password")
    assert satisfies("", "")
    assert not satisfies("password", "passkey")
    assert not satisfies("", "password")
    # A newer version may know more than these.
    assert not satisfies("passkey", "retina")
    assert strongest(["password", "passkey", "password"]) == "passkey"
    assert strongest([]) == ""


@pytest.mark.parametrize(
    ("after", "weaker"),
    [
        (Gate(), True),
        (Gate(confirm="password"), False),
        (Gate(confirm="passkey"), False),
        (Gate(confirm="password", confirm_above=4000, writes=MONEY), False),
        (Gate(confirm="password", confirm_above=6000, writes=MONEY), True),
        (
            Gate(
                confirm="password",
                confirm_above=5000,
                writes={"note": Show(money="small")},
            ),
            True,
        ),
    ],
)
def test_a_gate_that_asks_for_less_is_weaker(after: Gate, weaker: bool) -> None:
    before = confirmation_policy(LIMITED)
    assert is_weaker(before, confirmation_policy(after)) is weaker


def test_a_limit_where_there_was_none_is_weaker() -> None:
    before = confirmation_policy(Gate(confirm="password"))
    assert is_weaker(before, confirmation_policy(LIMITED))
    assert not is_weaker({}, confirmation_policy(LIMITED))
