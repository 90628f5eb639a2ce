"""Runs that several pages show: one with an outcome that nobody knows, and a fork."""

from django.utils import timezone

from checkpoints.models import Run, TaskResult
from orchestrator import runs
from tests.support import claims, forks
from tests.support.cast import People


def lost_run(people: People) -> Run:
    """A run whose payment may or may not have been made."""
    run = claims.paused("CLM-3", people.starter)
    now = timezone.now()
    TaskResult.objects.create(
        run=run,
        line=1,
        node="pay",
        visit=1,
        attempt=1,
        effect="external",
        epoch=1,
        superstep=3,
        intent_at=now,
        over_at=now,
        outcome="unknown",
    )
    Run.objects.filter(id=run.id).update(status="unknown", error_code="outcome_unknown")
    return run


def forked_run(run: Run, people: People) -> Run:
    """A fork with another note, decided and done."""
    fork = runs.advance(
        forks.forked(run, 1, {"scratch": {"notes": ["patched"]}}, by=people.starter).id
    )
    claims.decide_all(fork, by=people.reviewer)
    return runs.advance(fork.id)
