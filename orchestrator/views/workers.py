"""Who is alive and what waits: the page to look at when a run does not move."""

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import Count, F, Min, Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals.views.page import needs_role, render
from checkpoints.conf import conf, keyring
from checkpoints.core.status import Status
from checkpoints.models import Job, Run, Worker
from checkpoints.models.job import LIVE
from checkpoints.versions import later_versions, newest_versions
from orchestrator.engine import registry

SHOWN = 50


@login_required
@require_safe
@needs_role
def workers_page(request: HttpRequest) -> HttpResponse:
    """The workers heard of lately, how long the queue is, and the jobs. It names hosts, graphs and counts,
    no runs.
    """
    now = timezone.now()
    silent = now - timedelta(seconds=conf().lease_seconds)
    queued = Q(status=Status.QUEUED) & ~Q(due_at__gt=now)
    depth = Run.objects.filter(queued | Q(status=Status.RUNNING)).aggregate(
        queued=Count("id", filter=queued), running=Count("id", filter=~queued), oldest=Min("due_at", filter=queued)
    )
    workers = list(Worker.objects.filter(heartbeat_at__gt=now - timedelta(days=1)).order_by("-heartbeat_at")[:SHOWN])
    alive = list(Worker.objects.filter(heartbeat_at__gt=silent, stopped_at=None))
    context = {
        "workers": [(worker, _state(worker, worker in alive)) for worker in workers],
        "alive": len(alive),
        "depth": depth,
        "jobs": _jobs(now),
        "keys": _keys(),
        "last": workers[0].heartbeat_at if workers else None,
        "stuck": not alive and depth["queued"],
        "left": _left(queued, [w for w in alive if not w.draining]) if alive and depth["queued"] else [],
    }
    return render(request, "orchestrator/workers.html", context, section="workers")


def _left(queued: Q, alive: list[Worker]) -> list[dict[str, Any]]:
    """The versions of graphs whose queued runs no live worker takes, with the secrets that they need. Three queries."""
    known = {fingerprint for worker in alive for fingerprint in worker.fingerprints}
    rows = Run.objects.filter(queued).exclude(fingerprint__in=known).order_by("graph", "version")
    found = list(rows.values("graph", "version", "fingerprint").annotate(runs=Count("id"))[:SHOWN])
    # Who has the newest version of a graph judges the runs of those that are gone, but of none that was seen later.
    newest = newest_versions({one["graph"] for one in found}) if found else {}
    judged = {name: fingerprint for name, fingerprint in newest.items() if fingerprint in known}
    later = later_versions(judged) if judged else set()
    left = []
    for one in found:
        graph = registry.find_graph(one["fingerprint"])
        if graph is not None or one["graph"] not in judged or one["fingerprint"] in later:
            secrets = list(graph.graph.secrets) if graph else []
            left.append({**one, "secrets": secrets, "later": one["fingerprint"] in later})
    return left


def _jobs(now: datetime) -> list[Job]:
    """The jobs that are queued or running, then those that ended in the last day; faults by their code alone."""
    shown = Job.objects.filter(Q(status__in=LIVE) | Q(ended_at__gt=now - timedelta(days=1)))
    return list(shown.order_by(F("ended_at").desc(nulls_first=True), "due_at").defer("facts", "error")[:SHOWN])


def _keys() -> dict[str, Any]:
    """The ids of the keys that seal and encrypt now. `rotate_keys` counts rows under older ones: that takes long."""
    ring = keyring()
    return {
        "signer": ring.signer,
        "derived": not conf().signing_keys,
        "locker": ring.encrypter if ring.encryption else "",
        "compromised": sorted(ring.compromised),
    }


def _state(worker: Worker, alive: bool) -> str:
    if worker.stopped_at is not None:
        return "stopped"
    if not alive:
        return "silent"
    return "draining" if worker.draining else "alive"
