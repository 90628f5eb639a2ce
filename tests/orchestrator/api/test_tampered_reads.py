"""What the API gives is verified as it is read: lists mark a tampered row and go on, a
state of one is refused.
"""

from typing import Any

import pytest

from approvals.models import ApprovalRequest, Decision
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, Run, RunEvent, TaskResult
from orchestrator import runs
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.forging import tamper

EVERY_PART = ["", "state/", "diff/"]


def _at(run: Run, seq: int) -> Checkpoint:
    return Checkpoint.objects.get(run=run.id, seq=seq)


def _faults(answer: Any) -> list[tuple[str, str]]:
    """The marked rows of a list, and what each is said to be."""
    assert answer.status_code == 200
    faults = [result["fault"] for result in answer.json()["results"]]
    return [(fault["code"], fault["row"]) for fault in faults if fault]


@pytest.fixture
def beside(people: People) -> Run:
    """Another run, from which rows can be moved."""
    run_input = {"claim_id": "CLM-9", "amount": 9}
    return runs.advance(
        runs.start("gated", run_input, key="CLM-9", by=people.starter).id
    )


@pytest.fixture
def signed(rita: Client, paused: Run) -> Run:
    """The run when all that it asked is approved."""
    (request,) = rita.get("requests/", waiting="me").json()["results"]
    writes = rita.get(f"requests/{request['id']}/").json()["writes"]
    body = {
        "decisions": [
            {"write": write["id"], "hash": write["hash"], "verdict": "approve"}
            for write in writes
        ]
    }
    assert rita.post(f"requests/{request['id']}/decisions/", body).status_code == 200
    return runs.advance(paused.id)


def test_untouched_rows_carry_no_mark(olive: Client, signed: Run) -> None:
    for part in ("checkpoints", "events", "decisions"):
        assert _faults(olive.get(f"runs/CLM-1/{part}/")) == []
    assert _faults(olive.get("requests/")) == []


@pytest.mark.parametrize("part", EVERY_PART)
def test_a_change_moved_from_another_run_is_refused_and_named(
    olive: Client, paused: Run, beside: Run, part: str
) -> None:
    row = _at(paused, 1)
    tamper(row, change=_at(beside, 1).change, snapshot=_at(beside, 1).snapshot)
    answer = olive.get(f"checkpoints/CLM-1:at-1/{part}")
    assert answer.status_code == 409
    assert answer.json()["code"] == "tampered_row"
    assert answer.json()["row"] == f"checkpoints_checkpoint {paused.id} {row.id}"
    assert olive.get(f"checkpoints/CLM-1:initial/{part}").status_code == 200


def test_an_input_that_is_not_what_the_run_was_started_with_is_refused(
    olive: Client, paused: Run, beside: Run
) -> None:
    tamper(paused, input=beside.input)
    for part in ("checkpoints/CLM-1:at-1/", "checkpoints/CLM-1:at-1/state/"):
        answer = olive.get(part)
        assert answer.status_code == 409
        assert answer.json()["row"] == f"checkpoints_run {paused.id}"


def test_a_checkpoint_whose_row_was_changed_is_marked_in_the_list(
    olive: Client, paused: Run
) -> None:
    row = _at(paused, 1)
    tamper(row, nodes=[{**row.nodes[0], "node": "forged"}])
    answer = olive.get("runs/CLM-1/checkpoints/")
    assert _faults(answer) == [
        ("tampered_row", f"checkpoints_checkpoint {paused.id} {row.id}")
    ]
    assert len(answer.json()["results"]) == 3


def test_a_forged_line_of_the_log_is_marked(olive: Client, paused: Run) -> None:
    row = RunEvent.objects.filter(run=paused.id).order_by("seq")[1]
    tamper(row, type="run_completed")
    assert _faults(olive.get("runs/CLM-1/events/")) == [
        ("tampered_row", f"checkpoints_runevent {paused.id} {row.seq}")
    ]


def test_a_flipped_verdict_is_marked(olive: Client, signed: Run) -> None:
    row = Decision.objects.filter(run=signed.id).order_by("event_seq")[1]
    tamper(row, verdict="reject")
    marked = [("tampered_row", f"approvals_decision {signed.id} {row.id}")]
    assert _faults(olive.get("runs/CLM-1/decisions/")) == marked
    then = olive.get(f"checkpoints/{signed.head}/").json()["approvals"]
    assert [one["fault"]["row"] for one in then if one["fault"]] == [marked[0][1]]


def test_a_request_with_another_question_is_marked(olive: Client, paused: Run) -> None:
    row = ApprovalRequest.objects.get(run=paused.id)
    tamper(row, quorum=7)
    name = f"approvals_approvalrequest {paused.id} {row.id}"
    assert _faults(olive.get("requests/")) == [("tampered_row", name)]
    assert [
        place["fault"]["row"] for place in olive.get("runs/CLM-1/").json()["paused"]
    ] == [name]
    assert olive.get(f"requests/{row.id}/").status_code == 409


def test_a_held_write_with_another_value_is_marked(
    olive: Client, rita: Client, paused: Run
) -> None:
    row = PendingWrite.objects.filter(run=paused.id).order_by("position")[1]
    tamper(row, channel="payout")
    held = olive.get("checkpoints/CLM-1:step-2/").json()["pending_writes"]
    assert [one["fault"] and one["fault"]["code"] for one in held] == [
        None,
        "tampered_row",
        None,
    ]
    assert pending_writes.base_of(row).value is not None
    assert (
        rita.get(
            f"requests/{ApprovalRequest.objects.get(run=paused.id).id}/"
        ).status_code
        == 409
    )


def test_a_recorded_result_with_another_outcome_is_marked(
    olive: Client, people: People
) -> None:
    run = runs.advance(
        runs.start("paying", {"claim_id": "CLM-2"}, key="CLM-2", by=people.starter).id
    )
    row = TaskResult.objects.get(run=run.id)
    tamper(row, took_ms=row.took_ms + 1)
    (result,) = olive.get(f"checkpoints/{run.head}/").json()["node_results"]
    assert result["fault"]["row"] == f"checkpoints_taskresult {run.id} 1 pay 1 0 1"


@pytest.mark.parametrize("column", ["label", "facts", "input_hash"])
def test_a_run_with_another_label_or_facts_than_it_was_started_with_is_marked(
    olive: Client, paused: Run, column: str
) -> None:
    assert olive.get("runs/CLM-1/").json()["fault"] is None
    tamper(
        paused,
        **{
            column: {
                "label": "Approved",
                "facts": {"amount": "1.00"},
                "input_hash": "0" * 64,
            }[column]
        },
    )
    fault = olive.get("runs/CLM-1/").json()["fault"]
    assert fault["code"] == "tampered_row"
    assert fault["row"] == f"checkpoints_run {paused.id}"
