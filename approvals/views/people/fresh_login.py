"""A person without a password here, who has just signed in once more at the provider of
their company: that confirms one act, within minutes.

`orchestrator.company_login` notes it.
"""

import hashlib
from datetime import datetime
from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from approvals.people import fresh_logins
from checkpoints.conf import conf
from checkpoints.db.clock import read_now


def note_fresh_login(request: HttpRequest, nonce: str) -> bool:
    """Note that the signed-in person has just shown the provider who they are. Return
    whether this answer of the provider was not noted before.
    """
    return fresh_logins.keep(
        request.user, session=session_of(request), nonce=nonce, at=read_now()
    )


def fresh_until(request: HttpRequest) -> datetime | None:
    """Return until when a fresh log-in of this person confirms an act; None if there is
    none.
    """
    if has_password(request):
        return None
    return fresh_logins.valid_until(
        request.user, session=session_of(request), at=read_now()
    )


def use_up_fresh_login(request: HttpRequest) -> bool:
    """Use up the fresh log-in of this person, and return whether there was one."""
    if has_password(request):
        return False
    return fresh_logins.use_up(request.user, session=session_of(request), at=read_now())


def session_of(request: HttpRequest) -> str:
    """Return the hash of the session's key, with which a proof recognizes it."""
    key = request.session.session_key or ""
    return hashlib.sha256(key.encode()).hexdigest()


def has_password(request: HttpRequest) -> bool:
    """Return whether the signed-in person has a password here."""
    return cast(AbstractBaseUser, request.user).has_usable_password()


def way_to_log_in(request: HttpRequest) -> dict[str, Any]:
    """Return where this person signs in once more: the name of the provider, and the
    address; empty if they cannot.
    """
    provider = conf()
    if not provider.company_issuer or has_password(request):
        return {}
    try:
        return {"name": provider.company_name, "url": reverse("company_confirm")}
    except NoReverseMatch:
        # A host project without the log-in of a company.
        return {}
