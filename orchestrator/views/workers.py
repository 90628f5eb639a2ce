"""The page of workers and of the queue, to be opened when a run does not move."""

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.db.models import F, Q
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from approvals.views.page import needs_role, render
from approvals.webhooks.verbs import may_manage
from checkpoints.conf import conf, keyring
from checkpoints.core.status import Status
from checkpoints.db.counts import count_up_to_most
from checkpoints.models import Job, Run, Worker
from checkpoints.models.job import LIVE
from checkpoints.queue import due_counts
from checkpoints.versions import later_versions, newest_versions
from orchestrator.engine import registry
from orchestrator.engine.graphs.compile import Compiled

Facts = dict[str, Any]

SHOWN = 50
"""The most rows of each list on the page."""
DAY = timedelta(days=1)
"""Workers and jobs that ended earlier than this ago are not shown."""


@login_required
@require_safe
@needs_role
def workers_page(request: HttpRequest) -> HttpResponse:
    """Show the workers of the last day, the length of the queue, and the jobs. The page
    names hosts, graphs and counts, no runs.
    """
    now = timezone.now()
    depth = _depth()
    workers = _workers_of_last_day(now)
    alive = _alive_workers(now)
    states: list[tuple[Worker, str]] = []
    for worker in workers:
        states.append((worker, _state(worker, worker in alive)))
    left_behind: list[Facts] = []
    if alive and depth["queued"]:
        # A worker that drains is alive, but takes no further run.
        taking_runs = [worker for worker in alive if not worker.draining]
        left_behind = _left_behind(taking_runs)
    # If no worker is alive, the page says since when.
    last_heartbeat: datetime | None = None
    if workers:
        last_heartbeat = workers[0].heartbeat_at
    context = {
        "workers": states,
        "alive": len(alive),
        "depth": depth,
        "jobs": _jobs(now),
        "keys": _keys(),
        "last": last_heartbeat,
        "has_webhooks": may_manage(request.user),
        "stuck": not alive and depth["queued"],
        "left": left_behind,
    }
    return render(request, "orchestrator/workers.html", context, section="workers")


def _depth() -> Facts:
    """Return how many runs are due and running, as far as they are counted, and since
    when the oldest is due.
    """
    running = Run.objects.filter(status=Status.RUNNING)
    return {
        "queued": due_counts.count_queued(),
        "running": count_up_to_most(running),
        "oldest": due_counts.oldest_queued(),
    }


def _workers_of_last_day(now: datetime) -> list[Worker]:
    """Return the workers that were seen in the last day, the newest heartbeat first."""
    workers = Worker.objects.filter(heartbeat_at__gt=now - DAY)
    return list(workers.order_by("-heartbeat_at")[:SHOWN])


def _alive_workers(now: datetime) -> list[Worker]:
    """Return the workers that are neither stopped nor silent, more than are shown."""
    silent_since = now - timedelta(seconds=conf().lease_seconds)
    return list(Worker.objects.filter(heartbeat_at__gt=silent_since, stopped_at=None))


def _left_behind(alive: list[Worker]) -> list[Facts]:
    """Return the versions of graphs whose queued runs no live worker takes, with the
    secrets that they need. Three queries.
    """
    registered = _registered_by(alive)
    versions = due_counts.queued_versions(registered, most=SHOWN)
    if not versions:
        return []

    # A worker with the newest version of a graph judges the runs of those that are
    # gone, but of none that was seen later.
    newest = newest_versions({version.graph for version in versions})
    judged = {name: newest[name] for name in newest if newest[name] in registered}
    later: set[str] = set()
    if judged:
        later = later_versions(judged)

    left_behind: list[Facts] = []
    for version in versions:
        graph = registry.find_graph(version.fingerprint)
        is_later = version.fingerprint in later
        if graph is None and version.graph in judged and not is_later:
            continue
        secrets = _secrets_of(graph)
        left_behind.append({"of": version, "secrets": secrets, "later": is_later})
    return left_behind


def _secrets_of(graph: Compiled | None) -> list[str]:
    if graph is None:
        return []
    return list(graph.graph.secrets)


def _registered_by(workers: list[Worker]) -> set[str]:
    fingerprints: set[str] = set()
    for worker in workers:
        fingerprints.update(worker.fingerprints)
    return fingerprints


def _jobs(now: datetime) -> list[Job]:
    """Return the jobs that are queued or running, then those that ended in the last
    day; of a fault only the code.
    """
    has_just_ended = Q(ended_at__gt=now - DAY)
    jobs = Job.objects.filter(Q(status__in=LIVE) | has_just_ended)
    newest_first = F("ended_at").desc(nulls_first=True)
    jobs = jobs.order_by(newest_first, "due_at")
    return list(jobs.defer("facts", "error")[:SHOWN])


def _keys() -> Facts:
    """Return the ids of the keys that seal and encrypt now. Rows under older keys are
    counted by `rotate_keys`, which takes long.
    """
    ring = keyring()
    encrypter = ""
    if ring.encryption:
        encrypter = ring.encrypter
    return {
        "signer": ring.signer,
        "derived": not conf().signing_keys,
        "locker": encrypter,
        "compromised": sorted(ring.compromised),
    }


def _state(worker: Worker, alive: bool) -> str:
    if worker.stopped_at is not None:
        return "stopped"
    if not alive:
        return "silent"
    if worker.draining:
        return "draining"
    return "alive"
