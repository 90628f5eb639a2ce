"""What a gate asks people to look at before they decide, and which gates ask for less."""

from datetime import timedelta
from typing import Any

import pytest

from orchestrator.engine import Gate
from orchestrator.engine.graphs.consideration import (
    asks_for_less,
    consideration_in_words,
    consideration_policy,
    considered_by,
    faults_of_consideration,
    is_consideration,
)

TEN = Gate(considered=timedelta(seconds=10))
OPENED = Gate(considered="opened")


def test_a_gate_without_it_says_nothing_of_it() -> None:
    assert consideration_policy(Gate()) == {}
    assert consideration_in_words({}) == ""
    assert list(faults_of_consideration(Gate())) == []


@pytest.mark.parametrize("gate", [Gate(), TEN, OPENED])
def test_a_policy_leads_back_to_the_option(gate: Gate) -> None:
    assert considered_by(consideration_policy(gate)) == gate.considered
    assert list(faults_of_consideration(gate)) == []


def test_it_is_kept_in_seconds_and_said_in_words() -> None:
    assert consideration_policy(TEN) == {"considered": 10}
    assert consideration_in_words({"considered": 10}) == "10 seconds each"
    assert consideration_in_words({"considered": 1}) == "1 second each"
    assert consideration_in_words(consideration_policy(OPENED)) == "all of it opened"


@pytest.mark.parametrize(
    ("considered", "fault"),
    [
        (10, "considered=10 is neither a time nor 'opened'"),
        (True, "considered=True is neither"),
        ("seen", "considered='seen' is neither a time nor 'opened'"),
        (timedelta(0), "considered= is a time from a second to a day"),
        (timedelta(seconds=-5), "considered= is a time from a second to a day"),
        (timedelta(days=2), "considered= is a time from a second to a day"),
        (timedelta(seconds=1.5), "considered= is in whole seconds"),
    ],
)
def test_what_no_gate_can_ask_for_is_named(considered: Any, fault: str) -> None:
    (said,) = faults_of_consideration(Gate(considered=considered))
    assert said.startswith(fault)


@pytest.mark.parametrize(
    ("before", "after", "less"),
    [
        (Gate(), TEN, False),
        (TEN, TEN, False),
        (TEN, Gate(considered=timedelta(seconds=11)), False),
        (TEN, Gate(considered=timedelta(seconds=9)), True),
        (TEN, Gate(), True),
        (OPENED, Gate(), True),
        # Nobody can say which of them is more.
        (OPENED, TEN, True),
        (TEN, OPENED, True),
    ],
)
def test_a_gate_that_asks_for_less_is_weaker(
    before: Gate, after: Gate, less: bool
) -> None:
    policies = (consideration_policy(before), consideration_policy(after))
    assert asks_for_less(*policies) is less


@pytest.mark.parametrize(
    ("value", "is_one"),
    [
        (1, True),
        (86_400, True),
        ("opened", True),
        (0, False),
        (True, False),
        ("", False),
    ],
)
def test_a_policy_that_comes_in_has_its_form(value: Any, is_one: bool) -> None:
    assert is_consideration(value) is is_one
