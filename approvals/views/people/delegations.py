"""Delegations on the page of a person's account: who decides in their place and when."""

from collections.abc import Callable
from datetime import datetime, time
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from approvals import reviews
from approvals.people.accounts import active_account
from approvals.views.page import single_fields
from approvals.views.people.own_password import FIELD, require_password
from orchestrator.engine.errors import (
    REFUSALS,
    ConfirmationRequired,
    InvalidValue,
)

View = Callable[..., HttpResponse]


def changes_rights(act: Callable[..., str], *, leads_to: str = "account") -> View:
    """Return the page that changes, by this act, what others may sign for the signed-in
    person, and leads back to one of their pages with the sentence that the act returns.
    """

    @sensitive_post_parameters(FIELD)
    @login_required
    @require_http_methods(["GET", "POST"])
    @single_fields()
    @wraps(act)
    def page(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # A person who had to sign in first arrives by GET, without what was posted.
        if request.method != "POST":
            return redirect(leads_to)
        try:
            messages.success(request, act(request, *args, **kwargs))
        except ConfirmationRequired as error:
            # Its sentence says already that nothing was changed.
            messages.error(request, error.message)
        except REFUSALS as error:
            messages.error(request, f"Nothing was changed: {error.message}.")
        return redirect(leads_to)

    return page


def _pass_on(request: HttpRequest) -> str:
    # What is passed on is a right to sign, so whoever finds a browser that is signed in
    # must not pass it on.
    require_password(request)
    to = active_account(request.POST.get("to", ""), "to")
    reviews.delegate(
        to=to,
        begins=read_typed(request.POST.get("begins", ""), "begins"),
        ends=required_moment(request.POST.get("ends", ""), "ends"),
        reason=request.POST.get("reason", ""),
        by=request.user,
    )
    return f"{to.get_username()} decides in your place then."


def _revoke(request: HttpRequest, delegation: UUID) -> str:
    reviews.revoke_delegation(delegation, by=request.user)
    return "That is over: nobody decides by it any more."


pass_on = changes_rights(_pass_on)
revoke = changes_rights(_revoke)


def required_moment(text: str, path: str) -> datetime:
    moment = read_typed(text, path)
    if moment is None:
        raise InvalidValue(f"{path} is missing", path=path)
    return moment


def read_typed(text: str, path: str) -> datetime | None:
    """Return the moment that was typed, in the zone of the installation; a day is meant
    from its first moment on. None for no text. Raises `InvalidValue`.
    """
    if not text:
        return None
    try:
        moment = parse_datetime(text)
        day = parse_date(text)
        if day is not None:
            moment = datetime.combine(day, time())
        if moment is not None and timezone.is_naive(moment):
            moment = timezone.make_aware(moment)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise InvalidValue(f"{path} is no time", path=path)
    return moment
