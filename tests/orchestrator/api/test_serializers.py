"""Bodies and queries of the API: what they do not know is an error at its field."""

from typing import Any

import pytest
from rest_framework.exceptions import ValidationError

from approvals.api.base import read_body
from approvals.api.serializers import DecisionsBody
from orchestrator.api.serializers import EventsQuery, RunsQuery, StartBody
from orchestrator.api.verbs import body_of
from orchestrator.runs import verb_table

CancelBody = body_of(verb_table.CANCEL)
SettleBody = body_of(verb_table.SETTLE)


@pytest.mark.parametrize(
    "body", [StartBody, CancelBody, SettleBody, RunsQuery, EventsQuery, DecisionsBody]
)
def test_a_field_that_is_not_known_is_refused_by_its_name(body: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        read_body(body, {"surprise": 1})
    assert "surprise" in refused.value.detail


@pytest.mark.parametrize(
    ("body", "content", "at"),
    [
        (StartBody, {"input": {}}, "graph"),
        (StartBody, {"graph": "", "input": {}}, "graph"),
        (StartBody, {"graph": "claims", "input": {}, "priority": "soon"}, "priority"),
        (SettleBody, {"happened": "perhaps", "task": "pay:1:0"}, "happened"),
        (RunsQuery, {"status": "sleeping"}, "status"),
        (EventsQuery, {"after": "-1"}, "after"),
        (EventsQuery, {"page_size": "0"}, "page_size"),
        (DecisionsBody, {"decisions": [{"verdict": "approve"}]}, "decisions"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_its_field(
    body: Any, content: dict[str, Any], at: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        read_body(body, content)
    assert at in refused.value.detail


def test_what_fits_is_given_back_as_values() -> None:
    content = read_body(
        StartBody, {"graph": "claims", "input": {"a": 1}, "key": "K-1", "priority": 5}
    )
    assert content["graph"] == "claims"
    assert content["input"] == {"a": 1}
    assert content["key"] == "K-1"
    assert content["priority"] == 5
    assert sorted(read_body(RunsQuery, {"status": "failed,unknown"})["status"]) == [
        "failed",
        "unknown",
    ]
