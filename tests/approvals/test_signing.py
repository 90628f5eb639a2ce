"""What a signature is bound to, and that nobody changes a decision afterwards."""

import pytest

from approvals import reviews
from approvals.models import Decision
from checkpoints.core.status import Status
from checkpoints.models import PendingWrite, Run
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator import runs
from orchestrator.engine.errors import InvalidValue, TamperedRow, WrongStatus
from tests.support import cast, run_actions
from tests.support.decisions import paused_run
from tests.support.run_actions import pending, request, sign

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_write_that_was_changed_behind_its_hash_cannot_be_signed(people: cast.People) -> None:
    run, rita = paused_run(), run_actions.reviewer(people.reviewer)
    PendingWrite.objects.filter(run=run).update(value=pack_json("forged"))
    with pytest.raises(TamperedRow):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()


def test_a_request_that_is_marked_as_settled_without_the_decisions_for_it_applies_nothing(people: cast.People) -> None:
    run = paused_run()
    asked = request(run)
    asked.status, asked.outcome = "settled", "approved"
    asked.save()
    Run.objects.filter(id=run.id).update(status=Status.QUEUED)
    run = runs.advance(run.id)
    assert run.status == Status.TAMPERED
    assert run_actions.state(run)["letter"] == ""


def test_a_rejection_without_the_reason_that_is_asked_for_is_refused(people: cast.People) -> None:
    run, rita = paused_run(), run_actions.reviewer(people.reviewer)
    item = {"write": str(pending(run)[0].write), "hash": pending(run)[0].hash, "verdict": "reject"}
    for reason in ("", "  "):
        with pytest.raises(InvalidValue, match="reason"):
            reviews.sign(run.id, [{**item, "reason": reason}], by=rita)
    assert not Decision.objects.exists()
    reviews.sign(run.id, [{**item, "reason": "not ours"}], by=rita)
    assert runs.advance(run.id).status == Status.REJECTED


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.CANCELLED, Status.TAMPERED, Status.INCOMPATIBLE])
def test_nothing_is_decided_in_a_run_that_is_over_or_refused(status: str, people: cast.People) -> None:
    run, rita = paused_run(), run_actions.reviewer(people.reviewer)
    Run.objects.filter(id=run.id).update(status=status)
    with pytest.raises(WrongStatus):
        sign(run, rita, ["approve"])
    assert not Decision.objects.exists()
