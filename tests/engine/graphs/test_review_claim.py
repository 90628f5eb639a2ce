"""What a gate says of claims."""

from datetime import timedelta
from typing import Any

import pytest

from orchestrator.engine import Gate
from orchestrator.engine.graphs.review_claim import (
    claim_policy,
    claim_time,
    faults_of_claims,
)

DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, {}),
        ({"exclusive": True}, {"exclusive": True, "claim_seconds": 3600}),
        ({"claim_for": timedelta(minutes=5)}, {"claim_seconds": 300}),
        (
            {"exclusive": True, "claim_for": timedelta(seconds=1)},
            {"exclusive": True, "claim_seconds": 1},
        ),
    ],
)
def test_a_policy_says_of_claims_only_what_its_gate_says(
    options: dict[str, Any], policy: dict[str, Any]
) -> None:
    assert claim_policy(Gate(**options)) == policy
    assert list(faults_of_claims(Gate(**options))) == []


@pytest.mark.parametrize(
    "options",
    [
        {"exclusive": "yes"},
        {"claim_for": 60},
        {"claim_for": timedelta(0)},
        {"claim_for": timedelta(days=8)},
        {"exclusive": True, "deadline": DAY, "on_deadline": "approve"},
    ],
)
def test_what_no_claim_can_be_is_a_fault_of_the_graph(options: dict[str, Any]) -> None:
    assert len(list(faults_of_claims(Gate(**options)))) == 1


def test_a_claim_without_a_time_has_no_end() -> None:
    assert claim_time({}) is None
    assert claim_time({"claim_seconds": 60}) == timedelta(minutes=1)
