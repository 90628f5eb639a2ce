"""The readings behind the metrics: a fixed number of statements, each of which counts
up to a limit in an index. Nothing is read again within `KEPT_SECONDS`, so that a second
scraper does not double the load. A reading that hangs holds up nobody but its own scrape.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from approvals.models import (
    ApprovalRequest,
    DeliveryStatus,
    Notice,
    NoticeMail,
    RequestStatus,
    WebhookDelivery,
)
from checkpoints.core.status import Status
from checkpoints.db.counts import MOST_COUNTED, count_each
from checkpoints.db.large_reads import first_rows
from checkpoints.db.limits import short_statements
from checkpoints.models import Job, Run, Worker
from checkpoints.models.job import JobStatus
from checkpoints.queue import due_counts, workers
from checkpoints.queue.due_counts import DueQueue
from orchestrator.engine.frozen import frozen

KEPT_SECONDS = 5.0
WAIT_SECONDS = 2.0
"""How long a scrape waits for the reading of another."""
STATEMENT_SECONDS = 5.0
"""How long a statement of a reading may take on PostgreSQL."""
MOST_GRAPHS = 200
"""The most graphs that are shown of the queue."""
MOST_KINDS = 1_000
"""The most kinds of due runs (graph, version, priority) that are counted."""
MOST_OF_KIND = 100
"""Runs of a kind are counted up to this number."""
MOST_WORKERS = 200
"""The most clusters whose sums are read."""
SILENCE = timedelta(minutes=10)
"""How long the sums of a cluster that has ended can still be scraped."""


@frozen
class Readings:
    """The numbers that the database held at a moment.

    `queue` has the due runs by graph, and `oldest_due_seconds` is how long the oldest of
    all has been due, 0 if none is. `runs` (by status) and `counts` are counted up to one
    more than `MOST_COUNTED`. `oldest_notice_seconds` is how long the oldest notice has
    waited to be passed on, 0 if none waits. `workers` have columns of `Worker`, and
    `is_alive`; `workers_left_out` is how many more there are.
    """

    queue: DueQueue
    oldest_due_seconds: float
    runs: Mapping[str, int]
    counts: Mapping[str, int]
    oldest_notice_seconds: float
    alive: int
    workers: Sequence[Mapping[str, Any]]
    workers_left_out: int


class ReadingsUnavailable(Exception):
    """There are no new readings: another scrape is still reading, or the last reading
    has failed. To try again after `KEPT_SECONDS` cures it.
    """


class _Cache:
    """The newest readings of this process, or the knowledge that they failed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._until = 0.0
        self._readings: Readings | None = None

    def get(self) -> Readings:
        # A second scraper waits for the first one, and is given the same.
        if not self._lock.acquire(timeout=WAIT_SECONDS):
            raise ReadingsUnavailable("Another scrape is still reading.")
        try:
            if monotonic() >= self._until:
                self._renew()
            if self._readings is None:
                raise ReadingsUnavailable("The last reading has failed.")
            return self._readings
        finally:
            self._lock.release()

    def _renew(self) -> None:
        self._readings = None
        try:
            self._readings = read()
        finally:
            # A failure is kept, too: a database in need is not asked again at once.
            self._until = monotonic() + KEPT_SECONDS

    def forget(self) -> None:
        self._until = 0.0


_cache = _Cache()


def kept_readings() -> Readings:
    """Return readings that are at most `KEPT_SECONDS` old. Raises
    `ReadingsUnavailable`, and for the scrape that reads the database's own errors.
    """
    return _cache.get()


def forget_readings() -> None:
    """Forget the kept readings, so that the next ones are new."""
    _cache.forget()


def read() -> Readings:
    """Return what the database holds now. Six queries, none of which may take longer
    than `STATEMENT_SECONDS` on PostgreSQL.
    """
    with short_statements(STATEMENT_SECONDS):
        return _read()


def _read() -> Readings:
    now = timezone.now()
    queue = due_counts.due_by_graph(
        most=MOST_GRAPHS, most_kinds=MOST_KINDS, most_of_kind=MOST_OF_KIND
    )
    # It looks at every kind, as each claim does: what waits longest may be of any.
    oldest_due = due_counts.oldest_due()
    by_status = {status.value: Run.objects.filter(status=status) for status in Status}
    others = _counted(now)
    recent = Worker.objects.filter(heartbeat_at__gt=now - SILENCE)
    counted = {**by_status, **others, "clusters": recent}
    # One statement counts them all.
    with first_rows():
        counts = count_each(counted, most=MOST_COUNTED + 1)
        clusters = _clusters(recent)
    return Readings(
        queue=queue,
        oldest_due_seconds=_seconds_since(oldest_due, now),
        runs={name: counts[name] for name in by_status},
        counts={name: counts[name] for name in others},
        oldest_notice_seconds=_oldest_notice_seconds(now),
        alive=workers.count_alive(),
        workers=clusters,
        workers_left_out=max(0, counts["clusters"] - len(clusters)),
    )


def _counted(now: datetime) -> dict[str, "QuerySet[Any]"]:
    """Return the rows that are counted, each from an index of such rows alone."""
    is_open = ApprovalRequest.objects.filter(status=RequestStatus.OPEN)
    to_send = WebhookDelivery.objects.filter(status=DeliveryStatus.WAITING)
    to_mail = NoticeMail.objects.filter(status=DeliveryStatus.WAITING)
    return {
        "requests_open": is_open,
        "requests_overdue": is_open.filter(deadline__lt=now),
        "jobs_due": Job.objects.filter(status=JobStatus.QUEUED, due_at__lte=now),
        "notices_waiting": Notice.objects.filter(passed_on_at=None),
        "webhooks_waiting": to_send,
        "mails_waiting": to_mail,
    }


def _oldest_notice_seconds(now: datetime) -> float:
    waiting = Notice.objects.filter(passed_on_at=None).order_by("id")
    oldest = waiting.values_list("at", flat=True).first()
    return _seconds_since(oldest, now)


def _seconds_since(moment: datetime | None, now: datetime) -> float:
    if moment is None:
        return 0.0
    return max(0.0, (now - moment).total_seconds())


def _clusters(recent: "QuerySet[Worker]") -> list[dict[str, Any]]:
    """Return these clusters with what they have done, those that live first."""
    alive = workers.with_heartbeat().filter(id=OuterRef("id"))
    # By id and not by heartbeat, so that the same ones are shown at each scrape.
    ordered = recent.annotate(is_alive=Exists(alive)).order_by("-is_alive", "id")
    columns = ("id", "slots", "busy", "sums", "is_alive")
    return list(ordered.values(*columns)[:MOST_WORKERS])
