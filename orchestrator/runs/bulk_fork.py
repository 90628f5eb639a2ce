"""Forking many runs with one patch: as a job, each origin once, or as a dry run that counts plans of one kind.

A run is forked from its last good checkpoint: the newest of its line that is kept and committed. What is refused of one
run is written beside it, and the others go on.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal, overload
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from checkpoints import audit_log, timeline
from checkpoints.conf import conf, keyring
from checkpoints.core.arguments import checked_text
from checkpoints.core.ids import unknown_thing
from checkpoints.core.run_key import LONGEST_KEY
from checkpoints.core.status import Status
from checkpoints.db.clock import db_in
from checkpoints.db.pages import pages
from checkpoints.models import Checkpoint, Job, Run
from checkpoints.models.job import LIVE
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.retention import standing_jobs
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine import canonical
from orchestrator.engine.errors import (
    AWAY,
    CountersignError,
    InvalidValue,
    MissingSecrets,
    PayloadTooLarge,
    UnknownThing,
)
from orchestrator.engine.patch import PARTITIONS, json_of
from orchestrator.models import BulkFork, BulkForkResult
from orchestrator.runs import travel, travel_plan
from orchestrator.runs.act import require_rights
from orchestrator.runs.bulk_plan import BulkPlan
from orchestrator.runs.keys import get

KIND = "fork_runs"
BATCH = 20
"""Runs between two steps of the job."""
COLLECTED = 500
"""Runs that are noted at once."""


@dataclass(frozen=True, slots=True)
class WantedForks:
    """Which runs, and what is done with each."""

    graph: str = ""
    status: str = Status.FAILED
    patch: Mapping[str, Any] | None = None
    allow_effects: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.status, str) or self.status not in set(Status):
            raise InvalidValue(f"status is one of {', '.join(Status)}", path="status")
        checked_text(self.reason, "reason", most=travel.LONGEST_REASON)
        _check_patch(self.patch)

    def origins(self) -> "QuerySet[Run]":
        """The runs of the graph in that status, the oldest first: an index leads to those of a status."""
        return Run.objects.filter(graph=self.graph, status=self.status).order_by("created_at", "id")


def _check_patch(patch: Any) -> None:
    if patch is None:
        return
    if not isinstance(patch, Mapping) or set(patch) - {*PARTITIONS}:
        raise InvalidValue(f"a patch is an object with {' and '.join(PARTITIONS)}", path="patch")
    limit = conf().max_value_bytes
    if len(canonical.encode(json_of(patch))) > limit:
        raise PayloadTooLarge(f"a patch has at most {limit:,} bytes", path="patch", limit=limit)


@overload
def fork_many(
    checkpoint_ids: Collection[UUID | str] | None = None, *, graph: str | None = None, status: str = ...,
    patch: Mapping[str, Any] | None = None, allow_effects: Collection[str] = (), reason: str = "",
    by: AbstractBaseUser | None = None, dry_run: Literal[False] = False, most: int | None = None,
) -> Job: ...  # fmt: skip
@overload
def fork_many(
    checkpoint_ids: Collection[UUID | str] | None = None, *, graph: str | None = None, status: str = ...,
    patch: Mapping[str, Any] | None = None, allow_effects: Collection[str] = (), reason: str = "",
    by: AbstractBaseUser | None = None, dry_run: Literal[True], most: int | None = None,
) -> BulkPlan: ...  # fmt: skip
def fork_many(
    checkpoint_ids: Collection[UUID | str] | None = None,
    *,
    graph: str | None = None,
    status: str = Status.FAILED,
    patch: Mapping[str, Any] | None = None,
    allow_effects: Collection[str] = (),
    reason: str = "",
    by: AbstractBaseUser | None = None,
    dry_run: bool = False,
    most: int | None = None,
) -> Job | BulkPlan:
    """Fork each of these checkpoints, or each run of a graph in that status from its last good checkpoint, with one
    patch; a job does it. With `dry_run` nothing is written, and the plans of the first `most` runs are counted by kind.

    Raises `InvalidValue` (neither or both said, two checkpoints of one run, patch, status), `UnknownThing` (a
    checkpoint), `PayloadTooLarge`.
    """
    for right in ("steer_run", "view_run"):
        require_rights(by, right)
    if (checkpoint_ids is None) == (graph is None):
        raise InvalidValue("say either which checkpoints, or of which graph", path="checkpoints")
    allowed = travel_plan.checked_names(allow_effects)
    wanted = WantedForks(graph or "", status, patch, allowed, reason)
    points = None if checkpoint_ids is None else dict(_points(checkpoint_ids))
    if dry_run:
        return _planned(wanted, points, most)
    with transaction.atomic():
        job = Job.objects.get(id=jobs.add_job(KIND))
        _note(job, wanted, points or {}, by=by)
    return job


def _points(checkpoint_ids: Collection[UUID | str]) -> Iterator[tuple[UUID, UUID]]:
    """(run, checkpoint) of each. Raises `UnknownThing`, and `InvalidValue` for a second one of a run."""
    seen: set[UUID] = set()
    for given in checkpoint_ids:
        found = timeline.get_checkpoint(given)
        if found.run_id in seen:
            message = f"{given} is a second checkpoint of run {found.run_id}; a run is forked once"
            raise InvalidValue(message, path="checkpoints", run=str(found.run_id))
        seen.add(found.run_id)
        yield found.run_id, found.id


def _note(job: Job, wanted: WantedForks, points: Mapping[UUID, UUID], *, by: Any) -> None:
    protection = Protection(encrypted=bool(keyring().encryption))
    at = timezone.now()
    bulk = BulkFork(id=job.id, wanted=pack_json(asdict(wanted)), encrypted=protection.encrypted, by=by, at=at)
    sealed_rows.seal_and_encrypt([bulk], protection)
    bulk.save(force_insert=True)
    _collect(bulk, points)


def _collect(bulk: BulkFork, points: Mapping[UUID, UUID | None]) -> None:
    rows = [BulkForkResult(bulk=bulk, origin=run, checkpoint=checkpoint) for run, checkpoint in points.items()]
    BulkForkResult.objects.bulk_create(rows, ignore_conflicts=True, batch_size=COLLECTED)


def _planned(wanted: WantedForks, points: Mapping[UUID, UUID] | None, most: int | None) -> BulkPlan:
    found = BulkPlan(wanted.origins().count() if points is None else len(points))
    origins = ((run, last_good(run)) for page, _ in _pages(wanted.origins()) for run in page)
    for run, checkpoint in islice(origins if points is None else points.items(), most):
        try:
            plan = travel.plan(checkpoint or _nowhere(run), patch=wanted.patch, allow_effects=wanted.allow_effects)
        except CountersignError as error:
            found.add_refusal(error.code, sentence_of(error), str(run))
        else:
            found.add(plan, str(run))
    return found


def _pages(rows: "QuerySet[Run]", place: str = "") -> Iterator[tuple[list[UUID], str]]:
    """The ids of these runs behind a place, page by page, with the place of the last of each."""
    while found := list(_behind(rows, place).values_list("created_at", "id")[:COLLECTED]):
        place = f"{found[-1][0].isoformat()} {found[-1][1]}"
        yield [id for _, id in found], place


def _behind(rows: "QuerySet[Run]", place: str) -> "QuerySet[Run]":
    if not place:
        return rows
    at, id = place.split(" ")
    since = datetime.fromisoformat(at)
    return rows.filter(Q(created_at__gt=since) | Q(id__gt=id), created_at__gte=since)


def last_good(run: UUID) -> UUID | None:
    """The newest checkpoint of a run's current line that is kept and committed. One query."""
    kept = Checkpoint.objects.filter(run=run, kept=True, committed=True, line=F("run__line"))
    return kept.order_by("-seq").values_list("id", flat=True).first()


