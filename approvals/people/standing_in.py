"""Delegations: a person passes on their right to review for a time, and may revoke
that.

Only the right is passed on: authors of the content stay excluded, on either side, and a
delegated right cannot be passed on again. `approvals.permissions` judges it when a
person signs.
"""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Q, QuerySet

from approvals import permissions
from approvals.delegations import BROUGHT_BACK, those_brought_back
from approvals.models import Delegation
from checkpoints.audit import lines as audit_log
from checkpoints.core.arguments import checked_moment, checked_person, checked_text
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.db.clock import read_now
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine.errors import InvalidValue, TamperedRow
from orchestrator.engine.frozen import frozen

LONGEST_REASON = 1000
LONGEST_TIME = timedelta(days=366)
"""The longest time for which a right can be passed on."""
MOST_AT_A_TIME = 10
"""The most people for whom one person decides at a time: each costs queries."""


def delegate(
    *,
    to: Any,
    ends: datetime,
    begins: datetime | None = None,
    reason: str = "",
    by: Any,
) -> Delegation:
    """Let another person decide reviews for `by`, from `begins` (now unless
    set) until `ends`. They see what `by` sees as a reviewer, and sign with their own
    password or passkey; each decision says for whom it was made.

    Raises `InvalidValue`: the times, the person, too many at a time, or that they decide
    for `by` in a part of this time already.
    """
    by = checked_person(by, "by")
    to = checked_person(to, "to")
    checked_text(reason, "reason", most=LONGEST_REASON)
    with transaction.atomic():
        now = read_now()
        begins = max(checked_moment(begins, "begins"), now) if begins else now
        _require_times(begins, checked_moment(ends, "ends"))
        _require_other(to, by)
        _require_none_yet(to, by, begins, ends)
        _require_few(to, begins, ends)
        delegation = Delegation(
            delegator=by,
            delegate=to,
            begins_at=begins,
            ends_at=ends,
            reason=reason,
            made_at=now,
        )
        sealed_rows.seal(delegation, PLAIN)
        delegation.save(force_insert=True)
        audit_log.record("delegated", actor=by, **_facts_of(delegation))
    return delegation


def _require_times(begins: datetime, ends: datetime) -> None:
    if ends <= begins:
        raise InvalidValue("ends must be after begins, and to come", path="ends")
    if ends - begins > LONGEST_TIME:
        raise InvalidValue(
            f"nobody decides for another for more than {LONGEST_TIME.days} days",
            path="ends",
        )


def _require_other(to: Any, by: Any) -> None:
    if to.pk == by.pk:
        raise InvalidValue("you decide for yourself already", path="to")
    if not to.is_active:
        raise InvalidValue(f"there is no user {to.get_username()}", path="to")


def _require_none_yet(to: Any, by: Any, begins: datetime, ends: datetime) -> None:
    """Raise `InvalidValue` if a person decides for the other in this time already: with
    two delegations, one would survive the revocation of the other.
    """
    # Concurrent delegations wait for each other here.
    accounts = get_user_model()._default_manager.filter(pk=by.pk)
    list(accounts.select_for_update(no_key=True).values_list("pk"))
    earlier = _lasting_between(begins, ends).filter(delegator=by, delegate=to).first()
    if earlier is not None:
        raise InvalidValue(
            f"{to.get_username()} decides for you then already, by the delegation "
            f"{earlier.id}; revoke that first",
            path="to",
            delegation=str(earlier.id),
        )


def _lasting_between(begins: datetime, ends: datetime) -> "QuerySet[Delegation]":
    """Return the delegations that last in a part of this time."""
    return Delegation.objects.filter(
        revoked_at=None, begins_at__lt=ends, ends_at__gt=begins
    )


def _require_few(to: Any, begins: datetime, ends: datetime) -> None:
    """Raise `InvalidValue` if a person decides for too many others in this time."""
    others = _lasting_between(begins, ends).filter(delegate=to)
    if others.count() >= MOST_AT_A_TIME:
        raise InvalidValue(
            f"{to.get_username()} decides for {MOST_AT_A_TIME} others then already",
            path="to",
        )


def _facts_of(row: Delegation) -> dict[str, Any]:
    return {
        "delegation": str(row.id),
        "subject": f"user:{row.delegate.get_username()}",
        "delegator": row.delegator.get_username(),
        "begins": row.begins_at.isoformat(),
        "ends": row.ends_at.isoformat(),
    }


def revoke_delegation(delegation_id: UUID | str, *, by: Any) -> Delegation:
    """End a delegation at once and for good. Its delegator, its delegate and stewards
    may. What was signed by it stays signed; an effect that has not begun does not begin
    on it, unless it was the delegate who ended it.

    Raises `UnknownThing` (also where it is none of theirs), `TamperedRow`.
    """
    by = checked_person(by, "by")
    delegation_uuid = uuid_of(delegation_id, "delegation")
    with transaction.atomic():
        rows = Delegation.objects.select_for_update(of=("self",))
        rows = rows.select_related("delegator", "delegate")
        row = rows.filter(id=delegation_uuid).first()
        if row is None or not _is_concerned(row, by):
            raise unknown_thing("delegation", delegation_id)
        sealed_rows.verify_row(row, PLAIN)
        _require_not_brought_back(row)
        # The delegator may also revoke a delegation that its delegate has ended.
        is_less = row.revoked_by_id == row.delegate_id and by.pk != row.delegate_id
        if row.revoked_at is not None and not is_less:
            return row
        # The first time counts: it never goes back, and never moves.
        at = row.revoked_at or read_now()
        changed = sealed_rows.seal_again(row, PLAIN, revoked_at=at, revoked_by=by)
        row.save(update_fields=changed)
        audit_log.record("delegation_revoked", actor=by, **_facts_of(row))
    return row


def _require_not_brought_back(row: Delegation) -> None:
    """Raise `TamperedRow` for a delegation that was revoked before, though its row does
    not say so.
    """
    if those_brought_back([row]):
        name = sealed_rows.name_of(row)
        raise TamperedRow(f"{name}: {BROUGHT_BACK}", row=name)


def _is_concerned(row: Delegation, by: Any) -> bool:
    if by.pk in (row.delegator_id, row.delegate_id):
        return True
    return permissions.may(by, "reassign")


def delegations_of(user: Any) -> "QuerySet[Delegation]":
    """Return the delegations from and to this person, the newest first, with both
    people.
    """
    of_user = Q(delegator=user.pk) | Q(delegate=user.pk)
    rows = Delegation.objects.filter(of_user)
    return rows.select_related("delegator", "delegate")


def seen_delegation(delegation_id: UUID | str, user: Any) -> Delegation:
    """Return a delegation that this person may end: from them, to them, or any for a
    steward. Raises `UnknownThing`.
    """
    row = Delegation.objects.filter(id=uuid_of(delegation_id, "delegation")).first()
    if row is None or not _is_concerned(row, user):
        raise unknown_thing("delegation", delegation_id)
    return row


@frozen
class ListedDelegation:
    """A delegation in a list. `refused`: it grants nothing, because its row was
    changed, or was put back after a revocation. It cannot be ended either.
    """

    row: Delegation
    refused: bool


def listed_delegations(user: Any, *, most: int) -> list[ListedDelegation]:
    """Return the first of `delegations_of`, and which of them are refused. Two queries,
    one without any.
    """
    rows = list(delegations_of(user)[:most])
    brought_back = those_brought_back(rows)
    listed: list[ListedDelegation] = []
    for row in rows:
        is_changed = fault_of(row, PLAIN) is not None
        listed.append(ListedDelegation(row, is_changed or row in brought_back))
    return listed
