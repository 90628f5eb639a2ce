"""The effects of requests in the inbox, where rows and graph do not fit each other."""

import pytest

from approvals.models import ApprovalRequest
from approvals.views import inbox_effects
from checkpoints.models import PendingWrite
from tests.support import claims
from tests.support.cast import People
from tests.support.forging import rewrite

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_amount_that_this_version_of_the_graph_does_not_declare_has_no_currency(
    people: People,
) -> None:
    with claims.registered(claims.in_two_steps()):
        claims.paused("CLM-1", people.starter, graph="two_steps")
        rewrite(PendingWrite.objects.get(channel="payout"), channel="count")
        request = ApprovalRequest.objects.select_related("run").get()
        effects = inbox_effects.effects_of([request])[request.id]
    sums = [effect.sums for effect in effects if effect.sums]
    assert [list(by_currency) for by_currency in sums] == [[""]]
