"""A signature late in a long loop reads no more than one of the first round."""

from copy import copy
from functools import partial

import pytest

from approvals.models import ApprovalRequest, RequestStatus
from checkpoints.core.ids import uuid7
from checkpoints.models import Run
from tests.support import cast, run_actions
from tests.support.doors import ask_only
from tests.support.question_graphs import asking
from tests.support.read_costs import cost_of
from tests.support.read_growth import MOST_GROWTH, SLACK, forget_statistics
from tests.support.small_graphs import advanced

pytestmark = pytest.mark.django_db(transaction=True)
FEW = 20
MANY = 2_000


def after_rounds(rounds: int) -> Run:
    """A run that waits at a gate which has asked so often before."""
    run = advanced(asking(fn=ask_only))
    waiting = ApprovalRequest.objects.get(run=run)
    earlier = []
    for number in range(rounds):
        row = copy(waiting)
        row.id = uuid7()
        row.visit = waiting.visit + 1 + number
        row.status = RequestStatus.APPLIED
        earlier.append(row)
    ApprovalRequest.objects.bulk_create(earlier)
    forget_statistics()
    return run


def test_a_signature_late_in_a_loop_reads_no_more(people: cast.People) -> None:
    rita = run_actions.reviewer(people.reviewer)
    costs = []
    # The first of them also compiles the queries that a process keeps.
    for rounds in (0, FEW, MANY):
        run = after_rounds(rounds)
        costs.append(cost_of(partial(run_actions.sign, run, rita, [("edit", 7)])))
    _, few, many = costs
    print(few, many)
    for figure, value in many.reads.items():
        assert value <= few.reads[figure] * MOST_GROWTH + SLACK[figure], figure
