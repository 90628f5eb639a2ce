"""Leases: who may write to a run now. The broker claims, the worker begins, renews and gives back.

Every statement names the epoch, so whoever lost the lease changes nothing. None of them touches a sealed column or the
log.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Q, QuerySet, Value, When
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db import query_cache
from checkpoints.db.claim import claim_rows
from checkpoints.db.clock import db_in, db_now, kept_now
from checkpoints.db.query_cache import Query
from checkpoints.db.statements import update_returning
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.models import Run
from checkpoints.models.run import CLAIM_ORDER, CLAIMABLE
from checkpoints.sealing.sealed_rows import Protection, protection_of

_LEASED = [
    "id", "epoch", "key", "graph", "version", "fingerprint", "encrypted", "hash_key", "payloads", "line", "superstep",
    "head", "head_seq", "head_hash", "event_seq", "event_hash", "wakes", "decisions", "seal", "seal_key",
    "claims_since_progress", "input", "input_hash", "started_by", "on_behalf_of", "tape", "label", "started_at",
    "cancel_at", "lease_until",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to begin: a run or a job, and the epoch that the claim gave it."""

    id: UUID
    epoch: int
    job: bool = False


@dataclass(frozen=True, slots=True)
class Claimable:
    """What this process can work on: fingerprints that it has registered, and graphs whose current version it has."""

    fingerprints: frozenset[str]
    graphs: frozenset[str]

    def condition(self) -> Q:
        return Q(fingerprint__in=sorted(self.fingerprints)) | Q(graph__in=sorted(self.graphs))


@dataclass(slots=True)
class Lease:
    """A begun lease, and the run as its holder knows it. The ledger keeps it in step with each commit."""

    id: UUID
    epoch: int
    key: str
    graph: str
    version: str
    fingerprint: str
    encrypted: bool
    hash_key: str
    payloads: str
    line: int
    superstep: int
    head: UUID
    head_seq: int
    head_hash: str
    end: LogEnd
    wakes: int
    decisions: int
    seal: bytes
    seal_key: str
    claims: int
    input: bytes
    input_hash: str
    started_by: int | None
    on_behalf_of: int | None
    tape: str
    label: str
    started: bool
    worker: UUID | None = None
    moved: bool = True
    cancelling: bool = False
    skew: timedelta = timedelta()
    unsaved: list[NewEvent] = field(default_factory=list)
    protection: Protection = field(init=False)

    def __post_init__(self) -> None:
        self.protection = protection_of(self)

    def now(self) -> datetime:
        """The time by the database's clock, as this process last compared the two."""
        return timezone.now() + self.skew


def claim(*, worker: UUID | None, limit: int, only: Claimable) -> list[Claim]:
    """Take up to `limit` runs that want a worker: queued and due, waiting and due, or running under an expired lease.

    Ordered by priority, then due time. One statement; on the database's clock; rows that others are taking are passed
    by.
    """
    return _claims(claim_rows(Run, _queue(only, limit), worker=worker, look=_anything(only)))


@lru_cache(maxsize=100)
def _queue(only: Claimable, limit: int) -> Query:
    """The same function for the same process and number, so that its text is kept."""
    return lambda: _due(only).order_by(*CLAIM_ORDER).values("id")[:limit]


def claim_one(run_id: UUID, *, worker: UUID | None = None) -> Claim | None:
    """Take this run if it wants a worker, whatever its graph; None where it does not."""
    taken = _claims(claim_rows(Run, _one, run_id, worker=worker))
    return taken[0] if taken else None


def _one(run_id: UUID) -> "QuerySet[Run, Any]":
    found: QuerySet[Run, Any] = _due(None).filter(id=run_id).values("id")
    return found


def any_run_due(only: Claimable) -> bool:
    """Whether a claim would find something. A read: it takes no lock, so an idle SQLite worker disturbs nobody."""
    return query_cache.exists(_anything(only))


@lru_cache(maxsize=100)
def _anything(only: Claimable) -> Query:
    return lambda: _due(only).order_by().values("id")[:1]


def _due(only: Claimable | None) -> Any:
    ready = Q(status=Status.QUEUED) & (Q(due_at__isnull=True) | Q(due_at__lte=kept_now()))
    timed = Q(status=Status.WAITING, due_at__lte=kept_now())
    expired = Q(status=Status.RUNNING, lease_until__lt=kept_now())
    # The statuses are said once more in the words of the index: that much a planner sees.
    runs = Run.objects.filter(ready | timed | expired, status__in=CLAIMABLE)
    return runs.filter(only.condition()) if only else runs


