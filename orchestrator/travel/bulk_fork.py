"""Forking many runs with one patch: as a job that forks each origin once, or as a dry
run that counts plans of the same kind.

A run is forked from its last good checkpoint: the newest of its line that is kept and
committed. If one run is refused, the reason is recorded in its result and the others
continue.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import Any, Literal, overload
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from checkpoints import timeline
from checkpoints.audit import lines as audit_log
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
from checkpoints.rights import require_right_of_verb
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_columns import pack_json, read_value
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import (
    AWAY,
    CountersignError,
    InvalidValue,
    MissingSecrets,
    PayloadTooLarge,
    UnknownThing,
)
from orchestrator.engine.travel.patch import PARTITIONS, json_of
from orchestrator.engine.values import canonical
from orchestrator.models import BulkFork, BulkForkResult
from orchestrator.run_access.keys import get
from orchestrator.travel import plan as travel_plan
from orchestrator.travel import verbs as travel
from orchestrator.travel.bulk_plan import BulkPlan

KIND = "fork_runs"
BATCH = 20
"""The most runs that are forked between two steps of the job."""
COLLECTED = 500
"""The most runs that one statement reads or records."""


@dataclass(frozen=True, slots=True)
class WantedForks:
    """The runs to be forked, unless their checkpoints are listed, and what to do with
    each. Raises `InvalidValue` and `PayloadTooLarge` for what no fork could take.
    """

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
        """Return the graph's runs in that status, oldest first. An index leads to the
        runs of a status.
        """
        return Run.objects.filter(graph=self.graph, status=self.status).order_by(
            "created_at", "id"
        )


def _check_patch(patch: Any) -> None:
    if patch is None:
        return
    if not isinstance(patch, Mapping) or set(patch) - {*PARTITIONS}:
        raise InvalidValue(
            f"a patch is an object with {' and '.join(PARTITIONS)}", path="patch"
        )
    limit = conf().max_value_bytes
    if len(canonical.encode(json_of(patch))) > limit:
        raise PayloadTooLarge(
            f"a patch has at most {limit:,} bytes", path="patch", limit=limit
        )


@overload
def fork_many(
    checkpoint_ids: Collection[UUID | str] | None = None,
    *,
    graph: str | None = None,
    status: str = ...,
    patch: Mapping[str, Any] | None = None,
    allow_effects: Collection[str] = (),
    reason: str = "",
    by: AbstractBaseUser | None = None,
    dry_run: Literal[False] = False,
    most: int | None = None,
) -> Job: ...
@overload
def fork_many(
    checkpoint_ids: Collection[UUID | str] | None = None,
    *,
    graph: str | None = None,
    status: str = ...,
    patch: Mapping[str, Any] | None = None,
    allow_effects: Collection[str] = (),
    reason: str = "",
    by: AbstractBaseUser | None = None,
    dry_run: Literal[True],
    most: int | None = None,
) -> BulkPlan: ...
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
    """Fork each of these checkpoints, or each run of a graph in that status from its
    last good checkpoint, with one patch; a job does it. With `dry_run` nothing is
    written, and the plans of the first `most` runs are counted by kind.

    Raises `InvalidValue` (neither or both of checkpoints and graph, two checkpoints of
    one run, patch, status), `UnknownThing` (a checkpoint), `PayloadTooLarge`.
    """
    # Plans and refusals show runs that are not checked one by one.
    for right in ("steer_run", "view_run"):
        require_right_of_verb(by, right)
    if graph == "":
        raise InvalidValue("a graph has a name", path="graph")
    if (checkpoint_ids is None) == (graph is None):
        raise InvalidValue(
            "say either which checkpoints, or of which graph", path="checkpoints"
        )
    allowed = travel_plan.checked_names(allow_effects)
    request = WantedForks(graph or "", status, patch, allowed, reason)
    checkpoints = None
    if checkpoint_ids is not None:
        checkpoints = _checkpoints_by_run(checkpoint_ids)
    if dry_run:
        return _dry_run(request, checkpoints, most)
    with transaction.atomic():
        job = Job.objects.get(id=jobs.add_job(KIND))
        bulk = _create_bulk_fork(job, request, by=by)
        _create_results(bulk, checkpoints or {})
    return job


def _checkpoints_by_run(checkpoint_ids: Collection[UUID | str]) -> dict[UUID, UUID]:
    """Return the checkpoint of each run. Raises `UnknownThing`, and `InvalidValue` for
    a second checkpoint of the same run.
    """
    checkpoints: dict[UUID, UUID] = {}
    for checkpoint_id in checkpoint_ids:
        checkpoint = timeline.get_checkpoint(checkpoint_id)
        run = checkpoint.run_id
        if run in checkpoints:
            raise InvalidValue(
                f"{checkpoint_id} is a second checkpoint of run {run}; "
                "a run is forked once",
                path="checkpoints",
                run=str(run),
            )
        checkpoints[run] = checkpoint.id
    return checkpoints


def _create_bulk_fork(job: Job, request: WantedForks, *, by: Any) -> BulkFork:
    protection = Protection(encrypted=bool(keyring().encryption))
    bulk = BulkFork(
        # The job finds it by its own id, and needs no facts.
        id=job.id,
        wanted=pack_json(asdict(request)),
        encrypted=protection.encrypted,
        by=by,
        at=timezone.now(),
    )
    # Sealed, because the job does to many runs what this row says.
    sealed_rows.seal_and_encrypt([bulk], protection)
    bulk.save(force_insert=True)
    return bulk


def _create_results(bulk: BulkFork, checkpoints: Mapping[UUID, UUID | None]) -> None:
    """Record the runs to be forked, each with its checkpoint, or None for its last good
    one. A run that is recorded already stays as it is.
    """
    rows: list[BulkForkResult] = []
    for run, checkpoint in checkpoints.items():
        rows.append(BulkForkResult(bulk=bulk, origin=run, checkpoint=checkpoint))
    BulkForkResult.objects.bulk_create(
        rows, ignore_conflicts=True, batch_size=COLLECTED
    )


def _dry_run(
    request: WantedForks, checkpoints: Mapping[UUID, UUID] | None, most: int | None
) -> BulkPlan:
    """Return the plans and refusals of the first `most` forks, counted by kind."""
    origins: Iterable[tuple[UUID, UUID | None]]
    if checkpoints is None:
        bulk_plan = BulkPlan(request.origins().count())
        origins = _origins_of_graph(request)
    else:
        bulk_plan = BulkPlan(len(checkpoints))
        origins = checkpoints.items()
    for run, checkpoint in islice(origins, most):
        try:
            plan = travel.plan(
                _checkpoint_to_fork(run, checkpoint),
                patch=request.patch,
                allow_effects=request.allow_effects,
            )
        except CountersignError as error:
            # As in the job: one refused run does not end it.
            bulk_plan.add_refusal(error.code, sentence_of(error), str(run))
        else:
            bulk_plan.add(plan, str(run))
    return bulk_plan


def _origins_of_graph(request: WantedForks) -> Iterator[tuple[UUID, None]]:
    """Yield the runs of the graph, each without a checkpoint that was chosen for it."""
    for ids, _ in _pages(request.origins()):
        for id in ids:
            yield id, None


def _pages(rows: "QuerySet[Run]", place: str = "") -> Iterator[tuple[list[UUID], str]]:
    """Yield the ids of the runs that follow a place, page by page, each page with the
    place of its last run.
    """
    while True:
        page_rows = _rows_after(rows, place).values_list("created_at", "id")
        page = list(page_rows[:COLLECTED])
        if not page:
            return
        created_at, last_id = page[-1]
        place = f"{created_at.isoformat()} {last_id}"
        yield [id for _, id in page], place


def _rows_after(rows: "QuerySet[Run]", place: str) -> "QuerySet[Run]":
    if not place:
        return rows
    moment, id = place.split(" ")
    created_at = datetime.fromisoformat(moment)
    # The bound on `created_at` alone is what the index can use.
    return rows.filter(
        Q(created_at__gt=created_at) | Q(id__gt=id), created_at__gte=created_at
    )


def last_good(run: UUID) -> UUID | None:
    """Return the newest checkpoint of a run's current line that is kept and committed.
    One query.
    """
    good = Checkpoint.objects.filter(
        run=run, kept=True, committed=True, line=F("run__line")
    )
    return good.order_by("-seq").values_list("id", flat=True).first()


def _checkpoint_to_fork(run: UUID, chosen: UUID | None) -> UUID:
    """Return the checkpoint that was chosen for a run, else its last good one. Raises
    `UnknownThing` if it has none.
    """
    checkpoint = chosen or last_good(run)
    if checkpoint is None:
        raise UnknownThing(
            f"run {run} has no checkpoint that is kept and committed", run=str(run)
        )
    return checkpoint


def sentence_of(error: CountersignError) -> str:
    """Return the refusal of one run, with the place in its patch."""
    path = error.facts.get("path")
    if not path or str(path) in error.message:
        return error.message
    return f"{path}: {error.message}"


def fork_job(lease: JobLease) -> Iterator[Step]:
    """Run a job of the kind `fork_runs`: record the runs of the graph, then fork those
    that wait, in batches. A result that has a time was written by an earlier holder of
    the job.
    """
    bulk = BulkFork.objects.select_related("by").filter(id=lease.id).first()
    if bulk is None:
        raise unknown_thing("bulk fork", lease.id)
    sealed_rows.verify_row(bulk, Protection(bulk.encrypted))
    request = _stored_request(bulk)
    if request.graph:
        yield from _collect_origins(bulk, request, lease.place or "")
    total = bulk.results.count()
    done = bulk.results.filter(at__isnull=False).count()
    refused = bulk.results.exclude(code="").count()
    while rows := list(bulk.results.filter(at=None).order_by("id")[:BATCH]):
        for row in rows:
            if not _fork_one(bulk, request, row.pk):
                refused += 1
        done += len(rows)
        yield Step(done, total, f"{refused} refused", place="done")
    audit_log.record(
        "runs_forked",
        actor=bulk.by,
        bulk=str(bulk.id),
        forked=done - refused,
        refused=refused,
    )


def _stored_request(bulk: BulkFork) -> WantedForks:
    stored = read_value(bulk, "wanted")
    # JSON has no tuples.
    allow_effects = tuple(stored["allow_effects"])
    return WantedForks(**{**stored, "allow_effects": allow_effects})


def _collect_origins(
    bulk: BulkFork, request: WantedForks, place: str
) -> Iterator[Step]:
    """Record the runs of the graph that began before the bulk fork did, so that no
    fork that it made is forked again.
    """
    if place == "done":
        return
    origins = request.origins().filter(created_at__lte=bulk.at)
    for ids, last_place in _pages(origins, place):
        _create_results(bulk, dict.fromkeys(ids))
        yield Step(0, bulk.results.count(), "runs found", place=last_place)


def _fork_one(bulk: BulkFork, request: WantedForks, pk: int) -> bool:
    """Fork one run, in one transaction with the row that records it. Return whether a
    fork was made.
    """
    with transaction.atomic():
        row = BulkForkResult.objects.select_for_update().get(pk=pk)
        # Another holder of the job may have been faster; a run is forked once.
        if row.at is not None:
            return not row.code
        try:
            row.checkpoint = _checkpoint_to_fork(row.origin, row.checkpoint)
            row.fork = _fork(bulk, request, row).id
        except (*AWAY, MissingSecrets):
            # The job is tried again, from this run on.
            raise
        except CountersignError as error:
            row.code = error.code
            row.message = sealed_rows.encrypted(
                row,
                "message",
                pack_json(sentence_of(error)),
                Protection(bulk.encrypted),
            )
        row.at = timezone.now()
        row.save()
    return row.fork is not None


def _fork(bulk: BulkFork, request: WantedForks, row: BulkForkResult) -> Run:
    # The verb undoes itself, and keeps what it must record of a run that was tampered
    # with.
    return travel.fork(
        row.checkpoint or "",
        patch=request.patch,
        allow_effects=request.allow_effects,
        reason=request.reason,
        key=_key_of_fork(bulk.id, row.origin),
        by=bulk.by,
    )


def _key_of_fork(bulk: UUID, origin: UUID) -> str:
    """Return the key of a fork: the same each time this job forks this run, so that no
    two forks of it can be made.
    """
    tail = canonical.digest(canonical.framed(bulk, origin))[:16]
    return f"{get(origin).key[: LONGEST_KEY - 1 - len(tail)]}~{tail}"


def old_bulk_forks(lease: JobLease) -> Iterator[Step]:
    """Run a job of the kind `sweep_bulk_forks`: remove bulk forks whose jobs ended as
    long ago as jobs are kept, with the results of their runs, in batches. The runs that
    they made stay.
    """
    removed = int(lease.place or 0)
    since = db_in(-standing_jobs.KEPT_DAYS * 86_400)
    # A job may be live or recent although its bulk fork was ordered long ago.
    recent_jobs = Job.objects.filter(
        Q(status__in=LIVE) | Q(ended_at__gte=since), kind=KIND
    )
    old = BulkFork.objects.filter(at__lt=since)
    old = old.exclude(id__in=recent_jobs.values("id")).order_by("at")
    while (bulk := old.only("id").first()) is not None:
        ids = bulk.results.order_by("id").values_list("id", flat=True)
        batch = list(ids[: standing_jobs.BATCH])
        # The results go first, so that no transaction removes more than a batch.
        if batch:
            BulkForkResult.objects.filter(id__in=batch).delete()
        else:
            bulk.delete()
            removed += 1
        yield Step(removed, note="old bulk forks removed", place=removed)


def bulk_fork_faults() -> Iterator[SealFault]:
    """Yield a fault for each bulk fork whose request does not match its seal. The
    results of its runs have no seal; their forks have.
    """
    for page in pages(BulkFork.objects.all(), "id"):
        for row in page:
            fault = fault_of(row, Protection(row.encrypted))
            if fault is not None:
                yield fault


def counts_of(bulk: BulkFork) -> dict[str, int]:
    """Return how many runs there are, were forked, were refused, and wait."""
    results = bulk.results
    return {
        "total": results.count(),
        "forked": results.filter(fork__isnull=False).count(),
        "refused": results.exclude(code="").count(),
        "waiting": results.filter(at=None).count(),
    }
