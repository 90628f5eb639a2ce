"""Supervision of a cluster: starts it again when it ends by itself, after growing
pauses. For `manage.py worker`.
"""

import os
import time
from collections.abc import Callable

import structlog
from django.db import OperationalError, connections

from checkpoints.conf import conf
from checkpoints.db.limits import ANSWER_SECONDS, require_answer
from orchestrator.engine import registry
from orchestrator.worker.alive_file import AliveFile
from orchestrator.worker.child_process import bind_forks
from orchestrator.worker.cluster import ENDED_BY_ITSELF, RunCluster
from orchestrator.worker.signals import Pauses, StopRequest

log = structlog.get_logger(__name__)


def supervise(refuse_database: Callable[[], None]) -> int:
    """Keep a cluster running until a stop is requested. Return the exit code: 0 after a
    drain, 72 if the grace period was not enough. `refuse_database` is called before
    each start, as soon as the database answers; it raises where no worker may work.
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
    code = _run_until_stopped(stop, AliveFile.from_environment(), refuse_database)
    log.info("worker_stopped", pid=os.getpid(), exit_code=code)
    return code


def _run_until_stopped(
    stop: StopRequest, alive: AliveFile, refuse_database: Callable[[], None]
) -> int:
    pauses = Pauses()
    while True:
        began = time.monotonic()
        alive.touch()
        code = ENDED_BY_ITSELF
        if _database_answers(refuse_database):
            code = RunCluster(stop, alive).run()
        # A cluster that was drained stays down; after any other end it starts again.
        if stop.requested or code == 0:
            return code
        pause = pauses.after(time.monotonic() - began)
        log.error("cluster_ended", exit_code=code, starts_again_in=pause)
        if stop.pause(pause, meanwhile=alive.touch):
            return 0


def _database_answers(refuse_database: Callable[[], None]) -> bool:
    """Return whether the database answers soon, and may be worked on. No connection
    stays open, because the forked processes would share it.
    """
    try:
        require_answer(ANSWER_SECONDS)
        refuse_database()
    except OperationalError as error:
        log.error("database_unreachable", error=str(error).strip())
        return False
    finally:
        connections.close_all()
    return True
