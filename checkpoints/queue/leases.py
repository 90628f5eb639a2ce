"""Leases: who may write to a run now. The broker claims, the worker begins, renews and gives back.

Every statement names the epoch, so whoever lost the lease changes nothing. None of them touches a sealed column or the
log.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import Any
from uuid import UUID

from django.db.models import Case, F, Q, Value, When
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.core.status import Status
from checkpoints.db.clock import db_in, db_now, kept_now
from checkpoints.event_log import LogEnd, NewEvent
from checkpoints.models import Run
from checkpoints.models.run import CLAIM_ORDER, CLAIMABLE
from checkpoints.queue.queue import BACK, Claim, Claimable, Queue
from checkpoints.sealing.sealed_rows import Protection, protection_of

_LEASED = [
    "id", "epoch", "key", "graph", "version", "fingerprint", "encrypted", "hash_key", "payloads", "line", "superstep",
    "head", "head_seq", "head_hash", "event_seq", "event_hash", "wakes", "decisions", "seal", "seal_key",
    "claims_since_progress", "input", "input_hash", "started_by", "on_behalf_of", "tape", "label", "started_at",
    "origin_checkpoint", "cancel_at", "lease_until",
]  # fmt: skip


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
    started_at: datetime
    origin_checkpoint: UUID | None = None
    worker: UUID | None = None
    moved: bool = True
    cancelling: bool = False
    skew: timedelta = timedelta()
    unsaved: list[NewEvent] = field(default_factory=list)
    protection: Protection = field(init=False)

    def __post_init__(self) -> None:
        self.protection = protection_of(self)

    @property
    def departed(self) -> bool:
        """Whether its line began at a checkpoint of another."""
        return self.line > 1 or self.origin_checkpoint is not None

    def now(self) -> datetime:
        """The time by the database's clock, as this process last compared the two."""
        return timezone.now() + self.skew


def _ready() -> Q:
    queued = Q(status=Status.QUEUED) & (Q(due_at__isnull=True) | Q(due_at__lte=kept_now()))
    return queued | Q(status=Status.WAITING, due_at__lte=kept_now())


RUNS = Queue(Run, CLAIMABLE, _ready, CLAIM_ORDER)
"""Runs that want a worker: queued and due, waiting and due, or running under an expired lease."""
claim, claim_one, any_run_due, renew = RUNS.claim, RUNS.claim_one, RUNS.any_due, RUNS.renew


def is_held(run_id: UUID) -> bool:
    """Whether a worker has the run in hand: a lease that has not run out, begun or not. On the database's clock."""
    return Run.objects.filter(id=run_id, status=Status.RUNNING, lease_until__gte=db_now()).exists()


def begin_lease(run_id: UUID, epoch: int, *, worker: UUID | None = None) -> Lease | None:
    """The worker's first statement. None means that it came too late and must leave without a trace.

    Raises the epoch once more, so that of two workers with the same message one begins. Counts a begun claim; a
    committed superstep sets the count back.
    """
    rows = RUNS.lengthen(run_id, epoch, _LEASED, epoch=epoch + 1, **_begun())
    return _lease(rows[0], worker) if rows else None


def begin_next(*, worker: UUID | None, only: Claimable) -> Lease | None:
    """Take the run that `claim` would take first, and begin it, in one statement: for who has his hands free, so that
    there is no message between the two. The epoch is as after both.
    """
    rows = RUNS.take(1, worker=worker, only=only, returning=_LEASED, epoch=_CLAIMED_AND_BEGUN, **_begun())
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
    cancelling = bool(run.pop("cancel_at"))
    skew = run.pop("lease_until") - timedelta(seconds=conf().lease_seconds) - timezone.now()
    return Lease(end=end, claims=claims, worker=worker, cancelling=cancelling, skew=skew, **run)


class Pulse(StrEnum):
    """What a heartbeat found. Only a lost lease is false."""

    LOST = ""
    HELD = "held"
    CANCELLING = "cancelling"


def heartbeat(run_id: UUID, epoch: int, *, progress: bytes | None = None) -> Pulse:
    """Lengthen a begun lease, and write the progress that the node reported, as its column keeps it. Tells a request to
    cancel, too.
    """
    values = {"progress": progress} if progress is not None else {}
    rows = RUNS.lengthen(run_id, epoch, ["cancel_at"], **values)
    if not rows:
        return Pulse.LOST
    return Pulse.CANCELLING if rows[0][0] else Pulse.HELD


def give_back(run_id: UUID, epoch: int, *, counts: bool = True, due_in: float = 0.0) -> bool:
    """End a slice: back to the queue, due in so many seconds. False: the lease was lost before. Where it says nothing
    of the run (a drain, a backend that is away), `counts` is False: the begun claim is taken back.
    """
    values = {} if counts else {"claims_since_progress": _ONE_LESS}
    return bool(RUNS.change(run_id, epoch, due_at=db_in(due_in) if due_in else db_now(), **BACK, **values))


def release(claims: Sequence[Claim]) -> None:
    """Put claims that nobody has begun back into the queue, for a cluster that stops."""
    for one in claims:
        give_back(one.id, one.epoch)
