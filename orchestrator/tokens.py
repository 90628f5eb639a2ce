"""Tokens: how a program acts as its user. Made by `create_token`, asked by the API. Only digests are kept."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Q
from django.utils import timezone

from orchestrator.engine.errors import InvalidValue
from orchestrator.models import ApiToken

SCOPES = ("start", "read", "decide", "steer", "export")
"""What a token may be for. Its user's permissions bound it as well."""

_PREFIX = "cst_"
"""Tells secret scanners, and people who find one, what it is."""


def make_token(user: Any, *, scopes: Sequence[str] = SCOPES, name: str = "", days: int | None = None) -> str:
    """Make a token and give its text, which is nowhere kept. `days` None: it does not expire. Raises `InvalidValue`."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise InvalidValue(f"no such scope: {', '.join(unknown) or 'none given'}; known: {', '.join(SCOPES)}")
    if days is not None and days < 1:
        raise InvalidValue("a token is good for at least one day")
    text = _PREFIX + secrets.token_urlsafe(32)
    ApiToken.objects.create(
        user=user,
        name=name[:100],
        digest=token_digest(text),
        hint=text[:12],
        scopes=[scope for scope in SCOPES if scope in scopes],
        expires_at=timezone.now() + timedelta(days=days) if days else None,
    )
    return text


def find_token(text: str) -> ApiToken | None:
    """The token of that text with its user; None where it is unknown, revoked or out of date, or its user inactive."""
    live = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)
    return live.filter(digest=token_digest(text), user__is_active=True).select_related("user").first()


def token_digest(text: str) -> str:
    """SHA-256 in hexadecimal. No salt: the text is 256 bits of chance, and finding by digest is one indexed query."""
    return hashlib.sha256(text.encode()).hexdigest()
