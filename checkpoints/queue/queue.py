"""A queue: the rows of one model that need a worker, and the leases on them. There is
one of runs and one of jobs; `leases` and `jobs` define what a lease allows.

Every statement of a lease's holder names the epoch, so a holder that lost the lease
changes nothing. Times are the database's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db import query_cache
from checkpoints.db.claim import claim_rows
from checkpoints.db.clock import db_in, kept_now
from checkpoints.db.query_cache import Query
from checkpoints.db.statements import update_returning
from checkpoints.models import Job

Found = list[Sequence[Any]]
"""The requested fields of each row."""
BACK = {"status": Status.QUEUED, "lease_until": None, "leased_by": None}
"""The columns of a row that goes back to the queue."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to begin: a run or a job, and the epoch that the claim gave it."""

    id: UUID
    epoch: int
    job: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """The rows of `model` that are `ready` or under an expired lease, in this order.
    `statuses` are those of its index.
    """

    model: type[Any]
    statuses: Sequence[str]
    ready: Callable[[], Q]
    order: Sequence[Any]

    def claim(self, *, worker: UUID | None, limit: int) -> list[Claim]:
        """Take up to `limit` rows that need a worker, the first in order. One
        statement; rows that others are taking are skipped.
        """
        taken = claim_rows(
            self.model,
            query_cache.compiled(_first(self, limit)),
            worker=worker,
            look=query_cache.compiled(_anything(self)),
        )
        return self.claims(taken)

    def claim_one(self, row_id: UUID, *, worker: UUID | None = None) -> Claim | None:
        """Take this row if it needs a worker, whichever process can work on it; None if
        it does not.
        """
        query = query_cache.compiled(_this_row(self), row_id)
        claims = self.claims(claim_rows(self.model, query, worker=worker))
        return claims[0] if claims else None

    def claims(self, taken: Found) -> list[Claim]:
        """Return the fields of `TAKEN` of each row as claims."""
        return [Claim(row_id, epoch, self.model is Job) for row_id, epoch in taken]

    def any_due(self) -> bool:
        """Return whether a claim would find something. Only reads, so that an idle
        SQLite worker takes no lock.
        """
        return query_cache.exists(_anything(self))

    def is_due(self, row_id: UUID) -> bool:
        """Return whether `claim_one` would find this row. Only reads."""
        return query_cache.exists(_this_row(self), row_id)

    def due(self) -> Any:
        """Return the rows that a claim finds, for a query whose text is cached."""
        return self._of_statuses().filter(self.ready() | _expired())

    def ids_due(self) -> Any:
        """Return the ids of the rows that a claim finds, in no order, for a query whose
        text is cached: those that are ready, then those under an expired lease. Each
        part reads its own end of an index.
        """
        ready = self._of_statuses().filter(self.ready()).order_by().values("id")
        expired = self._of_statuses().filter(_expired()).order_by().values("id")
        return ready.union(expired, all=True)

    def _of_statuses(self) -> Any:
        # As the index has them, or the planner would not use it.
        return self.model.objects.filter(status__in=self.statuses)

    def renew(self, claims: Iterable[Claim], *, worker: UUID) -> int:
        """Extend leases that were handed out but not begun. Returns how many of them
        are still held.
        """
        # A claim that has begun has a later epoch; only its heartbeat lengthens it.
        held = Q(pk__in=[])
        for claim in claims:
            held |= Q(id=claim.id, epoch=claim.epoch)
        rows = self.model.objects.filter(held, leased_by=worker)
        lease_until = db_in(conf().lease_seconds)
        return int(rows.update(lease_until=lease_until))

    def change(
        self,
        row_id: UUID,
        epoch: int,
        returning: Sequence[str] = ("id",),
        /,
        **values: Any,
    ) -> Found:
        """Change a row for the holder of its lease, and return the fields in
        `returning`; no row where the lease is lost.
        """
        held = {"id": row_id, "epoch": epoch, "status": Status.RUNNING}
        return update_returning(self.model, held, returning, **values)

    def lengthen(
        self,
        row_id: UUID,
        epoch: int,
        returning: Sequence[str] = ("id",),
        /,
        **values: Any,
    ) -> Found:
        """Change a row as `change` does, and make its lease as long as a new one."""
        lease_until = db_in(conf().lease_seconds)
        return self.change(
            row_id,
            epoch,
            returning,
            lease_until=lease_until,
            **values,
        )


def _expired() -> Q:
    return Q(status=Status.RUNNING, lease_until__lt=kept_now())


@lru_cache(maxsize=100)
def _first(queue: Queue, limit: int) -> Query:
    """Return the same function for the same values, as the other two do too, so that
    the text of its query is cached.
    """
    return lambda: _in_order(queue).values("id")[:limit]


def _in_order(queue: Queue) -> Any:
    """Return the rows that a claim finds, in order. SQLite would walk through all that
    are due later in that order, if it were not given the ids.
    """
    due = queue.due()
    if connection.vendor == "sqlite":
        due = queue.model.objects.filter(id__in=queue.ids_due())
    return due.order_by(*queue.order)


@lru_cache(maxsize=100)
def _anything(queue: Queue) -> Query:
    return lambda: queue.ids_due()[:1]


@lru_cache(maxsize=100)
def _this_row(queue: Queue) -> Query:
    return lambda row_id: queue.due().filter(id=row_id).values("id")
