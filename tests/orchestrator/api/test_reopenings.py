"""The endpoint that re-opens a request."""

import pytest

from approvals.models import ApprovalRequest, Sighting
from checkpoints.models import Run
from orchestrator.engine import registry
from tests.support import run_actions
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.deadlines import gated, paused_run
from tests.support.reopening import reopen_between_reads

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run() -> Run:
    waiting = paused_run(deadline=None)
    registry.replace(gated("with-deadline", deadline=None, quorum=2))
    return waiting


def address(run: Run) -> str:
    request = ApprovalRequest.objects.get(run=run, status="open")
    return f"requests/{request.id}/reopen/"


def test_a_steward_reads_the_changes_and_re_opens_it(people: People, run: Run) -> None:
    stella = Client(people.steward)
    old = address(run)
    changes = stella.get(old).json()
    assert changes == {"changes": ["signatures needed: 1 became 2"]}
    answer = stella.post(address(run), {"reason": "stricter now"})
    assert answer.status_code == 201, answer.json()
    assert answer.json()["quorum"] == 2
    closed = stella.get(old)
    assert (closed.status_code, closed.json()["code"]) == (409, "wrong_status")
    again = stella.post(address(run), {"reason": "once more"})
    assert (again.status_code, again.json()["code"]) == (409, "wrong_status")


def test_others_may_not_and_who_sees_nothing_finds_nothing(
    people: People, run: Run
) -> None:
    rita = Client(run_actions.reviewer(people.reviewer))
    assert rita.post(address(run), {"reason": "x"}).status_code == 403
    nobody = Client(people.nobody)
    assert nobody.get(address(run)).status_code == 404
    assert nobody.post(address(run), {"reason": "x"}).status_code == 404


def test_a_request_that_is_re_opened_while_it_is_read_is_not_tampered(
    monkeypatch: pytest.MonkeyPatch, people: People, run: Run
) -> None:
    rita = Client(run_actions.reviewer(people.reviewer))
    request = ApprovalRequest.objects.get(run=run, status="open")
    reopen_between_reads(monkeypatch, run, by=people.steward)
    answer = rita.get(f"requests/{request.id}/")
    assert answer.status_code == 200, answer.json()
    # They have not seen what the other one asks.
    assert not Sighting.objects.exists()
