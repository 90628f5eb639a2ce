"""What a checkpoint says as of then: results and approvals on the way to it, through
older lines and origins, and none that came later or were left behind.
"""

import pytest

from checkpoints import timeline
from checkpoints.models import Checkpoint
from orchestrator import runs
from tests.support import cast, run_actions
from tests.support.api_people import Client
from tests.support.paid_claims import paid


@pytest.mark.django_db(transaction=True)
def test_results_and_approvals_as_of_then_are_those_on_the_way(
    people: cast.People, olive: Client
) -> None:
    run = paid("as_of_then", people)
    fork = runs.fork(f"{run.key}:at-3", by=people.starter)
    run = runs.rewind(
        run.id, f"{run.key}:at-1", allow_effects=["pay"], by=people.starter
    )
    run = runs.advance(run.id)
    run_actions.sign_open(run, people.reviewer, "approve")
    run = runs.advance(run.id)
    newest = Checkpoint.objects.filter(run=run).order_by("-seq")[0]
    assert [(row.line, row.node) for row in timeline.results_at(newest)] == [(2, "pay")]
    first = timeline.get_checkpoint(f"{run.key}:at-4")
    assert [(row.line, row.node) for row in timeline.results_at(first)] == [(1, "pay")]
    counts = {
        seq: len(olive.get(f"checkpoints/{run.key}:at-{seq}/").json()["approvals"])
        for seq in (1, 4, 5, newest.seq)
    }
    assert counts == {1: 0, 4: 1, 5: 0, newest.seq: 1}
    assert len(olive.get(f"checkpoints/{fork.key}:initial/").json()["approvals"]) == 1
