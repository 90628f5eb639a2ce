"""What signs by itself meets a person, a revocation and its own last use. Many trials; one
outcome each.
"""

import random
import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from approvals import reviews
from approvals.answers.windows import KIND
from approvals.models import Decision, StandingPolicy
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Job, Run, TaskResult
from orchestrator import runs
from orchestrator.engine.errors import AlreadyDecided, WrongStatus
from orchestrator.jobs.kinds import advance
from tests.races.meeting import TRIALS, meet, whole, work
from tests.support import cast, run_actions
from tests.support.deadlines import gated
from tests.support.forging import rewrite
from tests.support.run_actions import pending, sign
from tests.support.small_graphs import advanced, registered, slice_of
from tests.support.standing_policies import permitting, policy_of, uses, waiting

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


@pytest.fixture
def rita(people: cast.People) -> User:
    return run_actions.reviewer(people.reviewer)


def _at_the_end_of_its_window() -> Run:
    """A run whose window has ended, and whose job is due."""
    flow = gated(
        "racing-window",
        deadline=None,
        auto=lambda state, proposal: True,
        auto_after=HOUR,
    )
    run = advanced(flow)
    past = timezone.now() - 2 * HOUR
    for row in pending(run):
        rewrite(row, staged_at=past)
    Job.objects.filter(run=run.id, kind=KIND).update(due_at=past)
    return run


def test_the_first_of_a_concurrent_window_end_and_rejection_decides(
    rita: User,
) -> None:
    chance = random.Random(21)
    for _ in range(TRIALS):
        run = _at_the_end_of_its_window()
        job = Job.objects.get(run=run.id, kind=KIND)

        def reject(run: Run = run) -> str:
            try:
                sign(run, rita, ["reject", "reject"])
            except (AlreadyDecided, WrongStatus):
                return "late"
            return "signed"

        def end(run: Run = run, job: Job = job) -> None:
            advance(job.id)
            work(run)

        answer, _ = meet(chance, reject, end)
        run = runs.advance(run.id)
        is_rejected = answer == "signed"
        assert run.status == (Status.REJECTED if is_rejected else Status.COMPLETED)
        decided = Decision.objects.filter(run=run.id).exclude(verdict="no_auto")
        assert decided.count() == 2, "each write was decided once"
        whole(run)


def test_a_policy_is_revoked_either_before_or_after_it_signs(rita: User) -> None:
    first = waiting()
    chance = random.Random(22)
    for _ in range(TRIALS):
        policy = policy_of(first, rita)
        run = runs.start(registered(permitting()).name, {})
        _, revoked = meet(
            chance,
            lambda run=run: work(run),
            lambda row=policy: reviews.revoke_standing_policy(row.id, by=rita),
        )
        assert isinstance(revoked, StandingPolicy)
        signed = Decision.objects.filter(run=run.id, verdict="approve").count()
        assert uses([policy]) == [signed]
        # Both lines are written under the lock of the policy's row.
        lines = AuditLine.objects.filter(facts__policy=str(policy.id)).order_by("id")
        kinds = list(lines.values_list("kind", flat=True))
        assert kinds[-1] == "standing_policy_revoked", "it was used after that"
        whole(run)


def test_two_runs_at_once_never_use_it_more_often_than_it_says(rita: User) -> None:
    first = waiting()
    chance = random.Random(23)
    for _ in range(TRIALS):
        policy = policy_of(first, rita, most_uses=1)
        name = registered(permitting()).name
        pair = [runs.start(name, {}), runs.start(name, {})]
        meet(chance, lambda run=pair[0]: work(run), lambda run=pair[1]: work(run))
        ids = [run.id for run in pair]
        signed = Decision.objects.filter(run__in=ids, verdict="approve")
        assert (signed.count(), uses([policy])) == (1, [1])
        for run in pair:
            whole(run)
        reviews.revoke_standing_policy(policy.id, by=rita)


def test_nothing_begins_on_a_policy_that_was_revoked_before_its_intent(
    rita: User,
) -> None:
    first = waiting()
    chance = random.Random(24)
    for _ in range(TRIALS):
        paid: list[Any] = []
        checked: list[float] = []

        def recheck(state: Any, proposal: Any, checked: list[float] = checked) -> bool:
            # The intent is not committed before this moment.
            time.sleep(chance.random() * 0.01)
            checked.append(time.monotonic())
            return True

        policy = policy_of(first, rita)
        flow = registered(permitting(paid=paid, recheck=recheck))
        run = runs.start(flow.name, {})
        turns = iter([False, False, False])
        run = slice_of(run, draining=lambda left=turns: next(left, True))

        def revoked(row: StandingPolicy = policy) -> float:
            time.sleep(chance.random() * 0.15)
            reviews.revoke_standing_policy(row.id, by=rita)
            return time.monotonic()

        _, moment = meet(chance, lambda run=run: work(run), revoked)
        if paid:
            assert moment > checked[-1], "it was revoked, and the payment began"
        assert TaskResult.objects.filter(run=run, node="pay").count() == len(paid)
        whole(run)
