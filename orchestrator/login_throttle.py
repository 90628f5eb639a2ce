"""Log-ins that fail too often are refused for a while: how django-axes counts here, and
what the audit log keeps of it.

Failures are counted in the database, so for all web processes at once. Loaded by the
settings `AXES_*` alone: a project that does without django-axes never imports this
module.
"""

import re
from typing import Any

from axes.attempts import get_cool_off_threshold
from axes.handlers.database import AxesDatabaseHandler
from axes.helpers import get_client_username, get_failure_limit
from axes.models import AccessAttempt
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import QuerySet, Sum
from django.http import HttpRequest

from checkpoints.audit import lines as audit_log
from orchestrator.client_address import client_address

WIDER = 10
"""A name may fail this many times more often at all addresses together, and an address
with all names together.
"""
UNKNOWN = "::"
"""Stands for an address that cannot be determined."""
LOGGED_ATTRIBUTES = ("axes_user_agent", "axes_path_info", "axes_http_accept")
"""Attributes of a request that django-axes stores with an attempt."""

Credentials = dict[str, Any] | None


def axes_address(request: HttpRequest) -> str:
    """Return the address as django-axes stores it."""
    return client_address(request) or UNKNOWN


class LoginThrottle(AxesDatabaseHandler):
    """Counts failures by name and address together, and more generously by each of them
    alone.
    """

    def get_failures(self, request: Any, credentials: Credentials = None) -> int:
        """Return the failures that count against this log-in, on the scale of the
        limit.
        """
        together: int = super().get_failures(request, credentials)
        attempts = AccessAttempt.objects.all()
        if settings.AXES_COOLOFF_TIME is not None:
            since = get_cool_off_threshold(request)
            attempts = attempts.filter(attempt_time__gte=since)

        username = get_client_username(request, credentials)
        failures = [together]
        # Divided, so that one limit serves all three counts.
        failures.append(_failures_in(attempts.filter(username=username)) // WIDER)
        address = request.axes_ip_address
        # All requests without an address would count as one visitor.
        if address != UNKNOWN:
            of_address = attempts.filter(ip_address=address)
            failures.append(_failures_in(of_address) // WIDER)
        return max(failures)

    def user_login_failed(
        self,
        sender: Any,
        credentials: Any,
        request: Any = None,
        **kwargs: Any,
    ) -> None:
        """Count a failure and audit it. A log-in that was refused without being checked
        is not counted, so it does not prolong the pause.
        """
        if request is not None:
            _strip_control_characters(request)
        super().user_login_failed(sender, credentials, request, **kwargs)
        # django-axes sets it only if it counted the failure.
        failures = getattr(request, "axes_failures_since_start", None)
        if failures is None:
            return
        kind = "refused_login"
        if failures >= get_failure_limit(request, credentials):
            kind = "login_locked"
        facts = _audit_facts(request, credentials)
        audit_log.record(kind, actor=None, **facts)

    def post_save_access_attempt(self, instance: Any, **kwargs: Any) -> None:
        """Remove what was posted with a password: it may be anything, even the values
        of a decision.
        """
        attempts = AccessAttempt.objects.filter(pk=instance.pk)
        attempts.update(get_data="", post_data="")


def _failures_in(attempts: "QuerySet[AccessAttempt]") -> int:
    """Return the sum of the failures of these attempts. One query."""
    return attempts.aggregate(n=Sum("failures_since_start"))["n"] or 0


def _strip_control_characters(request: Any) -> None:
    """Make the stored attributes of a request storable: PostgreSQL takes no NUL."""
    for name in LOGGED_ATTRIBUTES:
        text = str(getattr(request, name, ""))
        setattr(request, name, re.sub(r"[\x00-\x1f]", " ", text))


def _audit_facts(request: Any, credentials: Credentials) -> dict[str, Any]:
    """Return the address of the attempt, and the name if it exists: people type
    passwords into the wrong field.
    """
    address = request.axes_ip_address
    if address == UNKNOWN:
        address = ""
    facts: dict[str, Any] = {"address": address}
    users = get_user_model()
    name = get_client_username(request, credentials)
    accounts = users._default_manager.filter(**{users.USERNAME_FIELD: name})
    if accounts.exists():
        facts["name"] = name
    return facts
