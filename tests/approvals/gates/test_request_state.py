"""Where requests stand: read in as many statements whatever their number, and refused
where a row of them is missing.
"""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.gates.request_state import load_states
from approvals.models import ApprovalRequest
from checkpoints.models import Run
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import registry
from orchestrator.engine.errors import TamperedRow
from tests.support import cast, deadlines, run_actions
from tests.support.call_graphs import paying_many
from tests.support.confirmed_graphs import gated
from tests.support.forging import remove
from tests.support.reopening import reopen_between_reads
from tests.support.run_actions import request
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def requests_of(run: Run) -> list[ApprovalRequest]:
    return list(ApprovalRequest.objects.filter(run=run).order_by("id"))


def test_a_state_has_what_was_signed_and_where_that_leads(rita: User) -> None:
    run = advanced(gated(many=2, quorum=2))
    run_actions.sign(run, rita, ["approve", None])
    [state] = load_states(requests_of(run), protection_of(run))
    signed, other = state.writes
    assert state.standings[signed.write].by == (rita.pk,)
    assert not state.standings[signed.write].settled
    assert state.standings[other.write].by == ()
    assert state.outcome is None


def test_many_requests_are_read_in_as_many_statements_as_one() -> None:
    run = advanced(paying_many(payees=[f"payee{number}" for number in range(6)]))
    requests = requests_of(run)
    assert len(requests) == 6
    counts = []
    for number in (1, 6):
        protection = protection_of(run)
        with CaptureQueriesContext(connection) as captured:
            assert len(load_states(requests[:number], protection)) == number
        counts.append(len(captured))
    assert counts == [2, 2]


def test_a_request_without_one_of_its_writes_is_refused() -> None:
    run = advanced(gated(many=2))
    remove(run_actions.pending(run)[1])
    with pytest.raises(TamperedRow, match="2 writes, and 1 are there"):
        load_states([request(run)], protection_of(run))


def test_a_request_that_is_re_opened_between_the_queries_has_its_new_status(
    monkeypatch: pytest.MonkeyPatch, people: cast.People
) -> None:
    run = deadlines.paused_run(deadline=None)
    registry.replace(deadlines.gated("with-deadline", deadline=None, quorum=2))
    approval_request = ApprovalRequest.objects.get(run=run)
    reopen_between_reads(monkeypatch, run, by=people.steward)
    [state] = load_states([approval_request], protection_of(run))
    assert (state.was_closed, state.request.status) == (True, "withdrawn")
    # Put back, it would decide under its own rules about what others ask.
    ApprovalRequest.objects.filter(id=approval_request.id).update(status="open")
    approval_request.refresh_from_db()
    with pytest.raises(TamperedRow, match="another policy"):
        load_states([approval_request], protection_of(run))
