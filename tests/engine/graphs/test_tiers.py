"""What a gate says of tiers."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.engine import Gate
from orchestrator.engine.graphs.tiers import (
    are_tiers,
    escalated,
    escalation_policy,
    faults_of_tiers,
    next_tier_at,
    tiers_by,
    tiers_in,
    tiers_in_words,
    tiers_policy,
)

HOUR = timedelta(hours=1)
LEADS = "group:leads"


def test_a_policy_says_nothing_of_tiers_where_its_gate_has_none() -> None:
    assert tiers_policy(Gate()) == {}
    assert tiers_in({}) == []


def test_a_policy_has_them_in_the_order_in_which_they_act_each_name_once() -> None:
    gate = Gate(
        tiers=[(2 * HOUR, "escalate", [LEADS, LEADS]), (HOUR, "remind", None)],
        deadline=3 * HOUR,
    )
    assert list(faults_of_tiers(gate)) == []
    assert tiers_policy(gate)["tiers"] == [
        {"after": 3600, "act": "remind", "to": None},
        {"after": 7200, "act": "escalate", "to": [LEADS]},
    ]


@pytest.mark.parametrize(
    ("tiers", "fault"),
    [
        ("escalate", "is no list"),
        ([(HOUR, "remind")], "has not three parts"),
        (["abc"], "has not three parts"),
        ([(timedelta(0), "remind", None)], "longer than 0"),
        ([(-HOUR, "remind", None)], "longer than 0"),
        ([(timedelta(days=36_601), "remind", None)], "at most a hundred years"),
        ([(timedelta(milliseconds=1500), "remind", None)], "whole seconds"),
        ([(3600, "remind", None)], "whole seconds"),
        ([(4 * HOUR, "remind", None)], "not before the deadline"),
        ([(5 * HOUR, "remind", None)], "not before the deadline"),
        ([(HOUR, "approve", LEADS)], "none of remind, escalate"),
        ([(HOUR, "escalate", None)], "names nobody"),
        ([(HOUR, "escalate", [])], "names nobody"),
        ([(HOUR, "remind", "")], "neither user:"),
        ([(HOUR, "escalate", ["leads"])], "neither user:"),
        ([(HOUR, "escalate", ["group:"])], "neither user:"),
        ([(HOUR, "escalate", 7)], "neither user:"),
        ([(HOUR, "escalate", "user:" + "x" * 200)], "neither user:"),
    ],
)
def test_what_no_tier_can_be_is_a_fault_of_the_graph(tiers: Any, fault: str) -> None:
    [words] = faults_of_tiers(Gate(tiers=tiers, deadline=4 * HOUR))
    assert fault in words


def test_the_fingerprint_has_whom_they_ask_too_and_nothing_of_reminders() -> None:
    assert escalation_policy(Gate(tiers=[(HOUR, "remind", LEADS)])) == {}
    gate = Gate(tiers=[(HOUR, "escalate", "user:b"), (HOUR, "escalate", "user:a")])
    assert escalation_policy(gate) == {"escalates": ["user:a", "user:b"]}
    assert escalated(tiers_in(tiers_policy(gate))) == ["user:b", "user:a"]


def test_a_tier_that_is_not_before_the_deadline_never_acts() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    policy = tiers_policy(
        Gate(tiers=[(HOUR, "remind", None), (2 * HOUR, "remind", None)])
    )
    assert next_tier_at(policy, 0, now, None) == now + HOUR
    assert next_tier_at(policy, 1, now, None) == now + 2 * HOUR
    assert next_tier_at(policy, 2, now, None) is None
    assert next_tier_at(policy, 1, now, now + 2 * HOUR) is None


def test_they_read_as_what_they_do() -> None:
    gate = Gate(tiers=[(HOUR, "remind", None), (2 * HOUR, "escalate", [LEADS])])
    assert tiers_in_words(tiers_policy(gate)) == [
        "after 1 hour reminds those who may decide",
        "after 2 hours asks members of leads too",
    ]


@pytest.mark.parametrize(
    "value",
    [
        None,
        "remind",
        ["remind"],
        [{}],
        [{"after": 0, "act": "remind", "to": None}],
        [{"after": True, "act": "remind", "to": None}],
        [{"after": 10**12, "act": "remind", "to": None}],
        [{"after": 60, "act": "approve", "to": None}],
        [{"after": 60, "act": "escalate", "to": None}],
        [{"after": 60, "act": "escalate", "to": []}],
        [{"after": 60, "act": "escalate", "to": "user:a"}],
        [{"after": 60, "act": "escalate", "to": ["a"]}],
    ],
)
def test_what_another_installation_sends_as_tiers_has_their_form(value: Any) -> None:
    assert not are_tiers(value)


def test_what_a_policy_has_is_their_form_and_leads_back_to_the_gate() -> None:
    declared = [(HOUR, "remind", None), (2 * HOUR, "escalate", [LEADS])]
    policy = tiers_policy(Gate(tiers=declared))
    assert are_tiers(policy["tiers"])
    assert tiers_by(policy) == declared
