"""Which standing policies were put back as they were before, as the audit log says."""

from typing import Any

import pytest
from django.db import connection, transaction

from approvals import reviews
from approvals.models import StandingPolicy
from approvals.policies_in_force import (
    USED,
    take_uses,
    those_brought_back,
    usable_at,
)
from checkpoints.audit import lines as audit_log
from tests.support import cast, run_actions
from tests.support.read_costs import cost_of
from tests.support.standing_policies import policy_of, waiting

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def made(people: cast.People) -> StandingPolicy:
    rita: Any = run_actions.reviewer(people.reviewer)
    return policy_of(waiting(), rita, most_uses=10_000)


def read_before(made: StandingPolicy) -> StandingPolicy:
    return StandingPolicy.objects.get(id=made.id)


def test_what_is_used_while_it_is_read_was_not_put_back(made: StandingPolicy) -> None:
    before = read_before(made)
    with transaction.atomic():
        take_uses({made.id: 1}, run=made.id)
    assert those_brought_back([before]) == []
    assert [row.id for row in usable_at(made.graph, made.gate)] == [made.id]
    # The whole row of before, with its seal.
    before.save(force_update=True)
    assert those_brought_back([read_before(made)]) == [made]
    assert usable_at(made.graph, made.gate) == []


def test_what_is_revoked_while_it_is_read_was_not_put_back(
    made: StandingPolicy,
) -> None:
    before = read_before(made)
    reviews.revoke_standing_policy(made.id, by=made.by)
    assert those_brought_back([before]) == []
    before.save(force_update=True)
    assert those_brought_back([read_before(made)]) == [made]


def test_looking_for_what_was_put_back_reads_no_more_after_many_uses(
    made: StandingPolicy,
) -> None:
    def looked(uses: int) -> dict[str, int]:
        for number in range(made.uses + 1, uses + 1):
            audit_log.record(
                USED, actor=None, graph=made.graph, policy=str(made.id), uses=number
            )
        made.uses = uses
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        assert those_brought_back([made]) == []
        return cost_of(lambda: those_brought_back([made])).reads

    few = looked(500)
    many = looked(2_000)
    for figure, read in many.items():
        assert read <= few[figure] + 20, figure
