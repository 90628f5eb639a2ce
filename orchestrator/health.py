"""Probes: /healthz answers while this web process lives, /readyz if it can serve,
/readyz/workers if runs are worked on. Open to everybody; they reveal no names.
"""

from functools import cache
from typing import Any

from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals import list_columns
from checkpoints.queue import due_counts, workers


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 without a query, so that it holds while the database is down."""
    return JsonResponse({"status": "ok"})


@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if this process can serve: its database answers, with its migrations;
    else 503.

    A balancer that took the console away while no worker lives would hide what people
    need then, so `worker` and `oldest_due_seconds` are only reported.
    """
    facts = _facts()
    return _answer(facts, ready=facts["database"] and facts["migrations"])


@require_safe
def workers_readyz(request: HttpRequest) -> JsonResponse:
    """Return 200 if a live worker takes runs, else 503: for an alarm when none does."""
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
        # A probe answers whatever is down; nothing is known without the database.
        return {
            "database": False,
            "migrations": False,
            "worker": False,
            "oldest_due_seconds": None,
        }


def _answer(facts: dict[str, Any], *, ready: bool) -> JsonResponse:
    if ready:
        return JsonResponse({"status": "ready", **facts}, status=200)
    return JsonResponse({"status": "not ready", **facts}, status=503)


def migrated() -> bool:
    """Return whether all migrations are applied. Once true, it is not checked again:
    nobody undoes migrations under a running process.
    """
    # Only "yes" is cached: a "no" has to be found out again.
    if not _migrated():
        _migrated.cache_clear()
        return False
    return True


@cache
def _migrated() -> bool:
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        return False
    # Without them, inboxes and lists lack rows.
    return not list_columns.missing_triggers()


def oldest_due_seconds() -> float | None:
    """Return for how long the run that waits longest for a worker has been due; None if
    none is.
    """
    oldest = due_counts.oldest_due()
    if not oldest:
        return None
    seconds: float = (timezone.now() - oldest).total_seconds()
    return round(seconds, 3)
