"""Probes: /healthz says that this web process answers, /readyz that it can serve, /readyz/workers that runs are worked
on. Open to everybody; they tell no names.
"""

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
    """Return 200 where this process can serve: its database answers, with its migrations; else 503.

    A balancer that took the console away while no worker lives would hide what people need then. `worker` and
    `oldest_due_seconds` only tell.
    """
    facts = _facts()
    return _answer(facts, ready=facts["database"] and facts["migrations"])


@require_safe
def workers_readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 where a live worker takes runs, else 503; for whoever is to be called when none does."""
    facts = _facts()
    return _answer(facts, ready=facts["worker"])


def _facts() -> dict[str, Any]:
    try:
        return {
            "database": True,
            "migrations": migrated(),
            "worker": workers.any_alive(),
            "oldest_due_seconds": oldest_due_seconds(),
        }
    except Error:
        return {"database": False, "migrations": False, "worker": False, "oldest_due_seconds": None}


def _answer(facts: dict[str, Any], *, ready: bool) -> JsonResponse:
    status = 200 if ready else 503
    return JsonResponse({"status": "ready" if ready else "not ready", **facts}, status=status)


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
