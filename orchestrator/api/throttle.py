"""Tokens that are refused too often: counted by address and by token, in a table, so for all web processes at once.

A token that is good is served whatever was refused before it: nobody guesses 256 bits, and a stranger behind the same
address must not shut a program out.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

from django.db import transaction
from django.db.models import F
from django.utils import timezone
from rest_framework.exceptions import AuthenticationFailed, Throttled

from checkpoints import audit_log
from checkpoints.conf import conf
from orchestrator import tokens
from orchestrator.client_address import client_address
from orchestrator.models import ApiToken, FailedAuthentication

HINT = 12
"""The first characters tell tokens apart; whoever tries out how one goes on keeps them."""


def refuse_token(request: Any, text: str) -> NoReturn:
    """Turn away a caller whose token is not good. Raises `AuthenticationFailed`, after too many of them `Throttled`."""
    address, hint = client_address(request), text[:HINT]
    subjects = [f"token:{tokens.token_digest(hint)[:32]}", *([f"address:{address}"] if address else [])]
    wait = seconds_to_wait(subjects)
    if wait:
        raise Throttled(wait, "too many tokens were refused.")
    full = [count_failure(subject) >= conf().api_failures for subject in subjects]
    if any(full):
        # Only what is a token is written down: people paste other secrets into the wrong place.
        known = ApiToken.objects.filter(hint=hint).exists()
        audit_log.record("tokens_throttled", actor=None, address=address, token=hint if known else "")
    raise AuthenticationFailed("this token is unknown, revoked or out of date")


def seconds_to_wait(subjects: Sequence[str]) -> int:
    """For how long no failure of any of these is answered as one; 0 where none has had too many."""
    now = timezone.now()
    full = FailedAuthentication.objects.filter(subject__in=subjects, failures__gte=conf().api_failures, ends_at__gt=now)
    return max((math.ceil((one.ends_at - now).total_seconds()) for one in full), default=0)


def count_failure(subject: str) -> int:
    """One more failure of this address or token; gives how many there are in the window that began with the first."""
    now = timezone.now()
    ends_at = now + timedelta(seconds=conf().api_failure_seconds)
    with transaction.atomic():
        row, made = FailedAuthentication.objects.select_for_update().get_or_create(
            subject=subject, defaults={"failures": 1, "ends_at": ends_at}
        )
        if not made and row.ends_at <= now:
            row.failures, row.ends_at = 1, ends_at
            row.save()
        elif not made:
            row.failures += 1
            FailedAuthentication.objects.filter(pk=subject).update(failures=F("failures") + 1)
    if made:
        FailedAuthentication.objects.filter(ends_at__lt=now).delete()
    return row.failures