def _nowhere(run: UUID) -> UUID:
    raise UnknownThing(f"run {run} has no checkpoint that is kept and committed", run=str(run))


def sentence_of(error: CountersignError) -> str:
    """The refusal of one run, with the place in its patch."""
    path = error.facts.get("path")
    return error.message if not path or str(path) in error.message else f"{path}: {error.message}"


def fork_job(lease: JobLease) -> Iterator[Step]:
    """The kind `fork_runs`: note the runs of the graph, then fork those that wait, in batches. A run whose row has a
    time was done by whoever had the job before.
    """
    bulk = BulkFork.objects.select_related("by").filter(id=lease.id).first()
    if bulk is None:
        raise unknown_thing("bulk fork", lease.id)
    sealed_rows.verify_row(bulk, Protection(bulk.encrypted))
    given = read_value(bulk, "wanted")
    wanted = WantedForks(**{**given, "allow_effects": tuple(given["allow_effects"])})
    if wanted.graph:
        yield from _collected(bulk, wanted, lease.place or "")
    total = bulk.results.count()
    done, refused = bulk.results.filter(at__isnull=False).count(), bulk.results.exclude(code="").count()
    while rows := list(bulk.results.filter(at=None).order_by("id")[:BATCH]):
        done += len(rows)
        refused += sum(not _fork_one(bulk, wanted, row.pk) for row in rows)
        yield Step(done, total, f"{refused} refused", place="done")
    audit_log.record("runs_forked", actor=bulk.by, bulk=str(bulk.id), forked=done - refused, refused=refused)


