"""The delegations that last now: who decides for whom. Read, verified and kept from
being revoked here; `approvals.people.standing_in` makes and revokes them.

The database's clock decides whether one lasts.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from django.db.models import QuerySet

from approvals.models import Delegation
from checkpoints.db.clock import db_now
from checkpoints.db.shared_locks import lock_rows
from checkpoints.models import AuditLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN, name_of
from orchestrator.engine.errors import TamperedRow

REVOKED = "delegation_revoked"
"""The kind of the audit line of a revocation."""
BROUGHT_BACK = "it was revoked, as the audit log says, and its row does not say so"

log = structlog.get_logger(__name__)


def lasting(now: Any = None, /, **whose: Any) -> "QuerySet[Delegation]":
    """Return the delegations of these people that last now: begun, not over, not
    revoked, and of a person whose account is active. `whose` are lookups; `now` is
    `kept_now()` for a query whose text is kept.
    """
    now = now or db_now()
    return Delegation.objects.filter(
        begins_at__lte=now,
        ends_at__gt=now,
        revoked_at=None,
        delegator__is_active=True,
        **whose,
    )


def lasting_to(user: Any, *, keep: bool = False) -> list[Delegation]:
    """Return the delegations by which this person decides for others now, the oldest
    first, with the people whose right it is. One query. With `keep` none of them can be
    revoked before the transaction that is open ends: one more on PostgreSQL.

    One that is not as it was made, or was revoked, gives no right, and leaves a line in
    the server's log. One query more if there are any, for what was revoked.
    """
    rows = lasting(delegate=user.pk)
    if keep:
        # Whoever is revoking one is waited for, so the rows are read after that.
        lock_rows(rows)
    ordered = rows.select_related("delegator").order_by("made_at", "id")
    as_made = [delegation for delegation in ordered if _is_as_made(delegation)]
    if not as_made:
        return []
    revoked = _recorded_as_revoked(as_made)
    # A whole earlier row verifies too; the audit log never forgets.
    for delegation in _still_without_it(revoked):
        log.error("delegation_refused", row=name_of(delegation), code=BROUGHT_BACK)
    # Also one that was revoked after it was read gives no right.
    return [delegation for delegation in as_made if delegation not in revoked]


def _is_as_made(delegation: Delegation) -> bool:
    fault = fault_of(delegation, PLAIN)
    if fault is None:
        return True
    log.error("delegation_refused", row=fault.row, code=fault.code)
    return False


def kept_delegations(ids: Collection[UUID]) -> dict[UUID, Delegation]:
    """Return these delegations by their ids, whether or not they last. None of them can
    be revoked before the transaction that is open ends. No query without any. Raises
    `TamperedRow`.
    """
    if not ids:
        return {}
    rows = Delegation.objects.filter(id__in=ids)
    lock_rows(rows)
    delegations = list(rows)
    sealed_rows.verify_rows(delegations, PLAIN)
    for delegation in those_brought_back(delegations):
        name = name_of(delegation)
        raise TamperedRow(f"{name}: {BROUGHT_BACK}", row=name)
    return {delegation.id: delegation for delegation in delegations}


def is_taken_back(delegation: Delegation) -> bool:
    """Return whether nothing may begin on what was signed by a delegation, because its
    delegator or a steward has revoked it. That its delegate has ended it stops only
    what they would sign later.
    """
    if delegation.revoked_at is None:
        return False
    return delegation.revoked_by_id != delegation.delegate_id


def those_brought_back(rows: Sequence[Delegation]) -> list[Delegation]:
    """Return the delegations among these that the audit log records as revoked
    otherwise than their rows say. One query, one more where it does; none without rows.
    """
    return _still_without_it(_recorded_as_revoked(rows))


def _recorded_as_revoked(rows: Sequence[Delegation]) -> dict[Delegation, set[Any]]:
    """Return the delegations that the audit log records as revoked and their rows do
    not, each with the ids of the people who revoked it. One query; none without rows.
    """
    if not rows:
        return {}
    ids = [str(row.id) for row in rows]
    lines = AuditLine.objects.filter(kind=REVOKED, facts__delegation__in=ids)
    actors: dict[str, set[int | None]] = {}
    for named, actor in lines.order_by().values_list("facts__delegation", "actor"):
        actors.setdefault(named, set()).add(actor)
    revoked: dict[Delegation, set[Any]] = {}
    for row in rows:
        actors_of_row = actors.get(str(row.id), set())
        if _is_brought_back(row, actors_of_row):
            revoked[row] = actors_of_row
    return revoked


def _still_without_it(revoked: Mapping[Delegation, set[Any]]) -> list[Delegation]:
    """Return the delegations among these whose rows do not say now, either, that these
    people have revoked them. One query; none without rows.
    """
    if not revoked:
        return []
    # What was revoked after these rows were read has its line too. A revocation is
    # never undone, so rows that are read after the lines know of all of them.
    rows_now = Delegation.objects.in_bulk([row.id for row in revoked])
    brought_back: list[Delegation] = []
    for row, actors in revoked.items():
        row_now = rows_now.get(row.id)
        if row_now is None or _is_brought_back(row_now, actors):
            brought_back.append(row)
    return brought_back


def _is_brought_back(row: Delegation, actors: Collection[int | None]) -> bool:
    """Return whether a row says less than that these people have revoked it."""
    if not actors:
        return False
    if row.revoked_at is None:
        return True
    return not is_taken_back(row) and bool(set(actors) - {row.delegate_id})
