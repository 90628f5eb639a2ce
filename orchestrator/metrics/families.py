"""The metrics as prometheus-client writes them. docs/watching.md has each with its
meaning; no label holds a key, a name of a person, or a value.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from approvals.results import decision_times
from checkpoints.core import work_sums
from checkpoints.core.status import STOPPED
from orchestrator.live import limits
from orchestrator.metrics.readings import Readings, kept_readings

COUNTED = {
    "requests_open": "Requests that wait for people",
    "requests_overdue": "Open requests whose deadline has passed",
    "jobs_due": "Jobs that wait for a worker",
    "notices_waiting": "Notices that are not passed on yet",
    "webhooks_waiting": "Webhook deliveries that wait for an attempt",
    "mails_waiting": "Notices by mail that wait for an attempt",
}
BY_RESULT = {
    "webhook_attempts": (
        "Attempts to deliver to webhooks",
        {"delivered": "webhooks_delivered", "failed": "webhooks_failed"},
    ),
    "mail_attempts": (
        "Attempts to send notices by mail",
        {"delivered": "mails_sent", "failed": "mails_failed"},
    ),
}
"""Counters of clusters by result: the words, and the names of the sums."""
STOPS = {status.value: f"runs_{status}" for status in sorted(STOPPED)}
"""The names of the sums of stops, by status."""
OF_CLUSTERS = {
    "leases_lost": "Slices that ended because another worker had the run",
    "slices_failed": "Slices that ended with an error of ours",
    "jobs_failed": "Attempts of jobs that ended with an error",
    "checkpoints": "Checkpoints written",
    "checkpoint_bytes": "Bytes of the checkpoints written",
}
"""Counters of clusters that are named like their sums."""


def registry() -> CollectorRegistry:
    """Return the registry with all metrics of this installation."""
    metrics = CollectorRegistry()
    metrics.register(_Installation())
    return metrics


class _Installation(Collector):
    def describe(self) -> Iterable[Metric]:
        # Without it the registry would collect once to learn the names.
        return ()

    def collect(self) -> Iterator[Metric]:
        readings = kept_readings()
        yield from _of_the_queue(readings)
        yield from _of_the_counts(readings)
        yield from _of_the_clusters(readings)
        yield from _of_this_process()


def _of_the_queue(readings: Readings) -> Iterator[Metric]:
    depth = GaugeMetricFamily(
        "countersign_runs_due", "Runs that wait for a worker", labels=["graph"]
    )
    age = GaugeMetricFamily(
        "countersign_runs_oldest_due_seconds",
        "How long the oldest of them has been due",
        labels=["graph"],
    )
    for due in readings.queue.graphs:
        depth.add_metric([due.graph], due.runs)
        age.add_metric([due.graph], due.oldest_seconds)
    yield depth
    yield age
    yield GaugeMetricFamily(
        "countersign_oldest_due_seconds",
        "How long the oldest run of all that wait for a worker has been due",
        value=readings.oldest_due_seconds,
    )
    yield GaugeMetricFamily(
        "countersign_queue_cut",
        "1 where graphs are left out of the numbers by graph",
        value=int(readings.queue.is_cut),
    )

    by_status = GaugeMetricFamily(
        "countersign_runs", "Runs by status", labels=["status"]
    )
    for status, number in readings.runs.items():
        by_status.add_metric([status], number)
    yield by_status


def _of_the_counts(readings: Readings) -> Iterator[Metric]:
    for name, words in COUNTED.items():
        yield GaugeMetricFamily(
            f"countersign_{name}", words, value=readings.counts[name]
        )
    yield GaugeMetricFamily(
        "countersign_notices_oldest_waiting_seconds",
        "How long the oldest of them has waited",
        value=readings.oldest_notice_seconds,
    )
    yield GaugeMetricFamily(
        "countersign_workers_alive", "Clusters that take runs", value=readings.alive
    )


def _of_the_clusters(readings: Readings) -> Iterator[Metric]:
    slots = GaugeMetricFamily(
        "countersign_slots", "Slots of a cluster", labels=["worker"]
    )
    busy = GaugeMetricFamily(
        "countersign_slots_busy", "Slots in which something runs", labels=["worker"]
    )
    for cluster in readings.workers:
        # Only the work of a worker that is gone is shown.
        if not cluster["is_alive"]:
            continue
        slots.add_metric([str(cluster["id"])], cluster["slots"])
        busy.add_metric([str(cluster["id"])], cluster["busy"])
    yield slots
    yield busy
    yield GaugeMetricFamily(
        "countersign_workers_left_out",
        "Clusters that are left out of the numbers by worker",
        value=readings.workers_left_out,
    )

    # A cluster that started before there was a token has no sums.
    watched = [cluster for cluster in readings.workers if cluster["sums"]]
    yield _claims(watched)
    yield _stops(watched)
    yield _supersteps(watched)
    for name, words in OF_CLUSTERS.items():
        counter = CounterMetricFamily(f"countersign_{name}", words, labels=["worker"])
        for cluster in watched:
            counter.add_metric([str(cluster["id"])], cluster["sums"].get(name, 0))
        yield counter
    for name, (words, sums_by_result) in BY_RESULT.items():
        yield _labelled(f"countersign_{name}", words, "result", sums_by_result, watched)


def _claims(watched: Sequence[Any]) -> Metric:
    sums_by_kind = {"run": "runs_claimed", "job": "jobs_claimed"}
    words = "Slices of runs and jobs that were begun"
    return _labelled("countersign_claims", words, "kind", sums_by_kind, watched)


def _stops(watched: Sequence[Any]) -> Metric:
    words = "Runs that stopped and need a person"
    return _labelled("countersign_runs_stopped", words, "status", STOPS, watched)


def _labelled(
    name: str, words: str, label: str, sums: dict[str, str], watched: Sequence[Any]
) -> Metric:
    """Return a counter of clusters with one more label, whose values name sums."""
    counter = CounterMetricFamily(name, words, labels=["worker", label])
    for cluster in watched:
        for value, of_sums in sums.items():
            labels = [str(cluster["id"]), value]
            counter.add_metric(labels, cluster["sums"].get(of_sums, 0))
    return counter


def _supersteps(watched: Sequence[Any]) -> Metric:
    histogram = HistogramMetricFamily(
        "countersign_superstep_seconds",
        "How long the tasks of a superstep ran",
        labels=["worker"],
    )
    for cluster in watched:
        # Another release may have other buckets, which cannot be added to these.
        if cluster["sums"].get("superstep_bounds") != list(work_sums.BOUNDS):
            continue
        numbers = cluster["sums"]["superstep_buckets"]
        buckets = _cumulated(work_sums.BOUNDS, numbers)
        seconds = cluster["sums"]["superstep_seconds"]
        histogram.add_metric([str(cluster["id"])], buckets, seconds)
    return histogram


def _of_this_process() -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "countersign_live_connections",
        "Sockets and streams that are open in this web process",
        value=limits.all_open_sockets(),
    )
    times = decision_times.keep()
    numbers, seconds = times.read()
    yield HistogramMetricFamily(
        "countersign_decision_seconds",
        "How long requests were open that people settled in this web process",
        buckets=_cumulated(times.bounds, numbers),
        sum_value=seconds,
    )


def _cumulated(
    bounds: Sequence[float], numbers: Sequence[int]
) -> list[tuple[str, float]]:
    """Return the buckets as (upper bound, how many are not above it)."""
    names = [*map(str, bounds), "+Inf"]
    buckets: list[tuple[str, float]] = []
    total = 0
    for name, number in zip(names, numbers, strict=True):
        total += number
        buckets.append((name, total))
    return buckets
