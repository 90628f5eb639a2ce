"""The job that removes what a policy does not keep: run after run, each piece in a short transaction of its own, with
its progress in the same transaction. Killed anywhere it goes on, and what it says it removed is what is gone.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth import get_user_model
from django.db import IntegrityError, OperationalError, transaction
from django.utils import timezone

from checkpoints import audit_log
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
from orchestrator.engine import canonical
from orchestrator.engine.errors import (
    CountersignError,
    StaleLease,
    TamperedRow,
    UnknownThing,
    WrongKey,
    WrongStatus,
)

KIND = "prune_runs"
HISTORY_PRUNED = "history_pruned"
"""The kind of the audit line that ends a removal."""
LOOKED_AT = 500
"""Runs of one look for what goes."""
EVERY_SECONDS = 0.2
MOST_NAMED = 100
"""Runs that did not verify, and runs that another app names, which the audit line names; all are counted."""
LONGEST_NAME = 200
"""Characters of the name of a job."""
MOST_MOVED = 0.01
"""Share by which the count may have moved since a person confirmed it."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Pruned:
    """How far a removal has got. `last` is the id of the last run that was looked at; `bad` are runs that did not
    verify, `referred` those that rows of other apps name.
    """

    last: str = ""
    rows: int = 0
    bytes: int = 0
    runs: int = 0
    skipped: int = 0
    bad: list[str] = field(default_factory=list)
    referred: list[str] = field(default_factory=list)
    seconds: float = 0.0
    told: bool = False

    def step(self, total: int) -> Step:
        """Progress for the job's row."""
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
    """Queue the removal of what a policy does not keep, as it stands now; `by` None is the system. Gives its job; where
    one for that graph is under way, that one.

    `most`: it stops behind the piece with which it has removed so many checkpoints.

    `confirmed` is the number of checkpoints that a person typed: raises `WrongStatus` where the count has moved by more
    than 1 % since, and where the removal under way is by an older policy. Raises `Forbidden` for whoever may not
    manage retention, and `InvalidValue` for a policy that says nothing clear, or asks for an archive that cannot be
    written.
    """
    require_manager(by)
    rule = rule_of(policy, now=now)
    require_sound(rule.graph)
    require_folder(rule)
    expected = count(rule)
    if confirmed is not None:
        require_confirmed(expected, confirmed)
    total = expected.counts["checkpoints"]
    limit = {} if most is None else {"most": most}
    facts = {
        **facts_of(rule),
        **limit,
        "total": total if most is None else min(total, most),
        "by": by.get_username() if by else "",
    }
    job = Job.objects.get(id=jobs.add_job(KIND, name=_name(rule.graph), **facts))
    if not rule_from(job.facts).says_the_same(rule):
        message = f"a removal for {rule.graph} by an older policy is under way; stop it, or wait until it ends"
        raise WrongStatus(message, job=str(job.id))
    return job


def _name(graph: str) -> str:
    """The name by which the removals of one graph are one at a time."""
    name = f"{KIND} {graph}"
    return name if len(name) <= LONGEST_NAME else f"{KIND} {canonical.digest(graph.encode())}"


def require_confirmed(now: DryRun, confirmed: int) -> None:
    """Raise `WrongStatus` where what would be removed has moved by more than 1 % since a person confirmed it."""
    counted = now.counts["checkpoints"]
    if abs(counted - confirmed) > MOST_MOVED * max(confirmed, 1):
        message = f"{counted} checkpoints would be removed now, not the {confirmed} that you confirmed: count again"

        raise WrongStatus(message, confirmed=confirmed, counted=counted)


def prune_job(lease: JobLease) -> Iterator[Step]:
    """The kind `prune_runs`. Facts: those of a rule, `total` and `by`."""
    rule, by = rule_from(lease.facts), _person(lease.facts["by"])
    require_sound(rule.graph)
    result, total = Pruned(**(lease.place or {})), int(lease.facts["total"])
    if rule.removes:
        told = 0.0
        for _ in _removed(lease, rule, by, result, total):
            # Each removal has kept its progress itself; this only lets the slice end.
            if time.monotonic() - told > EVERY_SECONDS:
                yield result.step(total)
                told = time.monotonic()
    if not result.told:
        with transaction.atomic():
            _tell(rule.graph, by, result, job=lease.id, limit=_limit_reached(lease, result))
            result.told = True
            jobs.report(lease, result.step(total))


def stop(job_id: UUID, *, by: Any) -> bool:
    """End a removal after the piece in hand, which is done whole or not at all, with its line in the audit log. False:
    it had ended before. Raises `UnknownThing`, and `Forbidden` for whoever may not manage retention.
    """
    require_manager(by)
    with transaction.atomic():
        if not jobs.cancel_job(job_id):
            return False
        job = Job.objects.get(id=job_id)
        result = Pruned(**(job.progress.get("place") or {}))
        _tell(job.facts["graph"], by, result, job=job_id, stopped=True)
    return True


