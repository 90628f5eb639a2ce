"""What the processes of a cluster inherit from the one that forks them."""

import gc

import pytest
from django.db import connection

from orchestrator.worker.alive_file import AliveFile
from orchestrator.worker.cluster import ENDED_BY_ITSELF, RunCluster
from orchestrator.worker.signals import StopRequest

pytestmark = pytest.mark.django_db


@pytest.fixture
def thawed():
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_no_process_of_a_cluster_searches_what_was_there_before_the_fork_for_garbage(
    monkeypatch,
):
    searched = []

    def start(cluster):
        searched.append(any(each is connection for each in gc.get_objects()))
        raise RuntimeError("it does not come up")

    monkeypatch.setattr(RunCluster, "start", start)
    monkeypatch.setattr(
        "orchestrator.worker.cluster.connections.close_all", lambda: None
    )
    assert any(each is connection for each in gc.get_objects()), (
        "the collector does not know it anyway"
    )
    assert RunCluster(StopRequest(), AliveFile(None)).run() == ENDED_BY_ITSELF
    assert searched == [False]
