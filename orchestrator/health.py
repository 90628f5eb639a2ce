"""Probes: /healthz says that this process answers, /readyz that it can work. Open to everybody; they tell no names."""

from functools import cache
from typing import Any

from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Min
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from checkpoints.core.status import Status
from checkpoints.models import Run
from checkpoints.queue import workers


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Always 200: no database is asked."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 where database, migrations and a live worker are there, else 503 naming what is not."""
    try:
        checks: dict[str, Any] = {"database": True, "migrations": migrated(), "worker": workers.any_alive()}
        waits = oldest_due_seconds()
    except Error:
        checks, waits = {"database": False, "migrations": False, "worker": False}, None
    ready = all(checks.values())
    answer = {"status": "ready" if ready else "not ready", **checks, "oldest_due_seconds": waits}
    return JsonResponse(answer, status=200 if ready else 503)


def migrated() -> bool:
    """Whether no migration waits. Once found, not asked again: nobody undoes migrations under a running process."""
    if not _migrated():
        _migrated.cache_clear()
        return False
    return True


@cache
def _migrated() -> bool:
    executor = MigrationExecutor(connection)
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())


def oldest_due_seconds() -> float | None:
    """For how long the run that waits longest for a worker has been due; None where none is."""
    now = timezone.now()
    due = Run.objects.filter(status__in=[Status.QUEUED, Status.WAITING], due_at__lte=now)
    oldest = due.aggregate(oldest=Min("due_at"))["oldest"]
    return round((now - oldest).total_seconds(), 3) if oldest else None
