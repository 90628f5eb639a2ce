"""A queue: the rows of one model that want a worker, and the leases on them. Runs and jobs are two of it; `leases` and
`jobs` say what a lease on them is good for.

Every statement of a holder names the epoch, so whoever lost the lease changes nothing. Times are the database's.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import Q

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db import query_cache
from checkpoints.db.claim import TAKEN, claim_rows
from checkpoints.db.clock import db_in, kept_now
from checkpoints.db.query_cache import Query
from checkpoints.db.statements import update_returning
from checkpoints.models import Job

Found = list[Sequence[Any]]
"""Of each row the fields that were asked for."""
BACK = {"status": Status.QUEUED, "lease_until": None, "leased_by": None}
"""The columns of a row that waits for a worker again."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to begin: a run or a job, and the epoch that the claim gave it."""

    id: UUID
    epoch: int
    job: bool = False


@dataclass(frozen=True, slots=True)
class Claimable:
    """What this process can work on: fingerprints that it has registered, and graphs whose current version it has,
    without the fingerprints that it leaves to others.
    """

    fingerprints: frozenset[str]
    graphs: frozenset[str]
    left: frozenset[str] = frozenset()

    def condition(self) -> Q:
        judged = Q(graph__in=sorted(self.graphs))
        if self.left:
            judged &= ~Q(fingerprint__in=sorted(self.left))
        return Q(fingerprint__in=sorted(self.fingerprints)) | judged


@dataclass(frozen=True, slots=True, eq=False)
class Queue:
    """The rows of `model` that are `ready` or under an expired lease, in this order. `statuses` are those of its index.

    Where a row is claimed, `only` says which can be worked on here, None that all can.
    """

    model: type[Any]
    statuses: Sequence[str]
    ready: Callable[[], Q]
    order: Sequence[Any]

    def claim(self, *, worker: UUID | None, limit: int, only: Claimable | None) -> list[Claim]:
        """Take up to `limit` rows that want a worker, the first in order. One statement; rows that others are taking
        are passed by.
        """
        return self._claims(self.take(limit, worker=worker, only=only))

    def take(
        self, limit: int, *, worker: UUID | None, only: Claimable | None, returning: Sequence[str] = TAKEN, **more: Any
    ) -> Found:
        """`claim` that also sets what `more` says, and gives the fields in `returning`."""
        first, look = _first(self, only, limit), _anything(self, only)
        return claim_rows(self.model, first, worker=worker, look=look, returning=returning, **more)

    def claim_one(self, row_id: UUID, *, worker: UUID | None = None) -> Claim | None:
        """Take this row if it wants a worker, whatever it is of; None where it does not."""
        claims = self._claims(claim_rows(self.model, _one(self), row_id, worker=worker))
        return claims[0] if claims else None

    def _claims(self, taken: Found) -> list[Claim]:
        return [Claim(row_id, epoch, self.model is Job) for row_id, epoch in taken]

    def any_due(self, only: Claimable | None) -> bool:
        """Whether a claim would find something. A read: it takes no lock, so an idle SQLite worker disturbs nobody."""
        return query_cache.exists(_anything(self, only))

    def is_due(self, row_id: UUID) -> bool:
        """Whether `claim_one` would find this row. A read."""
        return query_cache.exists(_one(self), row_id)

    def due(self, only: Claimable | None = None) -> Any:
        """The rows that a claim finds, for a query whose text is kept."""
        expired = Q(status=Status.RUNNING, lease_until__lt=kept_now())
        # The statuses are said once more in the words of the index: that much a planner sees.
        rows = self.model.objects.filter(self.ready() | expired, status__in=self.statuses)
        return rows.filter(only.condition()) if only else rows

    def renew(self, claims: Iterable[Claim], *, worker: UUID) -> int:
        """Lengthen leases that were handed out and not begun. Gives how many are still ours."""
        ours = Q(pk__in=[])
        for one in claims:
            ours |= Q(id=one.id, epoch=one.epoch)
        return int(self.model.objects.filter(ours, leased_by=worker).update(lease_until=db_in(conf().lease_seconds)))

    def change(self, row_id: UUID, epoch: int, returning: Sequence[str] = ("id",), /, **values: Any) -> Found:
        """Change a row for who has its lease, and give the fields in `returning`. No row: the lease is lost."""
        mine = {"id": row_id, "epoch": epoch, "status": Status.RUNNING}
        return update_returning(self.model, mine, returning, **values)

    def lengthen(self, row_id: UUID, epoch: int, returning: Sequence[str] = ("id",), /, **values: Any) -> Found:
        """`change` after which the lease is as long as a new one."""
        return self.change(row_id, epoch, returning, lease_until=db_in(conf().lease_seconds), **values)


@lru_cache(maxsize=100)
def _first(queue: Queue, only: Claimable | None, limit: int) -> Query:
    """The same function for the same values, so that its text is kept; and so the other two."""
    return lambda: queue.due(only).order_by(*queue.order).values("id")[:limit]


@lru_cache(maxsize=100)
def _anything(queue: Queue, only: Claimable | None) -> Query:
    return lambda: queue.due(only).order_by().values("id")[:1]


@lru_cache(maxsize=100)
def _one(queue: Queue) -> Query:
    return lambda row_id: queue.due().filter(id=row_id).values("id")
