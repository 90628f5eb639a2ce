"""Erasing a run whose node was called once people approved."""

import pytest
from django.contrib.auth.models import User

from checkpoints import retention
from checkpoints.core.status import Status
from checkpoints.verification import verify_run
from orchestrator import runs
from tests.support import erasures, run_actions
from tests.support.authority_graphs import leave, paying, payments, signed
from tests.support.call_graphs import calls, paying_many
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)

MARK = b"Ada-Lovelace-the-payee"


@pytest.mark.parametrize("verdict", ["approve", "reject", ""])
def test_nothing_of_what_a_call_was_made_with_is_left(verdict: str) -> None:
    ada = run_actions.reviewer(User.objects.create_superuser("ada"))
    with calls():
        run = advanced(paying_many(payees=[MARK.decode(), "bob"]))
        assert MARK in erasures.everything()
        if verdict:
            run_actions.sign_open(run, ada, verdict)
            run = runs.advance(run.id)
        else:
            run = runs.cancel(run.id, by=ada, reason="over")
        assert run.status in (Status.COMPLETED, Status.CANCELLED)
        retention.erase(run.id, by=ada)
    assert MARK not in erasures.everything()
    assert verify_run(run.id) == []


@pytest.mark.parametrize("verdict", ["approve", "reject", ""])
def test_nothing_of_what_people_were_asked_again_is_left(verdict: str) -> None:
    ada = run_actions.reviewer(User.objects.create_superuser("ada"))
    bob = run_actions.reviewer(User.objects.create_user("bob"))
    flow = paying(propose=lambda state, ctx: {"letter": MARK.decode()})
    with payments():
        run = signed(flow, bob)
        leave(bob)
        run = runs.advance(run.id)
        if verdict:
            run_actions.sign_open(run, ada, verdict)
            run = runs.advance(run.id)
        else:
            run = runs.cancel(run.id, by=ada, reason="over")
        assert run.status in (Status.COMPLETED, Status.CANCELLED)
        assert MARK in erasures.everything()
        retention.erase(run.id, by=ada)
    assert MARK not in erasures.everything()
    assert verify_run(run.id) == []
