"""A broker without a cluster, and a kind of job that counts."""

import pytest

from checkpoints.core import work_sums
from checkpoints.core.work_sums import WorkSums
from checkpoints.queue.jobs import Step
from orchestrator.jobs import kinds
from orchestrator.worker import broker as run_broker
from orchestrator.worker.broker import RunBroker


@pytest.fixture
def broker(monkeypatch, configure):
    configure(POLL_SECONDS=0.001)
    monkeypatch.setattr("orchestrator.worker.wait.NET_SECONDS", 0.0)
    monkeypatch.setattr(run_broker, "NO_SLOT_SECONDS", 0.0)
    made = RunBroker()
    yield made
    made._listener.close()
    made.state.close()


@pytest.fixture
def counting(monkeypatch):
    """A kind that counts to four, one at a time; its list holds what it did."""
    did = []

    def count(lease):
        for n in range(int(lease.place or 0), 4):
            did.append(n)
            yield Step(n + 1, 4, "counting", place=n + 1)

    monkeypatch.setitem(kinds.KINDS, "count", count)
    return did


@pytest.fixture
def watched(broker, monkeypatch):
    """The sums of the broker's cluster, as if somebody scraped it."""
    sums = WorkSums(len(broker.state.slots))
    broker.state.sums = sums
    monkeypatch.setattr(work_sums, "installed", sums)
    return sums
