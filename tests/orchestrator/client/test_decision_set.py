"""Sets of decisions: what they refuse where it is named, and what the API takes of
them.
"""

import subprocess
import sys
from typing import Any
from uuid import uuid4

import pytest

from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import Run
from orchestrator import runs
from orchestrator.client import DecisionSet
from orchestrator.engine.errors import (
    AlreadyDecided,
    InvalidValue,
    NotAReviewer,
    UnknownThing,
)
from tests.support.api_people import (
    Client,
    api_graphs_are_registered,  # noqa: F401
    paused,  # noqa: F401
    rita,  # noqa: F401
)


@pytest.fixture
def request_json(
    rita: Client,  # noqa: F811
    paused: Run,  # noqa: F811
) -> dict[str, Any]:
    """Return what the API shows of the request that waits for Rita."""
    (line,) = rita.get("requests/", waiting="me").json()["results"]
    shown: dict[str, Any] = rita.get(f"requests/{line['id']}/").json()
    return shown


def ids(request: dict[str, Any]) -> list[str]:
    return [write["id"] for write in request["writes"]]


def test_the_api_takes_what_was_decided_write_by_write(
    rita: Client,  # noqa: F811
    paused: Run,  # noqa: F811
    request_json: dict[str, Any],
) -> None:
    payout, letter, notes = ids(request_json)
    decisions = DecisionSet(request_json)
    assert decisions.undecided == [payout, letter, notes]
    decisions.edit(payout, {"amount": 30}, reason="too much")
    decisions.approve(notes).reject(letter, reason="wrong tone")
    assert decisions.undecided == []
    answer = rita.post(f"requests/{request_json['id']}/decisions/", decisions.body)
    assert answer.status_code == 200, answer.json()
    assert [line["result"] for line in answer.json()["lines"]] == ["counted"] * 3
    verdicts = Decision.objects.filter(run=paused.id).order_by("position")
    assert [row.verdict for row in verdicts] == ["edit", "reject", "approve"]
    assert runs.advance(paused.id).status == Status.COMPLETED


def test_a_write_that_the_request_has_not_is_refused_by_name(
    request_json: dict[str, Any],
) -> None:
    payout, *_ = ids(request_json)
    decisions = DecisionSet(request_json)
    stranger = uuid4()
    with pytest.raises(UnknownThing, match=str(stranger)) as refusal:
        decisions.approve(payout, stranger)
    assert payout in refusal.value.message
    # Nothing of the refused call is kept.
    assert payout in decisions.undecided


def test_a_write_that_is_settled_is_refused_with_who_settled_it(
    request_json: dict[str, Any],
) -> None:
    payout, *_ = request_json["writes"]
    payout["settled"] = "approved"
    payout["verdicts"] = [{"by": "ravi", "verdict": "approve"}]
    decisions = DecisionSet(request_json)
    with pytest.raises(AlreadyDecided, match="approved already") as refusal:
        decisions.reject(payout["id"])
    assert refusal.value.facts["by"] == ["ravi"]
    assert payout["id"] not in decisions.undecided


def test_a_write_that_one_may_not_decide_is_refused_with_the_reason(
    request_json: dict[str, Any],
) -> None:
    payout, *_ = request_json["writes"]
    payout["why_not"] = "you edited it"
    with pytest.raises(NotAReviewer, match="you edited it"):
        DecisionSet(request_json).approve(payout["id"])


def test_the_last_verdict_counts_and_can_be_taken_back(
    request_json: dict[str, Any],
) -> None:
    payout, letter, _ = ids(request_json)
    decisions = DecisionSet(request_json).approve(payout, letter).reject(payout)
    assert [line["verdict"] for line in decisions.decisions] == ["approve", "reject"]
    decisions.without(payout)
    assert [line["write"] for line in decisions.decisions] == [letter]


def test_a_rejection_that_needs_a_reason_is_refused_without(
    request_json: dict[str, Any],
) -> None:
    payout, *_ = request_json["writes"]
    payout["shown"] = {"reason_required": True}
    decisions = DecisionSet(request_json)
    with pytest.raises(InvalidValue, match="needs a reason"):
        decisions.reject(payout["id"], reason=" ")
    decisions.reject(payout["id"], reason="wrong account")


def test_an_edit_may_set_null(request_json: dict[str, Any]) -> None:
    payout, *_ = ids(request_json)
    (decision,) = DecisionSet(request_json).edit(payout, None).decisions
    assert decision["value"] is None


def test_an_empty_set_is_not_sent(request_json: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="nothing was decided"):
        DecisionSet(request_json).body  # noqa: B018


def test_a_service_without_django_can_use_it() -> None:
    code = (
        "import sys, orchestrator.client\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'django']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
