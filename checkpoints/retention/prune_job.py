"""The job that removes what a policy does not keep: run after run, each piece in a
short transaction that also records the progress. It continues after a kill at any
moment, and reports exactly what it removed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth import get_user_model
from django.db import IntegrityError, OperationalError, transaction
from django.db.models import Q
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.db.large_reads import index_order
from checkpoints.ledger import locked_run
from checkpoints.models import Job, RetentionPolicy, Run
from checkpoints.queue import jobs
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.retention.archive import require_folder, write_bundle
from checkpoints.retention.dry_runs import DryRun, count
from checkpoints.retention.kept_points import REMOVED, WITH_RUN, classified
from checkpoints.retention.policies import require_sound
from checkpoints.retention.rights import require_manager
from checkpoints.retention.rule import Rule, facts_of, rule_from, rule_of
from checkpoints.retention.stretches import RemovedRows, remove_stretch
from checkpoints.retention.whole_runs import remove_run
from checkpoints.verification import TAMPERED, verify_checkpoints, verify_run
from orchestrator.engine.errors import (
    CountersignError,
    StaleLease,
    TamperedRow,
    UnknownThing,
    WrongKey,
    WrongStatus,
)
from orchestrator.engine.values import canonical

KIND = "prune_runs"
HISTORY_PRUNED = "history_pruned"
"""The kind of the audit line that ends a removal."""
LOOKED_AT = 500
"""The runs of one query for what goes."""
EVERY_SECONDS = 0.2
MOST_NAMED = 100
"""The most runs that the audit line names, of those that did not verify, and of those
that another app names; all are counted.
"""
LONGEST_NAME = 200
"""The most characters of a job's name."""
MOST_MOVED = 0.01
"""The share by which the count may have moved since a person confirmed it."""

RunAt = tuple[UUID, datetime]
"""The id of a run, and when it was made."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Pruned:
    """The progress of a removal. `last` and `last_at` are the id of the last run that
    was looked at, and when it was made; `bad` are runs that did not verify, `referred`
    those that rows of other apps name, each the first of as many as are counted;
    `told`: its audit line is written.
    """

    last: str = ""
    last_at: str = ""
    rows: int = 0
    bytes: int = 0
    runs: int = 0
    skipped: int = 0
    bad: list[str] = field(default_factory=list)
    referred: list[str] = field(default_factory=list)
    bad_count: int = 0
    referred_count: int = 0
    seconds: float = 0.0
    told: bool = False

    def pass_run(self, run: RunAt) -> None:
        """Note that a run was examined: the next attempt begins after it."""
        id_, made_at = run
        self.last = str(id_)
        self.last_at = made_at.isoformat()

    def step(self, total: int) -> Step:
        """Return the progress for the job's row."""
        rate = self.rows / self.seconds if self.seconds else 0.0
        note = f"{self.rows} checkpoints, {self.bytes} bytes, {rate:.0f} a second"
        return Step(self.rows, max(total, self.rows), note, place=asdict(self))


def prune(
    policy: RetentionPolicy,
    *,
    by: Any,
    now: datetime | None = None,
    confirmed: int | None = None,
    most: int | None = None,
) -> Job:
    """Queue the removal of what a policy does not keep, as it stands now; `by` None is
    the system. Returns its job; if one for that graph is under way, that one.

    `most`: it stops after the piece with which it has removed this many checkpoints.

    `confirmed` is the number of checkpoints that a person typed: raises `WrongStatus`
    if the count has moved by more than 1 % since, and if the removal under way is by an
    older policy. Raises `Forbidden` for a person who may not manage retention, and
    `InvalidValue` for a policy that is not valid, or asks for an archive that cannot be
    written.
    """
    require_manager(by)
    rule = rule_of(policy, now=now)
    # Refused here, where a person waits for the answer, and not only by the job.
    require_sound(rule.graph)
    require_folder(rule)
    expected = count(rule)
    if confirmed is not None:
        require_confirmed(expected, confirmed)
    total = expected.counts["checkpoints"]
    facts = facts_of(rule)
    if most is not None:
        facts["most"] = most
        total = min(total, most)
    facts["total"] = total
    facts["by"] = by.get_username() if by else ""
    # If a removal of this graph is under way, this is its job and not a new one.
    job = Job.objects.get(id=jobs.add_job(KIND, name=_name(rule.graph), **facts))
    if not rule_from(job.facts).says_the_same(rule):
        message = (
            f"a removal for {rule.graph} by an older policy is under way; "
            "stop it, or wait until it ends"
        )
        raise WrongStatus(message, job=str(job.id))
    return job


