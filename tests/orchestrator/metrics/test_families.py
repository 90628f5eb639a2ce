"""The metrics as a scraper reads them."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from prometheus_client.exposition import generate_latest

from checkpoints.core.work_sums import WorkSums
from orchestrator.metrics import families
from tests.support.rows import a_worker

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.django_db


def scraped() -> str:
    return generate_latest(families.registry()).decode()


def test_the_sums_of_a_cluster_are_counters_with_its_id() -> None:
    sums = WorkSums(1)
    sums.add("runs_claimed", 3)
    sums.add("webhooks_failed")
    sums.add("runs_unknown", 2)
    sums.add("jobs_failed")
    sums.add("checkpoint_bytes", 1_024)
    for seconds in (0.001, 0.02, 100.0):
        sums.add_superstep(seconds)
    worker = a_worker(sums=sums.totals(), slots=4, busy=1)
    of_worker = f'worker="{worker.id}"'
    text = scraped()
    for line in (
        f"countersign_slots{{{of_worker}}} 4.0",
        f'countersign_claims_total{{kind="run",{of_worker}}} 3.0',
        f'countersign_webhook_attempts_total{{result="failed",{of_worker}}} 1.0',
        f'countersign_runs_stopped_total{{status="unknown",{of_worker}}} 2.0',
        f'countersign_runs_stopped_total{{status="tampered",{of_worker}}} 0.0',
        f"countersign_jobs_failed_total{{{of_worker}}} 1.0",
        f"countersign_checkpoint_bytes_total{{{of_worker}}} 1024.0",
        f'countersign_superstep_seconds_bucket{{le="0.005",{of_worker}}} 1.0',
        f'countersign_superstep_seconds_bucket{{le="60.0",{of_worker}}} 2.0',
        f'countersign_superstep_seconds_bucket{{le="+Inf",{of_worker}}} 3.0',
        f"countersign_superstep_seconds_count{{{of_worker}}} 3.0",
    ):
        assert with_sorted_labels(line) in with_sorted_labels(text), line


def with_sorted_labels(text: str) -> str:
    def ordered(match: re.Match[str]) -> str:
        return "{" + ",".join(sorted(match[1].split(","))) + "}"

    return re.sub(r"\{([^}]*)\}", ordered, text)


def test_a_cluster_without_sums_shows_its_slots_alone() -> None:
    worker = a_worker(sums=None)
    text = scraped()
    assert f'countersign_slots{{worker="{worker.id}"}}' in text
    assert "countersign_superstep_seconds_count{" not in text


def test_sums_of_an_older_release_lack_what_it_did_not_count() -> None:
    totals = WorkSums(1).totals()
    del totals["mails_sent"]
    a_worker(sums=totals)
    assert 'result="delivered"' in scraped()


def test_a_cluster_that_is_gone_shows_what_it_did_and_is_no_capacity() -> None:
    now = timezone.now()
    sums = WorkSums(1).totals()
    stopped = a_worker(sums=sums, stopped_at=now)
    silent = a_worker(sums=sums, heartbeat_at=now - timedelta(minutes=5))
    text = scraped()
    for worker in (stopped, silent):
        assert f'countersign_slots{{worker="{worker.id}"}}' not in text
        assert f'countersign_slots_busy{{worker="{worker.id}"}}' not in text
        assert f'countersign_checkpoints_total{{worker="{worker.id}"}}' in text


def test_the_buckets_of_another_release_are_left_out() -> None:
    totals = WorkSums(1).totals()
    totals["superstep_bounds"] = [1.0]
    totals["superstep_buckets"] = [3, 4]
    worker = a_worker(sums=totals)
    text = scraped()
    assert "countersign_superstep_seconds_count{" not in text
    assert f'countersign_checkpoints_total{{worker="{worker.id}"}}' in text


def test_each_metric_stands_in_the_documentation() -> None:
    a_worker(sums=WorkSums(1).totals())
    page = (ROOT / "docs" / "watching.md").read_text()
    listed = set(re.findall(r"^\| `(countersign_\w+)`", page, re.MULTILINE))
    named = re.findall(r"^# TYPE (\w+)", scraped(), re.MULTILINE)
    assert {name.removesuffix("_total") for name in named} == listed
