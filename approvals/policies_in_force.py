"""The standing policies that are in force now, with the uses that they have left. Read,
verified, used and kept from being revoked here; `approvals.people.standing_policies`
makes and revokes them.

The database's clock decides whether one is in force.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth import get_user_model
from django.db.models import F, Q, QuerySet

from approvals.models import StandingPolicy
from checkpoints.audit import lines as audit_log
from checkpoints.db import query_cache
from checkpoints.db.clock import kept_now
from checkpoints.db.query_cache import joined_columns, pairs_in
from checkpoints.db.rows import attributes_of
from checkpoints.db.shared_locks import lock_rows
from checkpoints.ledger.commit import ConcurrentUpdate
from checkpoints.models import AuditLine
from checkpoints.models.audit_line import PolicyOfLine, UsesOfLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, name_of
from orchestrator.engine.errors import TamperedRow

REVOKED = "standing_policy_revoked"
"""The kind of the audit line of a revocation."""
USED = "standing_policy_used"
"""The kind of the audit line of a use, with how many uses there were by then."""
BROUGHT_BACK = (
    "the audit log says that it was revoked or used more often than its row says"
)

log = structlog.get_logger(__name__)


def _in_force() -> "QuerySet[StandingPolicy]":
    """Return the standing policies that are in force now: begun, not over, not revoked,
    and of a person whose account is active. For a query whose text is kept.
    """
    now = kept_now()
    return StandingPolicy.objects.filter(
        begins_at__lte=now, ends_at__gt=now, revoked_at=None, by__is_active=True
    )


@cache
def account_columns() -> list[str]:
    """Return the attributes of accounts that decide on rights, in the order of their
    columns. A project's own model may lack some.
    """
    model = get_user_model()
    names = ("is_active", "is_superuser", model.USERNAME_FIELD)
    columns: list[str] = []
    for column in model._meta.concrete_fields:
        if column.primary_key or column.name in names:
            columns.append(column.attname)
    return columns


def usable_at(graph: str, gate: str) -> list[StandingPolicy]:
    """Return the standing policies that may sign at a gate now, the oldest first, each
    with the account of its maker. One query, one more if there are any.

    One that is not as it was made or last used, or was revoked, signs nothing, and
    leaves a line in the server's log.
    """
    as_made: list[StandingPolicy] = []
    policies = query_cache.select_joined(
        StandingPolicy,
        attributes_of(StandingPolicy),
        "by",
        account_columns(),
        _query_at,
        graph,
        gate,
    )
    for row in policies:
        fault = fault_of(row, PLAIN)
        if fault is None:
            as_made.append(row)
        else:
            log.error("standing_policy_refused", row=fault.row, code=fault.code)
    # A whole earlier row verifies too; the audit log never forgets.
    brought_back = those_brought_back(as_made)
    for row in brought_back:
        log.error("standing_policy_refused", row=name_of(row), code=BROUGHT_BACK)
    return [row for row in as_made if row not in brought_back]


def _query_at(graph: str, gate: str) -> "QuerySet[StandingPolicy, Any]":
    rows = _in_force().filter(graph=graph, gate=gate, uses__lt=F("most_uses"))
    columns = joined_columns(attributes_of(StandingPolicy), "by", account_columns())
    return rows.order_by("made_at", "id").values_list(*columns)


def take_uses(counts: Mapping[UUID, int], *, run: UUID) -> None:
    """Count so many further uses of each of these policies, in the caller's transaction,
    which signs by them in `run`. Two transactions that use one wait for each other.

    Raises `ConcurrentUpdate` if one is no longer in force or has too few uses left:
    then nothing is signed, and the policies are to be looked at again. Raises
    `TamperedRow`.
    """
    ids = query_cache.padded([*counts])
    locked = query_cache.select_locked(StandingPolicy, _query_of_locked, *ids)
    rows = {row.id: row for row in locked}
    sealed_rows.verify_rows(list(rows.values()), PLAIN)
    _require_not_brought_back(list(rows.values()))
    for policy, count in counts.items():
        row = rows.get(policy)
        if row is None or row.uses + count > row.most_uses:
            raise ConcurrentUpdate
        changed = sealed_rows.seal_again(row, PLAIN, uses=row.uses + count)
        columns = {name: getattr(row, name) for name in changed}
        # By the clock of a statement that begins once the row is locked.
        if not query_cache.update_selected(
            StandingPolicy, _query_of_lasting, row.id, columns=columns
        ):
            raise ConcurrentUpdate
        audit_log.record(
            USED,
            actor=None,
            run=run,
            graph=row.graph,
            policy=str(row.id),
            number=row.number,
            maker=row.by_id,
            count=count,
            uses=row.uses,
        )


def _query_of_locked(*ids: UUID) -> "QuerySet[StandingPolicy]":
    rows = StandingPolicy.objects.select_for_update(of=("self",)).filter(id__in=ids)
    # In order of id, so that two runs which use the same never wait in a circle.
    return rows.order_by("id")


def _query_of_lasting(policy: UUID) -> "QuerySet[Any, Any]":
    return _query_of(policy).values("id")


def _query_of(*ids: UUID) -> "QuerySet[StandingPolicy]":
    return _in_force().filter(id__in=ids).order_by()


def kept_policies(ids: Collection[UUID]) -> dict[UUID, StandingPolicy]:
    """Return the policies among these that are in force, by their ids. None of them can
    be revoked before the transaction that is open ends. No query without any. Raises
    `TamperedRow`.
    """
    if not ids:
        return {}
    lock_rows(StandingPolicy.objects.filter(id__in=ids))
    policies = query_cache.select(
        StandingPolicy, _query_of, *query_cache.padded([*ids])
    )
    sealed_rows.verify_rows(policies, PLAIN)
    _require_not_brought_back(policies)
    return {policy.id: policy for policy in policies}


def _require_not_brought_back(rows: Sequence[StandingPolicy]) -> None:
    for row in those_brought_back(rows):
        name = name_of(row)
        raise TamperedRow(f"{name}: {BROUGHT_BACK}", row=name)


def those_brought_back(rows: Sequence[StandingPolicy]) -> list[StandingPolicy]:
    """Return the policies among these that the audit log records as revoked, or as used
    more often, though their rows do not say so. One query, one more where it does; none
    without rows.
    """
    if not rows:
        return []
    lines = _lines_beyond(rows)
    suspects = [row for row in rows if _is_contradicted(row, lines)]
    if not suspects:
        return []
    # What committed after these rows were read has its line too. Uses and revocations
    # only grow, so rows that are read after the lines know of all of them.
    rows_now = StandingPolicy.objects.in_bulk([row.id for row in suspects])
    brought_back: list[StandingPolicy] = []
    for row in suspects:
        row_now = rows_now.get(row.id)
        if row_now is None or _is_contradicted(row_now, lines):
            brought_back.append(row)
    return brought_back


def _lines_beyond(rows: Sequence[StandingPolicy]) -> list[tuple[str, int | None]]:
    """Return (policy, uses by then; None for its revocation) of each line of the audit
    log that says more than its row.
    """
    values: list[str | int] = []
    for row in query_cache.padded(rows):
        values += (str(row.id), row.uses)
    beyond: Any = query_cache.select_values(_query_beyond, *values)
    return list(beyond)


def _query_beyond(*values: Any) -> "QuerySet[AuditLine, Any]":
    """Return the query for `_lines_beyond`: policies, each with the uses of its row."""
    beyond = Q()
    for policy, uses in pairs_in(values):
        beyond |= Q(policy=policy, uses__gt=uses)
        beyond |= Q(policy=policy, uses=None, kind=REVOKED)
    lines = AuditLine.objects.annotate(
        policy=PolicyOfLine(),
        uses=UsesOfLine(),
    )
    further = lines.filter(beyond, kind__in=(REVOKED, USED)).order_by()
    return further.values_list("policy", "uses")


def _is_contradicted(
    row: StandingPolicy, lines: Sequence[tuple[str, int | None]]
) -> bool:
    """Return whether one of these lines says more than a row."""
    for policy, uses in lines:
        if policy != str(row.id):
            continue
        # A revocation has no number of uses.
        if uses is None and row.revoked_at is None:
            return True
        if uses is not None and uses > row.uses:
            return True
    return False