def _limit_reached(lease: JobLease, result: Pruned) -> int | None:
    """Return the most checkpoints that a removal may take, where it has taken so many."""
    most: int | None = lease.facts.get("most")
    return most if most is not None and result.rows >= most else None


def _tell(graph: str, by: Any, result: Pruned, *, job: UUID, stopped: bool = False, limit: int | None = None) -> None:
    facts: dict[str, Any] = {"graph": graph, "checkpoints": result.rows, "bytes": result.bytes}
    facts |= {"runs": result.runs, "skipped": result.skipped, "bad": result.bad}
    facts |= {"referred": result.referred} if result.referred else {}
    facts |= {"stopped": True} if stopped else {}
    facts |= {"limit": limit} if limit is not None else {}
    audit_log.record("history_pruned", actor=by, job=str(job), **facts)


def _removed(lease: JobLease, rule: Rule, by: Any, result: Pruned, total: int) -> Iterator[None]:
    began, before = timezone.now(), result.seconds

    def note(removed: RemovedRows) -> None:
        result.rows, result.bytes = result.rows + removed.count, result.bytes + removed.bytes
        result.runs += removed.runs
        result.seconds = before + (timezone.now() - began).total_seconds()
        jobs.report(lease, result.step(total))

    work = _Work(rule, by, result, note)
    while ids := _next_runs(rule, result.last):
        for one, whole in _with_something(rule, ids):
            for _ in work.remove(one, whole=whole):
                yield
                if _limit_reached(lease, result) is not None:
                    return
            result.last = str(one)
            yield
            if _limit_reached(lease, result) is not None:
                return
        result.last = str(ids[-1])
        yield


def _next_runs(rule: Rule, last: str) -> list[UUID]:
    rows = Run.objects.filter(graph=rule.graph).order_by("id").values_list("id", flat=True)
    return list((rows.filter(id__gt=UUID(last)) if last else rows)[:LOOKED_AT])


def _with_something(rule: Rule, ids: list[UUID]) -> list[tuple[UUID, bool]]:
    """Of these runs those of which something goes, in order of their ids, and whether all goes."""
    rows = classified(rule).filter(run__in=ids, why__in=REMOVED).values_list("run_id", "why").distinct()
    return sorted((run, why == WITH_RUN) for run, why in rows)


@dataclass(slots=True)
class _Work:
    """Removing from run after run."""

    rule: Rule
    by: Any
    result: Pruned
    note: Callable[[RemovedRows], None]

    def remove(self, run: UUID, *, whole: bool) -> Iterator[None]:
        """Remove what goes of a run, yielding after each piece. A run that does not verify is left as it is, and is
        tampered from then on; one that cannot be verified, is locked too long, or is named by a row of another app, is
        left to the next removal.
        """
        before = asdict(self.result)
        try:
            _require_sound(run, whole=whole)
            archived, name = write_bundle(self.rule, run, self.by), self.by.get_username() if self.by else ""
            if whole:
                remove_run(self.rule, run, by=self.by, archived=archived, inside=self.note)
                return
            removed = remove_stretch(self.rule, run, by_name=name, archived=archived, inside=self.note)
            while removed and removed.more:
                before = asdict(self.result)
                yield
                removed = remove_stretch(self.rule, run, by_name=name, archived=archived, inside=self.note)
        except StaleLease:
            raise
        except UnknownThing:
            return  # removed since it was looked for
        except (CountersignError, OperationalError, IntegrityError) as error:
            for field_name, was in before.items():
                setattr(self.result, field_name, was)
            self._leave(run, error)

    def _leave(self, run: UUID, error: Exception) -> None:
        self.result.skipped += 1
        log.warning("not_pruned", run=str(run), error=str(error))
        if isinstance(error, IntegrityError) and len(self.result.referred) < MOST_NAMED:
            self.result.referred.append(str(run))
        if isinstance(error, CountersignError) and error.code in TAMPERED:
            locked_run.mark_tampered(run, error, ended=True)
            audit_log.record("refused_tampered", actor=self.by, run=run, row=str(error.facts.get("row", "")))
            if len(self.result.bad) < MOST_NAMED:
                self.result.bad.append(str(run))


def _require_sound(run: UUID, *, whole: bool) -> None:
    """Raise the refusal of the first fault of what is removed: a run's checkpoints, or all that hangs on it."""
    fault = next(iter(verify_run(run, most=1)), None) if whole else verify_checkpoints(run)
    if fault is not None:
        kind = TamperedRow if fault.code in TAMPERED else WrongKey
        raise kind(fault.reason, row=fault.what)


def _person(name: str) -> Any:
    users = get_user_model()
    return users._default_manager.filter(**{users.USERNAME_FIELD: name}).first() if name else None
