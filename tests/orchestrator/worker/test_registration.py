"""The row of a cluster: everything that its first appearance writes is one commit."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints.models import GraphVersion, Job, Worker
from orchestrator import discovery
from orchestrator.engine import registry
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
