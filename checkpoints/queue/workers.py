"""Tells whether workers are alive. Each writes a heartbeat to its row; one without a
heartbeat within a lease does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, QuerySet

from checkpoints.conf import conf
from checkpoints.db.clock import db_in
from checkpoints.models import Worker


@dataclass(frozen=True, slots=True)
class Silence:
    """The state in which no worker is alive. `since` is the last heartbeat of any, None
    if there never was one.
    """

    since: datetime | None


def any_alive() -> bool:
    """Return whether a worker has sent a heartbeat within a lease, and is not about to
    stop. One query.
    """
    return _alive().exists()


def count_alive() -> int:
    """Return how many such workers there are. One query."""
    return _alive().count()


def any_can_run(fingerprint: str) -> bool:
    """Return whether such a worker can run this version of a graph, because it has its
    code and its secrets. One query.
    """
    return fingerprint in live_fingerprints()


def live_fingerprints() -> set[str]:
    """Return the versions that such workers can run. One query."""
    fingerprints: set[str] = set()
    for of_worker in _alive().values_list("fingerprints", flat=True):
        fingerprints.update(of_worker)
    return fingerprints


def _alive() -> "QuerySet[Worker]":
    return with_heartbeat().filter(draining=False)


def with_heartbeat() -> "QuerySet[Worker]":
    """Return the query for the workers that have sent a heartbeat within a lease and
    have not stopped, including those that are about to.
    """
    # By the database's clock, as heartbeats are written: this host's may be wrong.
    since = db_in(-conf().lease_seconds)
    return Worker.objects.filter(stopped_at=None, heartbeat_at__gte=since)


def silence() -> Silence | None:
    """Return None while a worker is alive, otherwise since when none is. One query."""
    return silence_in(list(latest_heartbeat()))


def latest_heartbeat() -> "QuerySet[Worker, tuple[datetime, bool]]":
    """Return the query for the last heartbeat of any worker, and whether a worker is
    alive. `silence_in` reads its row.
    """
    latest = Worker.objects.order_by("-heartbeat_at")
    with_life = latest.annotate(is_any_alive=Exists(_alive()))
    return with_life.values_list("heartbeat_at", "is_any_alive")[:1]


def silence_in(rows: Sequence[tuple[datetime, bool]]) -> Silence | None:
    """Return what `silence` would, of the rows of `latest_heartbeat`. No query."""
    if not rows:
        return Silence(since=None)
    heartbeat, is_any_alive = rows[0]
    return None if is_any_alive else Silence(since=heartbeat)
