"""What a signature is bound to, and that nobody changes a decision afterwards."""

from typing import Any

import pytest

from approvals import reviews
from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator import runs
from orchestrator.engine import END, START, Gate, Show
from orchestrator.engine.errors import InvalidValue, TamperedRow, WrongStatus
from tests.support import cast, run_actions
from tests.support.run_actions import pending, request, sign
from tests.support.small_graphs import advanced, graph

pytestmark = pytest.mark.django_db(transaction=True)


def _paused() -> Run:
    made = graph("signed")
    gate = Gate(reviewers=["group:claims"], writes={"letter": Show(reason_required=True)})

    @made.node(effect="human", gate=gate)
    def propose(state: Any, ctx: Any) -> dict[str, Any]:
        return {"letter": "proposed"}

    made.edge(START, "propose")
    made.edge("propose", END)
    return advanced(made)


def test_a_write_that_was_changed_behind_its_hash_cannot_be_signed(people: cast.People) -> None:
    run, rita = _paused(), run_actions.reviewer(people.reviewer)
    PendingWrite.objects.filter(run=run).update(value=pack_json("forged"))
    with pytest.raises(TamperedRow):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()


def test_a_request_that_is_marked_as_settled_without_the_decisions_for_it_applies_nothing(people: cast.People) -> None:
    run = _paused()
    asked = request(run)
    asked.status, asked.outcome = "settled", "approved"
    asked.save()
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run_actions.state(run)["letter"] == ""


def test_a_rejection_without_the_reason_that_is_asked_for_is_refused(people: cast.People) -> None:
    run, rita = _paused(), run_actions.reviewer(people.reviewer)
    item = {"write": str(pending(run)[0].write), "hash": pending(run)[0].hash, "verdict": "reject"}
    for reason in ("", "  "):
        with pytest.raises(InvalidValue, match="reason"):
            reviews.sign(run.id, [{**item, "reason": reason}], by=rita)
    assert not Decision.objects.exists()
    reviews.sign(run.id, [{**item, "reason": "not ours"}], by=rita)
    assert runs.advance(run.id).status == Status.REJECTED


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED, Status.TAMPERED, Status.INCOMPATIBLE])
def test_nothing_is_decided_in_a_run_that_is_over_or_refused(status: str, people: cast.People) -> None:
    run, rita = _paused(), run_actions.reviewer(people.reviewer)
    Run.objects.filter(id=run.id).update(status=status)
    with pytest.raises(WrongStatus):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()
