"""The state of requests is read in several queries, between which one may be closed."""

import pytest

from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import registry
from orchestrator.engine.errors import TamperedRow
from tests.support.cast import People
from tests.support.deadlines import gated, paused_run
from tests.support.reopening import reopen_between_reads

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_request_that_is_re_opened_between_the_queries_has_its_new_status(
    monkeypatch: pytest.MonkeyPatch, people: People
) -> None:
    run = paused_run(deadline=None)
    registry.replace(gated("with-deadline", deadline=None, quorum=2))
    asked = ApprovalRequest.objects.get(run=run)
    reopen_between_reads(monkeypatch, run, by=people.steward)
    [state] = load_states([asked], protection_of(run))
    assert (state.was_closed, state.request.status) == (True, "withdrawn")
    # Put back, it would decide under its own rules about what others ask.
    ApprovalRequest.objects.filter(id=asked.id).update(status="open")
    asked.refresh_from_db()
    with pytest.raises(TamperedRow, match="another policy"):
        load_states([asked], protection_of(run))
