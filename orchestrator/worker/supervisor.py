"""Supervision of a cluster: starts it again when it ends by itself, after growing
pauses. For `manage.py worker`.
"""

import os
import time

import structlog
from django.db import OperationalError, connection, connections

from checkpoints.conf import conf
from orchestrator.engine import registry
from orchestrator.worker.child_process import bind_forks
from orchestrator.worker.cluster import ENDED_BY_ITSELF, RunCluster
from orchestrator.worker.signals import Pauses, StopRequest

log = structlog.get_logger(__name__)


def supervise() -> int:
    """Keep a cluster running until a stop is requested. Return the exit code: 0 after a
    drain, 72 if the grace period was not enough.
    """
    # First, because it binds only what is forked afterwards.
    bind_forks()
    stop = StopRequest()
    stop.listen()
    log.info(
        "worker_started",
        pid=os.getpid(),
        processes=conf().workers,
        graphs=len(registry.all()),
    )
    code = _run_until_stopped(stop)
    log.info("worker_stopped", pid=os.getpid(), exit_code=code)
    return code


def _run_until_stopped(stop: StopRequest) -> int:
    pauses = Pauses()
    while True:
        began = time.monotonic()
        code = RunCluster(stop).run() if _database_answers() else ENDED_BY_ITSELF
        # A cluster that was drained stays down; after any other end it starts again.
        if stop.requested or code == 0:
            return code
        pause = pauses.after(time.monotonic() - began)
        log.error("cluster_ended", exit_code=code, starts_again_in=pause)
        if stop.pause(pause):
            return 0


def _database_answers() -> bool:
    """Return whether the database answers. No connection stays open, because the forked
    processes would share it.
    """
    try:
        connection.ensure_connection()
    except OperationalError as error:
        log.error("database_unreachable", error=str(error).strip())
        return False
    finally:
        connections.close_all()
    return True
