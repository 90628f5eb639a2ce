"""The run table as django-q2's queue: its `broker_class`, in the settings of the
project or set by `manage.py worker`.

django-q2 makes it before it forks. The pusher calls `dequeue` again and again; the
sentinel calls `ping` once and `set_stat` in each cycle of its guard. It hands out (run
or job, epoch) and never more than there are slots.
"""

import multiprocessing
import time
from typing import Any, NoReturn

import structlog
from django.db import InterfaceError, OperationalError, connection
from django.utils import timezone
from django_q.brokers import Broker
from django_q.conf import Conf
from django_q.signing import SignedPackage

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db.clock import db_now
from checkpoints.models import Run
from checkpoints.queue import jobs, leases
from checkpoints.queue.due_runs import Claimable
from checkpoints.queue.queue import Claim
from orchestrator.worker import claimable
from orchestrator.worker.registration import Registration
from orchestrator.worker.round_robin import RoundRobin
from orchestrator.worker.shared_state import SharedState, install_state
from orchestrator.worker.tasks import ADVANCE, WORK
from orchestrator.worker.wait import Listener

UNBEGUN_SECONDS = 10.0
"""A claim is for a worker that is free already. If it waits for this long, no worker is
reading the queue.
"""
NO_SLOT_SECONDS = 0.5
NO_DATABASE_SECONDS = 1.0

log = structlog.get_logger(__name__)


class RunBroker(Broker):
    """The queue of one cluster: the run table."""

    def __init__(self, list_key: str | None = None) -> None:
        super().__init__(list_key)
        self.state = SharedState(Conf.WORKERS)
        install_state(self.state)
        self._presence = Registration(self.state)
        self._listener = Listener()
        self._can = Claimable(frozenset(), frozenset())
        self._renew_at = 0.0
        self._order = RoundRobin()
        self._info = "Countersign: the run table is the queue"

    def enqueue(self, task: Any) -> NoReturn:
        """Refuse every task: runs are started, and found in the run table."""
        raise TypeError(
            "This django-q2 cluster works on Countersign's runs only. "
            "Start a run with orchestrator.runs.start(),"
            " and give other tasks a cluster of their own, "
            "with another broker in its Q_CLUSTER."
        )

    def dequeue(self) -> list[tuple[str, str]]:
        """Return the next claims as messages; after a wait, [] if nothing is due. A
        lost database is survived.
        """
        try:
            claims = self._round()
            self.state.pusher_is_well()
            return claims
        except (OperationalError, InterfaceError) as error:
            log.warning("database_lost", error=str(error).strip())
            # The next round reopens both connections.
            self._listener.close()
            connection.close()
            time.sleep(NO_DATABASE_SECONDS)
            return []

    def _round(self) -> list[tuple[str, str]]:
        # What may be claimed depends on the other workers, so it is read at each beat.
        if self._presence.beat():
            self._can = claimable.claimable()
        self._renew_unbegun()
        if self.state.draining():
            self._hand_back()
            self.state.wait(NO_SLOT_SECONDS)
            return []
        free = self.state.slots.free()
        if not free:
            self.state.wait(NO_SLOT_SECONDS)
            return []
        return [self._message(claim) for claim in self._look(free)]

    def _look(self, free: int) -> list[Claim]:
        self._listener.listen()
        for find in self._order.next(self._runs, self._jobs):
            claims = find(free)
            if claims:
                # Workers begin these while the next round looks for the other kind.
                for claim in claims:
                    self.state.slots.claim(claim)
                return claims
        if self._listener.wait(self.state):
            self._order.jobs_notified()
        return []

    def _runs(self, limit: int) -> list[Claim]:
        return leases.claim(worker=self.state.worker, limit=limit, only=self._can)

    def _jobs(self, limit: int) -> list[Claim]:
        claimed = jobs.claim(worker=self.state.worker, limit=limit)
        self._order.jobs_seen(any_due=bool(claimed))
        return claimed

    def _renew_unbegun(self) -> None:
        """Renew the claims that no worker has begun yet; if they wait too long, give up
        the whole cluster.
        """
        if time.monotonic() < self._renew_at:
            return
        self._renew_at = time.monotonic() + conf().lease_seconds / 3
        unbegun = self.state.slots.unbegun()
        if any(claimed.seconds > UNBEGUN_SECONDS for claimed in unbegun):
            # Handed back, so that no run waits for its lease to expire. The sentinel
            # gives the cluster up when its pusher ends.
            self._hand_back()
            log.critical("queue_wedged", worker=str(self.state.worker))
            raise SystemExit("no worker reads the queue")
        claimed_runs: list[Claim] = []
        claimed_jobs: list[Claim] = []
        for claimed in unbegun:
            of_kind = claimed_jobs if claimed.claim.job else claimed_runs
            of_kind.append(claimed.claim)
        if claimed_runs:
            leases.renew(claimed_runs, worker=self.state.worker)
        if claimed_jobs:
            jobs.renew(claimed_jobs, worker=self.state.worker)

    def _hand_back(self) -> None:
        """Release the claims that no worker has begun. Their messages find no slot and
        change nothing.
        """
        withdrawn: list[Claim] = []
        for unbegun in self.state.slots.unbegun():
            # A worker may have begun it in the meantime.
            if self.state.slots.withdraw(unbegun.claim):
                withdrawn.append(unbegun.claim)
        leases.release([claim for claim in withdrawn if not claim.job])
        for claim in withdrawn:
            if claim.job:
                jobs.release(claim.id, claim.epoch)

    def _message(self, claim: Claim) -> tuple[str, str]:
        name = f"{claim.id}:{claim.epoch}"
        task = {
            "id": name,
            "name": name,
            "func": WORK if claim.job else ADVANCE,
            "args": (str(claim.id), claim.epoch),
            "kwargs": {},
            "started": timezone.now(),
            "ack_failure": True,
        }
        return name, SignedPackage.dumps(task)

    def set_stat(self, key: str, value: str, timeout: int) -> None:
        """Free what dead workers held, in each cycle of the sentinel. The statistic
        itself is not stored, because the cluster has its own row.
        """
        alive = {child.pid or 0 for child in multiprocessing.active_children()}
        if self.state.slots.free_all_but(alive):
            self.state.ring()
        self.state.sentinel_is_well()

    def acknowledge(self, task_id: str) -> None:
        """Do nothing, because a slice gives its run back itself."""

    def fail(self, task_id: str) -> None:
        """Do nothing, because the lease expires and the run is claimed again."""

    def queue_size(self) -> int:
        """Return the number of runs that wait for a worker."""
        due = Run.objects.filter(status=Status.QUEUED).exclude(due_at__gt=db_now())
        return due.count()

    def lock_size(self) -> int:
        """Return the number of runs under a lease."""
        return Run.objects.filter(status=Status.RUNNING).count()

    def ping(self) -> bool:
        """Return whether the database answers. Raises its error if it does not."""
        connection.ensure_connection()
        return True
