"""Leases: the right to write to a run. The broker claims, the worker begins, renews and
gives back.

Every statement names the epoch, so a worker that lost the lease changes nothing. None
of them touches a sealed column or the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Q, QuerySet, Value, When
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db import query_cache
from checkpoints.db.claim import claim_rows, has_row
from checkpoints.db.clock import db_in, db_now, kept_now
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.models import Run
from checkpoints.queue import due_runs
from checkpoints.queue.due_runs import Claimable
from checkpoints.queue.queue import BACK, Claim, Queue
from checkpoints.sealing.sealed_rows import Protection, protection_of

# The columns of the run that a worker needs, returned by the statement that begins.
_LEASED = [
    "id",
    "epoch",
    "key",
    "graph",
    "version",
    "fingerprint",
    "encrypted",
    "hash_key",
    "payloads",
    "line",
    "superstep",
    "head",
    "head_seq",
    "head_hash",
    "event_seq",
    "event_hash",
    "wakes",
    "decisions",
    "seal",
    "seal_key",
    "claims_since_progress",
    "input",
    "input_hash",
    "started_by",
    "on_behalf_of",
    "tape",
    "label",
    "started_at",
    "origin_checkpoint",
    "cancel_at",
    "lease_until",
]


@dataclass(slots=True)
class Lease:
    """A begun lease, and the run as its holder knows it. The ledger updates it with
    each commit.
    """

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
    started_at: datetime
    origin_checkpoint: UUID | None = None
    worker: UUID | None = None
    # Set from the start, so that the first look reads the open requests.
    moved: bool = True
    cancelling: bool = False
    skew: timedelta = timedelta()
    unsaved: list[NewEvent] = field(default_factory=list)
    # Of OpenTelemetry; None where nothing is traced.
    tracer: Any = None
    protection: Protection = field(init=False)

    def __post_init__(self) -> None:
        self.protection = protection_of(self)

    @property
    def departed(self) -> bool:
        """Return whether its line began at a checkpoint of another line or run."""
        return self.line > 1 or self.origin_checkpoint is not None

    def now(self) -> datetime:
        """Return the time of the database's clock, as the clocks were last compared."""
        return timezone.now() + self.skew


def _ready() -> Q:
    # A run that has just been started has no due time.
    queued = Q(status=Status.QUEUED) & (
        Q(due_at__isnull=True) | Q(due_at__lte=kept_now())
    )
    return queued | Q(status=Status.WAITING, due_at__lte=kept_now())


RUNS = Queue(Run, (Status.QUEUED, Status.RUNNING, Status.WAITING), _ready, ())
"""Runs that want a worker: queued and due, waiting and due, or running under an expired
lease. `due_runs` has the order in which they are claimed.
"""
claim_one = RUNS.claim_one
renew = RUNS.renew


def claim(
    *, worker: UUID | None, limit: int, only: Claimable | None = None
) -> list[Claim]:
    """Take up to `limit` runs that need a worker, the first in order, of those that can
    be worked on here (None: of all runs). One statement; rows that others are taking
    are skipped.
    """
    taken = claim_rows(
        Run,
        due_runs.first_due(limit, only),
        worker=worker,
        look=due_runs.any_due(only),
    )
    return RUNS.claims(taken)


def any_run_due(only: Claimable | None) -> bool:
    """Return whether `claim` would find something. Only reads, so that an idle SQLite
    worker takes no lock.
    """
    return has_row(due_runs.any_due(only))


def is_held(run_id: UUID) -> bool:
    """Return whether a worker has a lease on the run, begun or not, that has not
    expired by the database's clock.
    """
    return query_cache.exists(_query_held, run_id)


def _query_held(run: UUID) -> "QuerySet[Any, Any]":
    held = Run.objects.filter(
        id=run, status=Status.RUNNING, lease_until__gte=kept_now()
    )
    return held.order_by().values_list("id")[:1]


def begin_lease(
    run_id: UUID, epoch: int, *, worker: UUID | None = None
) -> Lease | None:
    """Begin the lease of a claim; it is the worker's first statement. Returns None if
    the worker came too late and must leave without a trace.

    The epoch is increased again, so that only one of two workers with the same message
    begins. Counts a begun claim; a committed superstep resets the count.
    """
    rows = RUNS.lengthen(run_id, epoch, _LEASED, epoch=epoch + 1, **_begun())
    return _lease(rows[0], worker) if rows else None


def begin_next(*, worker: UUID | None, only: Claimable) -> Lease | None:
    """Take the run that `claim` would take first, and begin it, in one statement: an
    idle worker needs no message between the two. The epoch is as after both.
    """
    rows = claim_rows(
        Run,
        due_runs.first_due(1, only),
        worker=worker,
        look=due_runs.any_due(only),
        returning=_LEASED,
        epoch=_CLAIMED_AND_BEGUN,
        **_begun(),
    )
    return _lease(rows[0], worker) if rows else None


_CLAIMED_AND_BEGUN = F("epoch") + 2
_ONE_MORE = F("claims_since_progress") + 1
# Never below 0: a superstep that was committed since the begin has reset the count.
_ONE_LESS = Case(
    When(claims_since_progress__gt=0, then=F("claims_since_progress") - 1),
    default=Value(0),
)


@cache
def _begun() -> dict[str, Any]:
    """Return the other columns that change where a lease begins."""
    first_start = Case(
        When(started_at__isnull=True, then=kept_now()), default=F("started_at")
    )
    return {"claims_since_progress": _ONE_MORE, "started_at": first_start}


def _lease(values: Sequence[Any], worker: UUID | None) -> Lease:
    run = dict(zip(_LEASED, values, strict=True))
    end = LogEnd(run.pop("event_seq"), run.pop("event_hash"))
    claims = run.pop("claims_since_progress")
    cancelling = bool(run.pop("cancel_at"))
    # The statement that took these values made the lease as long as this.
    begun_at = run.pop("lease_until") - timedelta(seconds=conf().lease_seconds)
    skew = begun_at - timezone.now()
    return Lease(
        end=end, claims=claims, worker=worker, cancelling=cancelling, skew=skew, **run
    )


class Pulse(StrEnum):
    """The result of a heartbeat. Only a lost lease is false."""

    LOST = ""
    HELD = "held"
    CANCELLING = "cancelling"


def heartbeat(run_id: UUID, epoch: int, *, progress: bytes | None = None) -> Pulse:
    """Lengthen a begun lease, and write the progress that the node reported, in the
    form of its column. The result also shows whether the run is to be cancelled.
    """
    values = {"progress": progress} if progress is not None else {}
    rows = RUNS.lengthen(run_id, epoch, ["cancel_at"], **values)
    if not rows:
        return Pulse.LOST
    return Pulse.CANCELLING if rows[0][0] else Pulse.HELD


def give_back(
    run_id: UUID, epoch: int, *, counts: bool = True, due_in: float = 0.0
) -> bool:
    """End a slice: the run is queued again, due in this many seconds. Returns False if
    the lease was lost before. If the run is not the reason that the slice ends (a
    drain, a backend that is away), `counts` is False, and the begun claim is not
    counted.
    """
    values = {} if counts else {"claims_since_progress": _ONE_LESS}
    due_at = db_in(due_in) if due_in else db_now()
    return bool(RUNS.change(run_id, epoch, due_at=due_at, **BACK, **values))


def release(claims: Sequence[Claim]) -> None:
    """Return claims that were not begun to the queue, for a cluster that stops."""
    for claim in claims:
        give_back(claim.id, claim.epoch)
