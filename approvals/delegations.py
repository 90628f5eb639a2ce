"""The delegations that last now: who decides for whom. Read, verified and kept from
being revoked here; `approvals.people.standing_in` makes and revokes them.

The database's clock decides whether one lasts.
"""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import structlog
from django.db.models import QuerySet

from approvals.models import Delegation
from checkpoints.db.clock import db_now
from checkpoints.db.shared_locks import lock_rows
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN

log = structlog.get_logger(__name__)


def lasting(**whose: Any) -> "QuerySet[Delegation]":
    """Return the delegations of these people that last now: begun, not over, not
    revoked, and of a person whose account is active. `whose` are lookups.
    """
    now = db_now()
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

    One that is not as it was made gives no right, and leaves a line in the server's log.
    """
    rows = lasting(delegate=user.pk)
    if keep:
        # Whoever is revoking one is waited for, so the rows are read after that.
        lock_rows(rows)
    ordered = rows.select_related("delegator").order_by("made_at", "id")
    return [delegation for delegation in ordered if _is_as_made(delegation)]


def _is_as_made(delegation: Delegation) -> bool:
    fault = fault_of(delegation, PLAIN)
    if fault is None:
        return True
    log.error("delegation_refused", row=fault.row, code=fault.code)
    return False


def kept_delegations(ids: Collection[UUID]) -> dict[UUID, Delegation]:
    """Return these delegations by their ids, whether or not they last. None of them can
    be revoked before the transaction that is open ends. No query for none. Raises
    `TamperedRow`.
    """
    if not ids:
        return {}
    rows = Delegation.objects.filter(id__in=ids)
    lock_rows(rows)
    delegations = list(rows)
    sealed_rows.verify_rows(delegations, PLAIN)
    return {delegation.id: delegation for delegation in delegations}
