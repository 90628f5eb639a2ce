"""Log-ins at the provider of a company that confirm what a person does next: each one act,
whatever is posted at the same moment.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from approvals.models import FreshLogin

LIFETIME = timedelta(minutes=5)
"""How long after it a log-in confirms an act."""
KEPT = timedelta(days=1)
"""How long the row stays, so that an answer of the provider cannot come a second time."""


def keep(user: Any, *, session: str, nonce: str, at: datetime) -> bool:
    """Keep a log-in that has just happened, and return whether its answer is new."""
    try:
        with transaction.atomic():
            FreshLogin.objects.create(
                user=user,
                session=session,
                nonce=nonce,
                created_at=at,
            )
    except IntegrityError:
        return False
    return True


def valid_until(user: Any, *, session: str, at: datetime) -> datetime | None:
    """Return until when a log-in of this session confirms an act; None if none does. One
    query.
    """
    rows = _usable(user, session, at)
    newest = rows.order_by("-created_at").first()
    if newest is None:
        return None
    moment: datetime = newest.created_at
    return moment + LIFETIME


def use_up(user: Any, *, session: str, at: datetime) -> bool:
    """Use up the log-ins of this session, and return whether there were any. Of two
    calls at once only one is answered yes. In the caller's transaction, if there is one.
    """
    # The rows are locked by the update, which judges them again once it has them.
    rows = _usable(user, session, at)
    used = rows.update(used_at=at)
    return bool(used)


def _usable(user: Any, session: str, at: datetime) -> Any:
    earliest = at - LIFETIME
    return FreshLogin.objects.filter(
        user=user.pk,
        session=session,
        used_at=None,
        created_at__gt=earliest,
    )
