"""A gate whose deadline lets the run fail: beside what else goes on in the run, and what
the failed run keeps.
"""

from typing import Any

import pytest

from approvals import deadlines
from approvals.models import ApprovalRequest
from checkpoints.models import Run
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, Gate
from tests.support import cast, run_actions
from tests.support.deadlines import HOUR, gated, let_come, paused_run
from tests.support.run_actions import event_payloads, pending, sign, state
from tests.support.small_graphs import advanced, graph
from tests.support.versioned_graphs import deployed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(people: cast.People) -> Run:
    """A run at two gates; the deadline of the first lets it fail."""
    made = graph("beside-a-deadline")

    def proposing(name: str, gate: Gate) -> None:
        @made.node(name, effect="human", gate=gate)
        def propose(state: Any, ctx: Any) -> dict[str, Any]:
            return {"notes": [name]}

        made.edge(START, name)
        made.edge(name, END)

    group = ["group:claims"]
    proposing("hurried", Gate(reviewers=group, deadline=HOUR, on_deadline="fail"))
    proposing("patient", Gate(reviewers=group))
    return advanced(made)


def test_what_people_decide_elsewhere_in_the_failed_run_is_kept(
    run: Run, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    let_come(run)
    run = runs.advance(run.id)
    assert (run.status, run.error_code) == ("failed", "deadline_passed")
    [failed] = event_payloads(run, "run_failed")
    assert "the gate of hurried before its deadline" in failed["message"]

    mine = ["approve" if row.node == "patient" else None for row in pending(run)]
    sign(run, rita, mine)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    assert run.status == "paused"
    assert state(run)["notes"] == ["patient"]
    asked = ApprovalRequest.objects.filter(run=run, status="open")
    assert [(row.node, row.ordinal) for row in asked] == [("hurried", 1)]
    assert verify_run(run.id) == []


def test_a_deadline_that_comes_in_a_failed_run_is_asked_about_at_its_resume(
    run: Run, people: cast.People
) -> None:
    Run.objects.filter(id=run.id).update(status="failed")
    let_come(run)
    asked = ApprovalRequest.objects.get(run=run, node="hurried")
    assert deadlines.meet_deadline(run.id, asked.id)
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    # It has failed once, and does not fail for the same deadline again.
    assert run.status == "paused"
    assert ApprovalRequest.objects.filter(run=run, node="hurried").count() == 2


def test_a_request_that_only_claims_to_have_expired_leaves_the_run_tampered(
    run: Run, people: cast.People
) -> None:
    rita = run_actions.reviewer(people.reviewer)
    mine = ["reject" if row.node == "hurried" else None for row in pending(run)]
    sign(run, rita, mine)
    forged = ApprovalRequest.objects.filter(run=run, node="hurried")
    # A rejection would vanish, and the same writes be asked about anew.
    forged.update(status="expired", outcome="again")
    Run.objects.filter(id=run.id).update(status="queued")
    run = runs.advance(run.id)
    assert run.status == "tampered"
    assert forged.count() == 1


def test_a_gate_that_a_deployment_made_easier_asks_anew_by_its_old_rules(
    people: cast.People,
) -> None:
    run = paused_run("easier", on_deadline="fail", quorum=2, four_eyes=True)
    let_come(run)
    run = runs.advance(run.id)
    assert run.error_code == "deadline_passed"
    deployed(gated("easier", on_deadline="fail", quorum=1))
    runs.resume(run.id, by=people.steward)
    run = runs.advance(run.id)
    asked = ApprovalRequest.objects.get(run=run, status="open")
    assert (asked.policy["quorum"], asked.policy["four_eyes"]) == (2, True)
    assert asked.quorum == 2
    assert verify_run(run.id) == []
