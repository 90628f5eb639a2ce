"""Cancelling, priorities and due times over the API."""

from datetime import timedelta

import pytest
from django.utils import timezone

from checkpoints.models import Run
from checkpoints.queue import leases
from orchestrator import runs
from orchestrator.worker import claimable
from tests.support.api_people import Client
from tests.support.cast import People


def test_a_run_is_cancelled_and_what_it_asks_is_withdrawn(
    olive: Client, rita: Client, paused: Run
) -> None:
    (request,) = rita.get("requests/", waiting="me").json()["results"]
    writes = rita.get(f"requests/{request['id']}/").json()["writes"]
    answer = olive.post("runs/CLM-1/cancel/", {"reason": "withdrawn by the customer"})
    assert answer.status_code == 200
    assert answer.json()["status"] == "cancelled"
    assert answer.json()["paused"] == []
    assert rita.get("requests/", waiting="me").json()["results"] == []
    body = {
        "decisions": [
            {"write": writes[0]["id"], "hash": writes[0]["hash"], "verdict": "approve"}
        ]
    }
    refused = rita.post(f"requests/{request['id']}/decisions/", body)
    assert refused.status_code == 409
    assert refused.json()["code"] == "wrong_status"
    assert refused.json()["by"] == ["olive"]
    lines = olive.get("runs/CLM-1/events/").json()["results"]
    reasons = [
        line["payload"]["reason"]
        for line in lines
        if line["type"] == "cancel_requested"
    ]
    assert reasons == ["withdrawn by the customer"]


def test_cancelling_twice_is_calm_and_cancelling_what_ended_is_a_conflict(
    olive: Client, paused: Run
) -> None:
    assert [olive.post("runs/CLM-1/cancel/").status_code for _ in range(2)] == [
        200,
        200,
    ]
    Run.objects.filter(id=paused.id).update(status="completed", cancel_at=None)
    answer = olive.post("runs/CLM-1/cancel/")
    assert answer.status_code == 409
    assert answer.json()["code"] == "wrong_status"


def test_cancelling_needs_the_right_to_steer_and_a_run_that_one_may_see(
    rita: Client, people: People, paused: Run
) -> None:
    assert rita.post("runs/CLM-1/cancel/").json()["right"] == "steer_run"
    assert Client(people.nobody).post("runs/CLM-1/cancel/").status_code == 404
    assert (
        Client(people.starter, scopes=["read"]).post("runs/CLM-1/cancel/").status_code
        == 403
    )
    assert Run.objects.get(id=paused.id).status == "paused"


@pytest.mark.parametrize("reason", [5 * ["x"], "x" * 10_001])
def test_a_reason_is_a_text_of_limited_length(
    olive: Client, paused: Run, reason: object
) -> None:
    assert (
        olive.post("runs/CLM-1/cancel/", {"reason": reason}).json()["code"]
        == "invalid_body"
    )


def started(olive: Client, number: int, **fields: object) -> Run:
    answer = olive.post(
        "runs/", {"graph": "gated", "input": {"claim_id": str(number)}, **fields}
    )
    assert answer.status_code == 201, answer.json()
    return Run.objects.get(id=answer.json()["id"])


def test_runs_of_a_higher_priority_are_claimed_first(olive: Client) -> None:
    low, usual, high = (started(olive, n, priority=p) for n, p in enumerate((-1, 0, 7)))
    claimed = [
        leases.claim(worker=None, limit=1, only=claimable.claimable())[0].id
        for _ in range(3)
    ]
    assert claimed == [high.id, usual.id, low.id]


def test_a_run_that_is_due_later_is_not_claimed_before(olive: Client) -> None:
    later = (timezone.now() + timedelta(hours=1)).isoformat()
    run = started(olive, 1, due_at=later)
    assert run.due_at > timezone.now() + timedelta(minutes=59)
    assert not leases.any_run_due(claimable.claimable())
    assert runs.advance(run.id).status == "queued"


@pytest.mark.parametrize(
    "fields",
    [
        {"priority": 1001},
        {"priority": "high"},
        {"due_at": "soon"},
        {"priority": None},
        {"due_in": 5},
    ],
)
def test_a_priority_or_time_that_no_queue_can_hold_is_refused(
    olive: Client, fields: dict[str, object]
) -> None:
    answer = olive.post(
        "runs/", {"graph": "gated", "input": {"claim_id": "1"}, **fields}
    )
    assert answer.status_code in (400, 422)
    assert not Run.objects.exists()
