"""The standing job that takes away what let people and programs in, and lets nobody in any more: sessions and tokens
that ended; and answers to requests that nobody may send again under their key.
"""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.db.models import Q

from checkpoints.db.clock import db_in
from checkpoints.queue.jobs import JobLease, Step
from orchestrator.models import ApiToken, IdempotencyRecord

DAY = 86_400
ANSWERS_KEPT_DAYS = 7
TOKENS_KEPT_DAYS = 30
"""After they expired or were revoked, so that people see that they were."""
BATCH = 1000


def access_that_ended(lease: JobLease) -> Iterator[Step]:
    """Remove answered requests after a week, tokens a month after they ended, sessions when they end; in batches. Its
    place: how many rows are gone.
    """
    removed = int(lease.place or 0)
    for rows in _over():
        while ids := list(rows.values_list("pk", flat=True)[:BATCH]):
            rows.model._default_manager.filter(pk__in=ids).delete()
            removed += len(ids)
            yield Step(removed, removed, "answers, tokens and sessions removed", place=removed)


def _over() -> Iterator[Any]:
    yield IdempotencyRecord.objects.filter(created_at__lt=db_in(-ANSWERS_KEPT_DAYS * DAY))
    ended = db_in(-TOKENS_KEPT_DAYS * DAY)
    yield ApiToken.objects.filter(Q(expires_at__lt=ended) | Q(revoked_at__lt=ended))
    if apps.is_installed("django.contrib.sessions"):
        yield apps.get_model("sessions", "Session").objects.filter(expire_date__lt=db_in(0))
