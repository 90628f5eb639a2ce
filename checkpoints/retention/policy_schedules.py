"""Policies that act by themselves: the daily job that runs each of them, and the dry
run that a steward confirms before a new or changed policy has its first turn. A sealed
line of the audit log records what was confirmed.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import structlog
from django.db.models import Max

from checkpoints.audit import lines as audit_log
from checkpoints.models import AuditLine, Job, RetentionPolicy
from checkpoints.models.job import LIVE
from checkpoints.queue.jobs import JobLease, Step
from checkpoints.retention.dry_runs import count
from checkpoints.retention.prune_job import HISTORY_PRUNED, prune, require_confirmed
from checkpoints.retention.rights import require_manager
from checkpoints.retention.rule import rule_of
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from checkpoints.verification.kept_by_people import DELETED
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen
from orchestrator.engine.values import canonical

KIND = "run_policies"
"""The kind of the standing job that applies the policies."""
CONFIRMED = "retention_policy_confirmed"

log = structlog.get_logger(__name__)


@frozen
class Schedule:
    """The times at which a policy acted last and acts next. `next_at` None: never by
    itself, because it is switched off or, if it `waits`, because nobody has confirmed
    its dry run. `last_job` None: the row of that job is gone.
    """

    last_at: datetime | None
    last_checkpoints: int
    last_job: Any
    next_at: datetime | None
    waits: bool


def rule_digest(policy: RetentionPolicy) -> str:
    """Return the hash of the fields that decide which history goes; the switch and the
    limit are not part of it.
    """
    rule = {
        "graph": policy.graph,
        "keep_last": policy.keep_last,
        "max_age_days": _days(policy.max_age_days),
        "remove_runs_after_days": _days(policy.remove_runs_after_days),
        "archive": bool(policy.archive),
    }
    return canonical.digest(canonical.encode(rule))


def _days(ages: Mapping[str, Any] | None) -> dict[str, float]:
    # A form stores 30.0 where code stores 30, and both are the same rule.
    return {status: float(days) for status, days in (ages or {}).items()}


def confirm_policy(policy: RetentionPolicy, *, by: Any, confirmed: int) -> None:
    """Allow a policy, as it stands now, to act by itself from its next turn on.
    `confirmed` is the number of checkpoints that its dry run showed.

    Raises `Forbidden`, `InvalidValue` for a policy that is not valid, and `WrongStatus`
    if the count has moved by more than 1 %.
    """
    require_manager(by)
    counted = count(rule_of(policy))
    require_confirmed(counted, confirmed)
    note_confirmed(policy, by=by, checkpoints=confirmed)


def note_confirmed(policy: RetentionPolicy, *, by: Any, checkpoints: int) -> None:
    """Record that a person has seen the dry run of a policy, unless that is recorded
    already.
    """
    if not is_confirmed(policy):
        digest = rule_digest(policy)
        audit_log.record(
            CONFIRMED,
            actor=by,
            graph=policy.graph,
            rule=digest,
            checkpoints=checkpoints,
        )


def is_confirmed(policy: RetentionPolicy) -> bool:
    """Return whether a person has confirmed the dry run of a policy as it stands now.
    One query.
    """
    # The row of a deleted policy says nothing of it; a new one must be confirmed again.
    lines = AuditLine.objects.filter(kind__in=(CONFIRMED, DELETED), graph=policy.graph)
    return _confirms(lines.order_by("-id").first(), policy)


def _confirms(line: AuditLine | None, policy: RetentionPolicy) -> bool:
    if line is None or line.kind != CONFIRMED:
        return False
    # With the database alone one can write such a line, but not its seal.
    if fault_of(line, PLAIN) is not None:
        return False
    return bool(line.facts.get("rule") == rule_digest(policy))


def schedules_of(policies: Iterable[RetentionPolicy]) -> dict[str, Schedule]:
    """Return the schedules of policies by graph. Six queries, however many policies
    there are.
    """
    rows = list(policies)
    graphs = [policy.graph for policy in rows]
    # Two queries for all policies, where `is_confirmed` would take one for each.
    confirmations = _newest_lines(graphs, (CONFIRMED, DELETED))
    removals = _newest_lines(graphs, (HISTORY_PRUNED,))
    stored_jobs = _stored_jobs(removals.values())
    standing_jobs = Job.objects.filter(kind=KIND, status__in=LIVE)
    next_at = standing_jobs.values_list("due_at", flat=True).first()
    schedules = {}
    for policy in rows:
        is_ready = _confirms(confirmations.get(policy.graph), policy)
        schedules[policy.graph] = _schedule(
            policy, is_ready, removals.get(policy.graph), stored_jobs, next_at
        )
    return schedules


def _stored_jobs(removals: Iterable[AuditLine]) -> set[str]:
    """Return the ids of those removals' jobs whose rows still exist. One query."""
    jobs = {line.facts.get("job") for line in removals}
    stored = Job.objects.in_bulk([job for job in jobs if job])
    return {str(id_) for id_ in stored}


def _schedule(
    policy: RetentionPolicy,
    is_ready: bool,
    removal: AuditLine | None,
    stored_jobs: set[str],
    next_at: datetime | None,
) -> Schedule:
    last_at = None
    last_checkpoints = 0
    last_job = None
    if removal is not None:
        last_at = removal.at
        last_checkpoints = int(removal.facts.get("checkpoints", 0))
        job = removal.facts.get("job")
        # Rows of jobs go after a month, and a link would lead nowhere.
        if job in stored_jobs:
            last_job = job
    is_on = not policy.switched_off
    return Schedule(
        last_at=last_at,
        last_checkpoints=last_checkpoints,
        last_job=last_job,
        next_at=next_at if is_on and is_ready else None,
        waits=is_on and not is_ready,
    )


def _newest_lines(graphs: list[str], kinds: tuple[str, ...]) -> dict[str, AuditLine]:
    """Return the newest audit line of these kinds about each graph. Two queries by the
    index of kinds.
    """
    lines = AuditLine.objects.filter(kind__in=kinds, graph__in=graphs).order_by()
    by_graph = lines.values("graph").annotate(last=Max("id"))
    ids = list(by_graph.values_list("last", flat=True))
    return {line.graph: line for line in AuditLine.objects.filter(id__in=ids)}


def run_policies(lease: JobLease) -> Iterator[Step]:
    """Queue the removal of each policy that may act by itself. Its place: the graph of
    the last policy that had its turn, so that none has two schedules on one day.
    """
    done, last = lease.place or (0, "")
    policies = RetentionPolicy.objects.filter(switched_off=False, graph__gt=last)
    for policy in policies.order_by("graph"):
        # A removal that is under way counts too: it takes the policy's turn.
        done += _has_turn(policy)
        yield Step(done, note=f"{done} policies acted", place=(done, policy.graph))


def _has_turn(policy: RetentionPolicy) -> bool:
    """Begin the removal of a policy, and return whether it began. A refusal does not
    stop the other policies.
    """
    if not is_confirmed(policy):
        return False
    try:
        prune(policy, by=None, most=policy.limit)
    except CountersignError as refused:
        log.warning(
            "policy_refused",
            graph=policy.graph,
            code=refused.code,
            message=refused.message,
        )
        # Nobody watches a policy that acts by itself; stewards read the audit log.
        audit_log.record(
            "retention_policy_refused",
            actor=None,
            graph=policy.graph,
            code=refused.code,
        )
        return False
    return True
