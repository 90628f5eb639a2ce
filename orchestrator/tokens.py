"""Tokens: how a program acts as its user. Made by `create_token`, asked by the API. Only keyed digests are kept, and
each row is sealed: who has the database alone can neither make a token nor widen one.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from checkpoints import audit_log
from checkpoints.conf import keyring
from checkpoints.db.pages import pages
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.account_changes import current_actor
from orchestrator.engine.errors import InvalidValue
from orchestrator.models import ApiToken

SCOPES = ("start", "read", "decide", "steer", "export", "erase")
"""What a token may be for. Its user's permissions bound it as well."""
USUAL_SCOPES = tuple(scope for scope in SCOPES if scope != "erase")
"""What a token is for that nobody narrowed. What cannot be undone is never granted by leaving something out."""

_PREFIX = "cst_"
"""Tells secret scanners, and people who find one, what it is."""


def make_token(user: Any, *, scopes: Sequence[str] = USUAL_SCOPES, name: str = "", days: int | None = None) -> str:
    """Make a token and give its text, which is nowhere kept. `days` None: it does not expire. Raises `InvalidValue`."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise InvalidValue(f"no such scope: {', '.join(unknown) or 'none given'}; known: {', '.join(SCOPES)}")
    if days is not None and days < 1:
        raise InvalidValue("a token is good for at least one day")
    text = _PREFIX + secrets.token_urlsafe(32)
    now = timezone.now()
    row = ApiToken(
        user=user,
        name=name[:100],
        digest=keyed_digest(keyring().signer, token_digest(text)),
        hint=text[:12],
        scopes=[scope for scope in SCOPES if scope in scopes],
        created_at=now,
        expires_at=now + timedelta(days=days) if days else None,
    )
    sealed_rows.seal(row, PLAIN)
    with transaction.atomic():
        row.save(force_insert=True)
        audit_log.record("token_made", actor=current_actor(), **_told_of(row))
    return text


def find_token(text: str) -> ApiToken | None:
    """The token of that text with its user; None where it is unknown, revoked or out of date, or its user inactive."""
    plain = token_digest(text)
    return _good(digest__in=[keyed_digest(key, plain) for key in keyring().signing])


def live_token(key: Any) -> ApiToken | None:
    """The token of that row with its user, as `find_token` gives it: for what it opened and still holds open."""
    return _good(pk=key)


def _good(**which: Any) -> ApiToken | None:
    live = ApiToken.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)
    found = live.filter(**which, user__is_active=True).select_related("user").first()
    return found if found is None or _as_sealed(found) else None


def _as_sealed(row: ApiToken) -> bool:
    """Whether a token is as it was sealed; if not, an audit line says so."""
    fault = fault_of(row, PLAIN)
    if fault is not None:
        audit_log.record("refused_token", actor=None, token=row.hint, code=fault.code)
    return fault is None


def revoke_token(row: ApiToken) -> None:
    """End a token now. One that is not as it was sealed is ended too, and not sealed anew."""
    with transaction.atomic():
        found = ApiToken.objects.select_for_update().filter(pk=row.pk, revoked_at=None).first()
        if found is None:
            return
        is_sealed = fault_of(found, PLAIN) is None
        found.revoked_at = timezone.now()
        names = ["revoked_at"]
        if is_sealed:
            names = sealed_rows.seal_again(found, PLAIN, revoked_at=found.revoked_at)
        found.save(update_fields=names)
        audit_log.record("token_revoked", actor=current_actor(), **_told_of(found))


def _told_of(row: ApiToken) -> dict[str, Any]:
    return {"token": row.hint, "subject": f"user:{row.user.get_username()}", "scopes": row.scopes}


def token_faults() -> Iterator[SealFault]:
    """The tokens that are not as they were sealed."""
    for page in pages(ApiToken.objects.all(), "id"):
        yield from filter(None, (fault_of(row, PLAIN) for row in page))


def keyed_digest(key: str, digest: str) -> str:
    """What a row keeps of a token, of its `token_digest`: an HMAC under a signing key, so nobody who has the database
    alone can put a token into it. Raises `WrongKey`.
    """
    return keyring().mac(key, f"countersign token 1 {digest}".encode()).hex()


def token_digest(text: str) -> str:
    """SHA-256 in hexadecimal. No salt: the text is 256 bits of chance, and finding by digest is one indexed query."""
    return hashlib.sha256(text.encode()).hexdigest()
