"""Counts of refused tokens, by address and by token. They are in a table, so they hold
for all web processes at once.

A valid token is served whatever was refused before it: nobody guesses 256 bits, and a
stranger behind the same address must not shut a program out.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed, Throttled

from checkpoints.audit import lines as audit_log
from checkpoints.conf import conf
from orchestrator import tokens
from orchestrator.client_address import client_address
from orchestrator.models import ApiToken, FailedAuthentication

HINT = 12
"""The number of first characters by which tokens are told apart. They stay the same in
an attack that tries to guess the rest of a token.
"""


def refuse_token(request: Any, text: str) -> NoReturn:
    """Refuse a token that is not valid. Raises `AuthenticationFailed`, after too many
    of them `Throttled`.
    """
    address = client_address(request)
    hint = text[:HINT]
    # A digest, so that the table keeps nothing of what was sent.
    subjects = [f"token:{tokens.token_digest(hint)[:32]}"]
    if address:
        subjects.append(f"address:{address}")
    # Before anything is counted: attempts during the wait neither write nor prolong it.
    wait = seconds_to_wait(subjects)
    if wait:
        raise Throttled(wait, "too many tokens were refused.")

    # Each subject is counted, so all of them are counted before any is judged.
    failures = [count_failure(subject) for subject in subjects]
    if max(failures) >= conf().api_failures:
        # Only the hint of a real token is written down: people paste other secrets
        # into the wrong place.
        is_token = ApiToken.objects.filter(hint=hint).exists()
        audit_log.record(
            "tokens_throttled",
            actor=None,
            address=address,
            token=hint if is_token else "",
        )
    raise AuthenticationFailed("this token is unknown, revoked or out of date")


def refuse_message(request: Any, refusal: Exception) -> NoReturn:
    """Raise this refusal of a message at a door, after too many from one address
    `Throttled`. Like a valid token, a message that is signed is taken all the same.
    """
    # Not by door: a stranger who makes up names of doors would fill the table.
    subject = f"doors:{client_address(request)}"
    wait = seconds_to_wait([subject])
    if wait:
        raise Throttled(wait, "too many messages were refused.")
    count_failure(subject)
    raise refusal


def seconds_to_wait(subjects: Sequence[str], *, most: int | None = None) -> int:
    """Return for how many seconds failures of any of these subjects are throttled; 0 if
    none has had too many: as many as `API_FAILURES` says, or `most`.
    """
    now = timezone.now()
    limit = conf().api_failures if most is None else most
    throttled = FailedAuthentication.objects.filter(
        subject__in=subjects, failures__gte=limit, ends_at__gt=now
    )
    longest = 0
    for row in throttled:
        seconds = math.ceil((row.ends_at - now).total_seconds())
        longest = max(longest, seconds)
    return longest


def count_failure(subject: str) -> int:
    """Count one more failure of this address or token. Returns how many there are in
    the window that began with the first.
    """
    now = timezone.now()
    ends_at = now + timedelta(seconds=conf().api_failure_seconds)
    with transaction.atomic():
        rows = FailedAuthentication.objects.select_for_update()
        row, is_new = rows.get_or_create(
            subject=subject, defaults={"failures": 1, "ends_at": ends_at}
        )
        if not is_new and row.ends_at <= now:
            # The last window is over: a new one begins.
            row.failures = 1
            row.ends_at = ends_at
            row.save()
        elif not is_new:
            row.failures += 1
            FailedAuthentication.objects.filter(pk=subject).update(
                failures=F("failures") + 1
            )
    # With each new row, so that the table does not grow.
    if is_new:
        FailedAuthentication.objects.filter(ends_at__lt=now).delete()
    return row.failures