def _name(graph: str) -> str:
    """Return the job's name, which ensures that only one removal of a graph runs at a
    time.
    """
    name = f"{KIND} {graph}"
    if len(name) <= LONGEST_NAME:
        return name
    # Cut off, two long names of graphs could become one, and one removal would wait.
    return f"{KIND} {canonical.digest(graph.encode())}"


def require_confirmed(now: DryRun, confirmed: int) -> None:
    """Raise `WrongStatus` if what would be removed has moved by more than 1 % since a
    person confirmed it.
    """
    counted = now.counts["checkpoints"]
    if abs(counted - confirmed) > MOST_MOVED * max(confirmed, 1):
        message = (
            f"{counted} checkpoints would be removed now, "
            f"not the {confirmed} that you confirmed: count again"
        )
        raise WrongStatus(message, confirmed=confirmed, counted=counted)


def prune_job(lease: JobLease) -> Iterator[Step]:
    """Do a job of the kind `prune_runs`. Facts: those of a rule, `total` and `by`."""
    rule = rule_from(lease.facts)
    by = _person(lease.facts["by"])
    # The row may have been changed by SQL since the removal was queued.
    require_sound(rule.graph)
    result = Pruned(**(lease.place or {}))
    total = int(lease.facts["total"])
    if rule.removes:
        last_step_at = 0.0
        for _ in _removed(lease, rule, by, result, total):
            # Each removal has saved its progress itself; this only ends the slice.
            if time.monotonic() - last_step_at > EVERY_SECONDS:
                yield result.step(total)
                last_step_at = time.monotonic()
    # The worker may have been killed between the last report and the end of the job.
    if not result.told:
        with transaction.atomic():
            limit = _limit_reached(lease, result)
            _record_end(rule.graph, by, result, job=lease.id, limit=limit)
            result.told = True
            jobs.report(lease, result.step(total))


def stop(job_id: UUID, *, by: Any) -> bool:
    """End a removal after the current piece, which is done whole or not at all, with
    its line in the audit log. Returns False if it had ended before. Raises
    `UnknownThing`, and `Forbidden` for a person who may not manage retention.
    """
    require_manager(by)
    with transaction.atomic():
        if not jobs.cancel_job(job_id):
            return False
        job = Job.objects.get(id=job_id)
        # After the cancellation, which ends the lease, no piece is committed.
        result = Pruned(**(job.progress.get("place") or {}))
        _record_end(job.facts["graph"], by, result, job=job_id, stopped=True)
    return True


def _limit_reached(lease: JobLease, result: Pruned) -> int | None:
    """Return the limit of a removal, if it has removed that many checkpoints."""
    most: int | None = lease.facts.get("most")
    if most is None or result.rows < most:
        return None
    return most


def _record_end(
    graph: str,
    by: Any,
    result: Pruned,
    *,
    job: UUID,
    stopped: bool = False,
    limit: int | None = None,
) -> None:
    """Write the audit line that ends a removal."""
    facts: dict[str, Any] = {
        "graph": graph,
        "checkpoints": result.rows,
        "bytes": result.bytes,
        "runs": result.runs,
        "skipped": result.skipped,
        "bad": result.bad,
    }
    if result.bad:
        facts["bad_count"] = result.bad_count
    if result.referred:
        facts["referred"] = result.referred
        facts["referred_count"] = result.referred_count
    if stopped:
        facts["stopped"] = True
    if limit is not None:
        facts["limit"] = limit
    audit_log.record("history_pruned", actor=by, job=str(job), **facts)


def _removed(
    lease: JobLease, rule: Rule, by: Any, result: Pruned, total: int
) -> Iterator[None]:
    """Remove piece by piece, and yield after each, until nothing more goes or the limit
    is reached.
    """
    began = timezone.now()
    seconds_before = result.seconds

    def note(removed: RemovedRows) -> None:
        result.rows += removed.count
        result.bytes += removed.bytes
        result.runs += removed.runs
        # The time of earlier slices counts, or the rate would be that of the last one.
        result.seconds = seconds_before + (timezone.now() - began).total_seconds()
        # In the transaction of the piece, so that none is counted twice or not at all.
        jobs.report(lease, result.step(total))

    work = _Work(rule, by, result, note)
    runs = _next_runs(rule, result)
    while runs:
        for run, whole in _runs_to_prune(rule, runs):
            run_id, _ = run
            for _ in work.remove(run_id, whole=whole):
                yield
                if _limit_reached(lease, result) is not None:
                    return
            result.pass_run(run)
            yield
            if _limit_reached(lease, result) is not None:
                return
        # Past runs from which nothing goes, or a next attempt would look at them again.
        result.pass_run(runs[-1])
        yield
        runs = _next_runs(rule, result)


