"""Bodies about approvals, as the API reads them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rest_framework.serializers import ValidationError

from orchestrator.api.approvals_json import AskBody, DeadlineField, OutcomesBody

QUESTION = {
    "title": "Pay?",
    "items": [{"id": "a", "value": 1}],
    "reviewers": ["user:rita"],
}


def errors(body: dict[str, Any], serializer: Any = AskBody) -> set[str]:
    """Return the fields of a body that are refused."""
    read = serializer(data=body)
    return set() if read.is_valid() else set(read.errors)


def test_a_deadline_is_a_moment_or_seconds() -> None:
    field = DeadlineField()
    assert field.to_internal_value(60) == timedelta(minutes=1)
    noon = datetime(2026, 11, 24, 12, tzinfo=UTC)
    assert field.to_internal_value("2026-11-24T12:00:00Z") == noon


@pytest.mark.parametrize(
    "value", [True, 1.5, None, "soon", "2026-11-24T12:00:00", "2026-13-01", 10**30]
)
def test_anything_else_is_no_deadline(value: Any) -> None:
    with pytest.raises(ValidationError):
        DeadlineField().to_internal_value(value)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"title": 7, "colour": "red"}, "colour"),
        ({"items": []}, "items"),
        ({"reports": "perhaps"}, "reports"),
        ({"callback": {"address": "https://hooks.example.org"}}, "callback"),
        ({"quorum": 0}, "quorum"),
    ],
)
def test_a_question_that_is_wrong_is_refused_by_its_field(
    change: dict[str, Any], field: str
) -> None:
    assert errors(QUESTION) == set()
    assert field in errors(QUESTION | change)


def test_an_outcome_has_a_result_that_exists() -> None:
    done = {"item": "a", "hash": "1f", "result": "done"}
    assert errors({"outcomes": [done]}, OutcomesBody) == set()
    for wrong in ({"result": "perhaps"}, {"hash": None}):
        assert errors({"outcomes": [done | wrong]}, OutcomesBody) == {"outcomes"}
