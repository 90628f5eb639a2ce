"""Is a worker there? Workers give a sign of life in their row; who has given none within a lease does not count."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import QuerySet

from checkpoints.conf import conf
from checkpoints.db.clock import db_in
from checkpoints.models import Worker


@dataclass(frozen=True, slots=True)
class Silence:
    """No worker is there. `since` is the last sign of life of any, None where there never was one."""

    since: datetime | None


def any_alive() -> bool:
    """Whether a worker has given a sign of life within a lease, and is not about to stop. One query."""
    return _alive().exists()


def any_can_run(fingerprint: str) -> bool:
    """Whether such a worker can run this version of a graph: it has its code and its secrets. One query."""
    return fingerprint in live_fingerprints()


def live_fingerprints() -> set[str]:
    """The versions that such workers can run. One query."""
    return {one for known in _alive().values_list("fingerprints", flat=True) for one in known}


def _alive() -> "QuerySet[Worker]":
    since = db_in(-conf().lease_seconds)
    return Worker.objects.filter(stopped_at=None, draining=False, heartbeat_at__gte=since)


def silence() -> Silence | None:
    """None while a worker is there, for one query; a second one finds since when none is."""
    if any_alive():
        return None
    return Silence(Worker.objects.order_by("-heartbeat_at").values_list("heartbeat_at", flat=True).first())
