"""Passkeys on the page of a person's account: registering, naming and revoking them.
Registering and revoking ask for the password again.
"""

import base64
import secrets
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from approvals import passkeys
from approvals.views.page import single_fields
from approvals.views.people.own_password import FIELD, require_password
from approvals.views.posted_confirmation import site_of
from checkpoints.core.strict_json import parse_strict
from orchestrator.engine.errors import (
    REFUSALS,
    ConfirmationRequired,
    CountersignError,
    InvalidValue,
)

ASKED = "countersign_passkey_registration"
"""Where the session keeps the challenge of a registration that is under way."""
LIFETIME = 300
"""Seconds in which a registration must be completed."""

View = Callable[..., HttpResponse]


def changes_keys(view: View) -> View:
    """Decorate a page that changes the signed-in person's passkeys, and answers with
    what went wrong, or leads back to the account.
    """

    @sensitive_post_parameters(FIELD)
    @login_required
    @require_http_methods(["GET", "POST"])
    @single_fields()
    @wraps(view)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # A person who had to sign in first arrives by GET, without what was posted.
        if request.method != "POST":
            return redirect("account")
        try:
            return view(request, *args, **kwargs)
        except REFUSALS as error:
            return _refused(request, error)

    return page


def _refused(request: HttpRequest, error: CountersignError) -> HttpResponse:
    if request.headers.get("X-Fragment"):
        status = 403 if isinstance(error, ConfirmationRequired) else 422
        return JsonResponse({"message": error.message}, status=status)
    messages.error(request, error.message)
    return redirect("account")


@changes_keys
def begin_registration(request: HttpRequest) -> HttpResponse:
    """Return the options with which the browser makes a passkey, as JSON, once the
    password is right.
    """
    require_password(request)
    challenge = secrets.token_bytes(32)
    options = passkeys.registration_options(request.user, site_of(request), challenge)
    request.session[ASKED] = {
        "challenge": base64.b64encode(challenge).decode(),
        "name": request.POST.get("name", ""),
        "at": time.time(),
    }
    return JsonResponse(options, headers={"Cache-Control": "no-store"})


@changes_keys
def register(request: HttpRequest) -> HttpResponse:
    """Keep the passkey that the browser made, and lead back to the account."""
    # Taken out first: one challenge registers one key.
    pending = request.session.pop(ASKED, None)
    if pending is None or time.time() - pending["at"] > LIFETIME:
        raise InvalidValue("the registration came too late; begin again")
    try:
        credential = parse_strict(request.POST.get("credential", ""))
    except (ValueError, RecursionError) as error:
        raise InvalidValue("the passkey cannot be read; begin again") from error
    key = passkeys.register_key(
        request.user,
        site_of(request),
        name=pending["name"],
        challenge=base64.b64decode(pending["challenge"]),
        credential=credential,
    )
    messages.success(request, f"The passkey “{key.name}” is registered.")
    return redirect("account")


@changes_keys
def rename(request: HttpRequest, key: int) -> HttpResponse:
    """Give a passkey another name."""
    passkeys.rename_key(request.user, key, request.POST.get("name", ""))
    messages.success(request, "The passkey was renamed.")
    return redirect("account")


@changes_keys
def revoke(request: HttpRequest, key: int) -> HttpResponse:
    """Revoke a passkey for good, once the password is right."""
    require_password(request)
    passkeys.revoke_key(request.user, key)
    messages.success(request, "The passkey is revoked: it can no longer sign.")
    return redirect("account")