def _collected(bulk: BulkFork, wanted: WantedForks, place: str) -> Iterator[Step]:
    """Note the runs that are there and began before the bulk fork did; so none of its forks is forked again."""
    if place == "done":
        return
    for ids, last in _pages(wanted.origins().filter(created_at__lte=bulk.at), place):
        _collect(bulk, dict.fromkeys(ids))
        yield Step(0, bulk.results.count(), "runs found", place=last)


def _fork_one(bulk: BulkFork, wanted: WantedForks, pk: int) -> bool:
    """Fork one run, in one transaction with the row that says so. True where a fork was made."""
    with transaction.atomic():
        row = BulkForkResult.objects.select_for_update().get(pk=pk)
        if row.at is not None:
            return not row.code
        try:
            row.checkpoint = row.checkpoint or last_good(row.origin) or _nowhere(row.origin)
            row.fork = _forked(bulk, wanted, row).id
        except (*AWAY, MissingSecrets):
            raise  # the job is tried again, from this run on
        except CountersignError as error:
            row.code = error.code
            kept = sealed_rows.encrypted(row, "message", pack_json(sentence_of(error)), Protection(bulk.encrypted))
            row.message = kept
        row.at = timezone.now()
        row.save()
    return row.fork is not None


def _forked(bulk: BulkFork, wanted: WantedForks, row: BulkForkResult) -> Run:
    # The verb undoes itself, and keeps what it must say of a run that was tampered with.
    return travel.fork(
        row.checkpoint or "",
        patch=wanted.patch,
        allow_effects=wanted.allow_effects,
        reason=wanted.reason,
        key=_key_of(bulk.id, row.origin),
        by=bulk.by,
    )


def _key_of(bulk: UUID, origin: UUID) -> str:
    """The key of a fork: the same each time that this job forks this run, so that no two can be made."""
    tail = canonical.digest(canonical.framed(bulk, origin))[:16]
    return f"{get(origin).key[: LONGEST_KEY - 1 - len(tail)]}~{tail}"


def old_bulk_forks(lease: JobLease) -> Iterator[Step]:
    """The kind `sweep_bulk_forks`: remove bulk forks whose jobs ended as long ago as jobs are kept, with what is said
    of each run, in batches. The runs that they made stay.
    """
    removed, since = int(lease.place or 0), db_in(-standing_jobs.KEPT_DAYS * 86_400)
    kept = Job.objects.filter(Q(status__in=LIVE) | Q(ended_at__gte=since), kind=KIND)
    old = BulkFork.objects.filter(at__lt=since).exclude(id__in=kept.values("id")).order_by("at")
    while (bulk := old.only("id").first()) is not None:
        rows = list(bulk.results.order_by("id").values_list("id", flat=True)[: standing_jobs.BATCH])
        if rows:
            BulkForkResult.objects.filter(id__in=rows).delete()
        else:
            bulk.delete()
            removed += 1
        yield Step(removed, note="old bulk forks removed", place=removed)


def bulk_fork_faults() -> Iterator[SealFault]:
    """The bulk forks whose orders are not as they were sealed. What became of each run has no seal; its fork has."""
    for page in pages(BulkFork.objects.all(), "id"):
        yield from filter(None, (fault_of(row, Protection(row.encrypted)) for row in page))


def counts_of(bulk: BulkFork) -> dict[str, int]:
    """How many runs there are, were forked, were refused, and wait."""
    rows: Sequence[tuple[str, QuerySet[BulkForkResult]]] = [
        ("total", bulk.results.all()),
        ("forked", bulk.results.filter(fork__isnull=False)),
        ("refused", bulk.results.exclude(code="")),
        ("waiting", bulk.results.filter(at=None)),
    ]
    return {name: found.count() for name, found in rows}