def _claims(taken: Iterable[Sequence[Any]]) -> list[Claim]:
    return [Claim(run_id, epoch) for run_id, epoch in taken]


def is_held(run_id: UUID) -> bool:
    """Whether a worker has the run in hand: a lease that has not run out, begun or not. On the database's clock."""
    return Run.objects.filter(id=run_id, status=Status.RUNNING, lease_until__gte=db_now()).exists()


def renew(claims: Iterable[Claim], *, worker: UUID) -> int:
    """Lengthen leases that were handed out and not begun. Gives how many are still ours."""
    ours = Q(pk__in=[])
    for one in claims:
        ours |= Q(id=one.id, epoch=one.epoch)
    return Run.objects.filter(ours, leased_by=worker).update(lease_until=db_in(conf().lease_seconds))


def begin_lease(run_id: UUID, epoch: int, *, worker: UUID | None = None) -> Lease | None:
    """The worker's first statement. None means that it came too late and must leave without a trace.

    Raises the epoch once more, so that of two workers with the same message one begins. Counts a begun claim; a
    committed superstep sets the count back.
    """
    mine = {"id": run_id, "epoch": epoch, "status": Status.RUNNING}
    rows = update_returning(Run, mine, _LEASED, epoch=epoch + 1, lease_until=db_in(conf().lease_seconds), **_begun())
    return _lease(rows[0], worker) if rows else None


def begin_next(*, worker: UUID | None, only: Claimable) -> Lease | None:
    """Take the run that `claim` would take first, and begin it, in one statement: for who has his hands free, so that
    there is no message between the two. The epoch is as after both.
    """
    rows = claim_rows(
        Run,
        _queue(only, 1),
        worker=worker,
        look=_anything(only),
        returning=_LEASED,
        epoch=_CLAIMED_AND_BEGUN,
        **_begun(),
    )
    return _lease(rows[0], worker) if rows else None


_CLAIMED_AND_BEGUN = F("epoch") + 2
_ONE_MORE = F("claims_since_progress") + 1
_ONE_LESS = Case(When(claims_since_progress__gt=0, then=F("claims_since_progress") - 1), default=Value(0))


@cache
def _begun() -> dict[str, Any]:
    """What the beginning of a claim changes beside its lease."""
    first = Case(When(started_at__isnull=True, then=kept_now()), default=F("started_at"))
    return {"claims_since_progress": _ONE_MORE, "started_at": first}


def _lease(held: Sequence[Any], worker: UUID | None) -> Lease:
    run = dict(zip(_LEASED, held, strict=True))
    end = LogEnd(run.pop("event_seq"), run.pop("event_hash"))
    claims = run.pop("claims_since_progress")
    started, cancelling = bool(run.pop("started_at")), bool(run.pop("cancel_at"))
    skew = run.pop("lease_until") - timedelta(seconds=conf().lease_seconds) - timezone.now()
    return Lease(end=end, claims=claims, worker=worker, started=started, cancelling=cancelling, skew=skew, **run)


class Pulse(StrEnum):
    """What a heartbeat found. Only a lost lease is false."""

    LOST = ""
    HELD = "held"
    CANCELLING = "cancelling"


def heartbeat(run_id: UUID, epoch: int, *, progress: bytes | None = None) -> Pulse:
    """Lengthen a begun lease, and write the progress that the node reported, as its column keeps it. Tells a request to
    cancel, too.
    """
    values: dict[str, Any] = {"lease_until": db_in(conf().lease_seconds)}
    if progress is not None:
        values["progress"] = progress
    mine = {"id": run_id, "epoch": epoch, "status": Status.RUNNING}
    rows = update_returning(Run, mine, ["cancel_at"], **values)
    if not rows:
        return Pulse.LOST
    return Pulse.CANCELLING if rows[0][0] else Pulse.HELD


def give_back(run_id: UUID, epoch: int, *, counts: bool = True, due_in: float = 0.0) -> bool:
    """End a slice: back to the queue, due in so many seconds. False: the lease was lost before. Where it says nothing
    of the run (a drain, a backend that is away), `counts` is False: the begun claim is taken back.
    """
    due = db_in(due_in) if due_in else db_now()
    values: dict[str, Any] = {"status": Status.QUEUED, "due_at": due, "lease_until": None, "leased_by": None}
    if not counts:
        values["claims_since_progress"] = _ONE_LESS
    return bool(update_returning(Run, {"id": run_id, "epoch": epoch, "status": Status.RUNNING}, ["id"], **values))


def release(claims: Sequence[Claim]) -> None:
    """Put claims that nobody has begun back into the queue, for a cluster that stops."""
    for one in claims:
        give_back(one.id, one.epoch)
