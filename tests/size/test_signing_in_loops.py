"""A signature late in a long loop reads no more than one of the first round, and a draft
no more beside many others.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from approvals.drafts import DraftChoice, save_drafts
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
    for figure, value in many.reads.items():
        assert value <= few.reads[figure] * MOST_GROWTH + SLACK[figure], figure


def read_by(act: Callable[[], Any]) -> int:
    """The rows that it reads, triggers included; on SQLite the steps."""
    if connection.vendor == "sqlite":
        return cost_of(act).steps
    with transaction.atomic():
        before = _rows_read()
        act()
        return _rows_read() - before


def _rows_read() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint "
            "FROM pg_stat_xact_user_tables"
        )
        return int(cursor.fetchone()[0] or 0)


def test_a_draft_is_saved_and_removed_alike_beside_many(people: cast.People) -> None:
    rita = run_actions.reviewer(people.reviewer)
    reads = []
    for rounds in (0, FEW, MANY):
        run = after_rounds(rounds)
        [row] = run_actions.pending(run)
        choice = DraftChoice(str(row.write), row.revision, row.hash, "approve", "", {})
        others = [replace(choice, write=str(uuid7())) for _ in range(rounds)]
        assert save_drafts(rita, run, others, number=1)
        forget_statistics()
        removed = replace(choice, verdict="")
        saving = partial(save_drafts, rita, run, [choice], number=2)
        removing = partial(save_drafts, rita, run, [removed], number=3)
        reads.append((read_by(saving), read_by(removing)))
    _, few, many = reads
    for before, after in zip(few, many, strict=True):
        assert 0 < after <= before * MOST_GROWTH + SLACK["steps"]
