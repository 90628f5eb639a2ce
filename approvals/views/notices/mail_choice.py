"""The choice of a person about notices by mail, on the page of their account."""

import zoneinfo
from datetime import time
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from approvals.models import MailPreference
from approvals.views.page import single_fields
from checkpoints.conf import conf
from orchestrator.engine.errors import InvalidValue

LONGEST_ZONE = 64


def mail_facts(user: Any) -> dict[str, Any]:
    """Return what the page of the account shows of it. One query."""
    return {
        "mail": MailPreference.of(user),
        "modes": MailPreference.MODES,
        "is_mailed": bool(conf().mail_from),
    }


@login_required
@require_http_methods(["GET", "POST"])
@single_fields()
def choose_mail(request: HttpRequest) -> HttpResponse:
    """Keep what the person chose, and lead back to the account. A person who had to sign
    in first arrives by GET, without the choice.
    """
    if request.method != "POST":
        return redirect("account")
    try:
        chosen = _chosen(request)
    except InvalidValue as error:
        messages.error(request, f"Nothing was changed: {error.message}.")
        return redirect("account")
    MailPreference.objects.update_or_create(
        user_id=int(request.user.pk or 0), defaults=chosen
    )
    messages.success(request, "Your mail is as you chose.")
    return redirect("account")


def _chosen(request: HttpRequest) -> dict[str, Any]:
    """Return the columns of what was posted. Raises `InvalidValue`."""
    mode = request.POST.get("mode", "")
    if mode not in dict(MailPreference.MODES):
        raise InvalidValue("choose when mail is sent", path="mode")
    begin = _time(request.POST.get("quiet_from", ""), "quiet_from")
    end = _time(request.POST.get("quiet_until", ""), "quiet_until")
    if (begin is None) != (end is None):
        raise InvalidValue(
            "quiet hours have a beginning and an end", path="quiet_until"
        )
    return {
        "mode": mode,
        "quiet_from": begin,
        "quiet_until": end,
        "time_zone": _zone(request.POST.get("time_zone", "")),
    }


def _time(text: str, path: str) -> time | None:
    if not text:
        return None
    try:
        moment = time.fromisoformat(text)
    except ValueError:
        raise InvalidValue("a time of day is written as 22:30", path=path) from None
    if moment.tzinfo is not None:
        raise InvalidValue("a time of day is written as 22:30", path=path)
    return moment


def _zone(text: str) -> str:
    try:
        if len(text) > LONGEST_ZONE:
            raise ValueError
        zoneinfo.ZoneInfo(text)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        raise InvalidValue(
            "a time zone is a name of the tz database, as Europe/Berlin",
            path="time_zone",
        ) from None
    return text