def _next_runs(rule: Rule, result: Pruned) -> list[RunAt]:
    """Return the runs of the graph that follow the last one that was looked at, in the
    order of the index of graphs: no others are read.
    """
    runs = Run.objects.filter(graph=rule.graph)
    # A removal that has just begun has passed no run yet.
    if result.last_at:
        at = datetime.fromisoformat(result.last_at)
        behind = Q(created_at__gt=at) | Q(id__gt=UUID(result.last))
        runs = runs.filter(behind, created_at__gte=at)
    rows = runs.order_by("created_at", "id").values_list("id", "created_at")
    with index_order():
        return list(rows[:LOOKED_AT])


def _runs_to_prune(rule: Rule, runs: Sequence[RunAt]) -> list[tuple[RunAt, bool]]:
    """Return the runs among these that lose rows, in this order, and whether they go as
    a whole.
    """
    ids = [run_id for run_id, _ in runs]
    rows = classified(rule).filter(run__in=ids, why__in=REMOVED)
    # What makes a run go as a whole holds for all its rows, so each run is there once.
    words = dict(rows.values_list("run_id", "why").distinct())
    to_prune = []
    for run in runs:
        run_id, _ = run
        if run_id in words:
            to_prune.append((run, words[run_id] == WITH_RUN))
    return to_prune


@dataclass(slots=True)
class _Work:
    """Removing from run after run."""

    rule: Rule
    by: Any
    result: Pruned
    note: Callable[[RemovedRows], None]

    def remove(self, run: UUID, *, whole: bool) -> Iterator[None]:
        """Remove what goes of a run, yielding between pieces. A run that does not
        verify is left as it is, and is tampered from then on; one that cannot be
        verified, is locked too long, or is named by a row of another app, is left to
        the next removal.
        """
        result_before = asdict(self.result)
        try:
            # Otherwise a summary line would sign away what was tampered with.
            _require_sound(run, whole=whole)
            archived = write_bundle(self.rule, run, self.by)
            if whole:
                remove_run(
                    self.rule, run, by=self.by, archived=archived, inside=self.note
                )
                return
            name = self.by.get_username() if self.by else ""
            remove_next = partial(
                remove_stretch,
                self.rule,
                run,
                by_name=name,
                archived=archived,
                inside=self.note,
            )
            removed = remove_next()
            while removed and removed.may_be_more:
                # This piece is committed; a refusal of the next one leaves it.
                result_before = asdict(self.result)
                yield
                removed = remove_next()
        # Another worker has the job; the run itself is not at fault.
        except StaleLease:
            raise
        except UnknownThing:
            # It was removed since it was looked for.
            return
        except (CountersignError, OperationalError, IntegrityError) as error:
            # The piece was rolled back, and its progress with it.
            for field_name, value in result_before.items():
                setattr(self.result, field_name, value)
            self._skip(run, error)

    def _skip(self, run: UUID, error: Exception) -> None:
        self.result.skipped += 1
        log.warning("not_pruned", run=str(run), error=str(error))
        if isinstance(error, IntegrityError):
            self.result.referred_count += 1
            if len(self.result.referred) < MOST_NAMED:
                self.result.referred.append(str(run))
        if isinstance(error, CountersignError) and error.code in TAMPERED:
            locked_run.mark_tampered(run, error, ended=True)
            audit_log.record(
                "refused_tampered",
                actor=self.by,
                run=run,
                row=str(error.facts.get("row", "")),
            )
            self.result.bad_count += 1
            if len(self.result.bad) < MOST_NAMED:
                self.result.bad.append(str(run))


def _require_sound(run: UUID, *, whole: bool) -> None:
    """Raise the refusal of the first fault of what is removed: a run's checkpoints, or
    all that hangs on it.
    """
    # If a run goes as a whole, nothing is left that could show a fault later.
    faults = verify_run(run, most=1) if whole else [verify_checkpoints(run)]
    fault = next(iter(faults), None)
    if fault is not None:
        kind = TamperedRow if fault.code in TAMPERED else WrongKey
        raise kind(fault.reason, row=fault.what)


def _person(name: str) -> Any:
    if not name:
        return None
    users = get_user_model()
    return users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
