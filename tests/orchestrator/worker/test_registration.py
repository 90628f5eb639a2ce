"""The row of a cluster: everything that its first appearance writes is one commit."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints.core.work_sums import WorkSums
from checkpoints.models import GraphVersion, Job, Worker
from orchestrator import discovery
from orchestrator.engine import registry
from orchestrator.worker import registration
from orchestrator.worker.broker import RunBroker
from orchestrator.worker.registration import Registration

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_cluster_appears_in_one_commit_however_many_graphs_it_has(
    broker: RunBroker,
) -> None:
    discovery.forget_noted()
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert Registration(broker.state).beat()
    statements = [query["sql"] for query in captured]
    assert statements.count("COMMIT") == 1
    assert GraphVersion.objects.count() == len(registry.all()) > 10
    assert Job.objects.exists()
    assert Worker.objects.get().id == broker.state.worker


def test_without_metrics_a_cluster_keeps_no_sums(broker: RunBroker) -> None:
    Registration(broker.state).beat()
    assert broker.state.sums is None
    assert Worker.objects.get().sums is None


def test_each_heartbeat_writes_the_sums_and_sends_no_further_statement(
    broker: RunBroker, watched: WorkSums
) -> None:
    presence = Registration(broker.state)
    presence.beat()
    watched.add("checkpoints", 2)
    presence._next = 0.0
    with CaptureQueriesContext(connection) as captured:
        presence.beat()
    assert len(captured) == 1
    assert Worker.objects.get().sums["checkpoints"] == 2


def test_a_cluster_that_ends_leaves_all_its_sums(
    broker: RunBroker, watched: WorkSums
) -> None:
    Registration(broker.state).beat()
    watched.add("checkpoints", 5)
    registration.leave(broker.state)
    assert Worker.objects.get().sums["checkpoints"] == 5
