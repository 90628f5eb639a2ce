"""The standing job that removes what has expired: sessions, tokens, challenges that no
passkey answered, log-ins that confirmed an act, and the stored answers of requests, after
the time for which their idempotency keys count.
"""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.db.models import Q, QuerySet

from approvals import passkey_challenges
from approvals.models import FreshLogin, PasskeyChallenge
from approvals.people import fresh_logins
from checkpoints.db.clock import db_in
from checkpoints.queue.jobs import JobLease, Step
from orchestrator.models import ApiToken, IdempotencyRecord

DAY = 86_400
ANSWERS_KEPT_DAYS = 7
TOKENS_KEPT_DAYS = 30
"""Days after tokens expired or were revoked, so that people see that they were."""
BATCH = 1000
"""The most rows that one statement removes."""


def access_that_ended(lease: JobLease) -> Iterator[Step]:
    """Remove answered requests after a week, tokens a month after they ended, log-ins
    that confirm an act after a day, sessions and challenges when they end; in batches.
    The job's place is the number of rows removed so far.
    """
    removed = int(lease.place or 0)
    note = "answers, tokens and sessions removed"
    for rows in _old_rows():
        while ids := list(rows.values_list("pk", flat=True)[:BATCH]):
            rows.model._default_manager.filter(pk__in=ids).delete()
            removed += len(ids)
            yield Step(removed, removed, note, place=removed)


def _old_rows() -> "Iterator[QuerySet[Any]]":
    """Yield the rows of each table that are to be removed."""
    week_ago = db_in(-ANSWERS_KEPT_DAYS * DAY)
    yield IdempotencyRecord.objects.filter(created_at__lt=week_ago)

    month_ago = db_in(-TOKENS_KEPT_DAYS * DAY)
    has_ended = Q(expires_at__lt=month_ago) | Q(revoked_at__lt=month_ago)
    yield ApiToken.objects.filter(has_ended)

    lifetime = passkey_challenges.LIFETIME.total_seconds()
    minutes_ago = db_in(-lifetime)
    yield PasskeyChallenge.objects.filter(created_at__lt=minutes_ago)

    seconds = fresh_logins.KEPT.total_seconds()
    day_ago = db_in(-seconds)
    yield FreshLogin.objects.filter(created_at__lt=day_ago)

    # A project may keep its sessions elsewhere.
    if apps.is_installed("django.contrib.sessions"):
        sessions = apps.get_model("sessions", "Session").objects
        yield sessions.filter(expire_date__lt=db_in(0))
