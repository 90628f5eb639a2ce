"""Log-ins that fail too often are refused for a while: how django-axes counts here, and what the audit log keeps of it.

Counted in the database, so for all web processes at once. Loaded by the settings `AXES_*` alone: a project that does
without django-axes never imports this module.
"""

import re
from typing import Any

from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username, get_failure_limit
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Sum
from django.http import HttpRequest

from checkpoints import audit_log
from orchestrator.client_address import client_address

WIDER = 10
"""A name may fail so many times more often at all addresses together, and an address with all names together."""
UNKNOWN = "::"
"""Stands for an address that nobody can tell."""

Credentials = dict[str, Any] | None


def axes_address(request: HttpRequest) -> str:
    """The address as django-axes keeps it."""
    return client_address(request) or UNKNOWN


class LoginThrottle(AxesDatabaseHandler):
    """Counts failures by name and address together, and more generously by each of them alone."""

    def get_failures(self, request: Any, credentials: Credentials = None) -> int:
        """The failures that count against this log-in, on the scale of the limit."""
        together: int = super().get_failures(request, credentials)
        attempts = AccessAttempt.objects.all()
        if settings.AXES_COOLOFF_TIME is not None:
            attempts = attempts.filter(attempt_time__gte=get_cool_off_threshold(request))
        alone = [{"username": get_client_username(request, credentials)}]
        if request.axes_ip_address != UNKNOWN:
            alone.append({"ip_address": request.axes_ip_address})
        wider = [attempts.filter(**one).aggregate(n=Sum("failures_since_start"))["n"] or 0 for one in alone]
        return max(together, *(count // WIDER for count in wider))

    def user_login_failed(self, sender: Any, credentials: Any, request: Any = None, **kwargs: Any) -> None:
        """Count a failure and note it. A log-in that was refused unlooked at is not counted: it prolongs nothing."""
        if request is not None:
            for name in ("axes_user_agent", "axes_path_info", "axes_http_accept"):
                setattr(request, name, re.sub(r"[\x00-\x1f]", " ", str(getattr(request, name, ""))))
        super().user_login_failed(sender, credentials, request, **kwargs)
        failures = getattr(request, "axes_failures_since_start", None)
        if failures is not None:
            locked = failures >= get_failure_limit(request, credentials)
            facts = _audit_facts(request, credentials)
            audit_log.record("login_locked" if locked else "refused_login", actor=None, **facts)

    def post_save_access_attempt(self, instance: Any, **kwargs: Any) -> None:
        """Keep nothing of what was posted with a password: it may be anything, the values of a decision too."""
        AccessAttempt.objects.filter(pk=instance.pk).update(get_data="", post_data="")


def _audit_facts(request: Any, credentials: Credentials) -> dict[str, Any]:
    """Where it came from, and the name if it is one: people type passwords into the wrong field."""
    users = get_user_model()
    name = get_client_username(request, credentials)
    known = users._default_manager.filter(**{users.USERNAME_FIELD: name}).exists()
    address = request.axes_ip_address
    return {"address": "" if address == UNKNOWN else address} | ({"name": name} if known else {})
