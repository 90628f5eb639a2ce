"""Tokens, with which a program acts as its user. `create_token` makes them, and the API
looks them up. Only keyed digests are kept, and each row is sealed: with the database
alone nobody can make a token or widen one.
"""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from checkpoints.audit import lines as audit_log
from checkpoints.conf import keyring
from checkpoints.db.pages import pages
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.account_changes import current_actor
from orchestrator.engine.errors import InvalidValue, OlderSeal
from orchestrator.models import ApiToken

SCOPES = ("start", "read", "decide", "steer", "export", "erase")
"""The scopes that a token can have. Its user's permissions limit it as well."""
USUAL_SCOPES = tuple(scope for scope in SCOPES if scope != "erase")
"""The scopes of a token that is made without any. The scope of acts that cannot be
undone is never granted by omission.
"""

_PREFIX = "cst_"
"""Identifies a token to secret scanners, and to people who find one."""


def make_token(
    user: Any,
    *,
    scopes: Sequence[str] = USUAL_SCOPES,
    name: str = "",
    days: int | None = None,
) -> str:
    """Make a token and return its text, which is stored nowhere. With `days` None it
    does not expire. Raises `InvalidValue`.
    """
    _require_scopes(scopes)
    if days is not None and days < 1:
        raise InvalidValue("a token is good for at least one day")

    text = _PREFIX + secrets.token_urlsafe(32)
    now = timezone.now()
    expires_at = None
    if days:
        expires_at = now + timedelta(days=days)
    row = ApiToken(
        user=user,
        name=name[:100],
        digest=keyed_digest(keyring().signer, token_digest(text)),
        hint=text[:12],
        scopes=[scope for scope in SCOPES if scope in scopes],
        created_at=now,
        expires_at=expires_at,
    )
    sealed_rows.seal(row, PLAIN)
    # There is no token without the audit line that says who made it.
    with transaction.atomic():
        row.save(force_insert=True)
        audit_log.record("token_made", actor=current_actor(), **_audit_facts(row))
    return text


def _require_scopes(scopes: Sequence[str]) -> None:
    """Raise `InvalidValue` for no scopes, or for an unknown one."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise InvalidValue(
            f"no such scope: {', '.join(unknown) or 'none given'}; "
            f"known: {', '.join(SCOPES)}"
        )


def find_token(text: str) -> ApiToken | None:
    """Return the token of that text with its user; None if it is unknown, revoked or
    expired, or its user inactive.
    """
    plain = token_digest(text)
    # The token may have been made under an older key.
    digests = [keyed_digest(key, plain) for key in keyring().signing]
    return _valid_token(digest__in=digests)


def live_token(key: Any) -> ApiToken | None:
    """Return the token of that row with its user, as `find_token` does: for connections
    that it opened and that are still open.
    """
    return _valid_token(pk=key)


def _valid_token(**filters: Any) -> ApiToken | None:
    is_current = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    rows = ApiToken.objects.filter(
        is_current, **filters, revoked_at=None, user__is_active=True
    )
    token = rows.select_related("user").first()
    if token is None or not _is_as_sealed(token):
        return None
    return token


def _is_as_sealed(row: ApiToken) -> bool:
    """Return whether a token matches its seal. If not, leave an audit line. Raises
    `OlderSeal` while rows wait to be resealed: the token is good, as far as is known.
    """
    fault = fault_of(row, PLAIN)
    if fault is not None and fault.code == OlderSeal.code_of_class:
        raise OlderSeal(fault.reason, row=fault.row)
    if fault is not None:
        audit_log.record("refused_token", actor=None, token=row.hint, code=fault.code)
    return fault is None


def revoke_token(row: ApiToken) -> None:
    """End a token now. One that does not match its seal is ended too, but not sealed
    again.
    """
    with transaction.atomic():
        # If two people revoke it at once, one does, and one audit line says so.
        rows = ApiToken.objects.select_for_update()
        token = rows.filter(pk=row.pk, revoked_at=None).first()
        if token is None:
            return
        is_sealed = fault_of(token, PLAIN) is None
        token.revoked_at = timezone.now()
        names = ["revoked_at"]
        if is_sealed:
            names = sealed_rows.seal_again(token, PLAIN, revoked_at=token.revoked_at)
        token.save(update_fields=names)
        audit_log.record("token_revoked", actor=current_actor(), **_audit_facts(token))


def _audit_facts(row: ApiToken) -> dict[str, Any]:
    return {
        "token": row.hint,
        "subject": f"user:{row.user.get_username()}",
        "scopes": row.scopes,
    }


def token_faults() -> Iterator[SealFault]:
    """Yield the faults of tokens that do not match their seals."""
    for page in pages(ApiToken.objects.all(), "id"):
        for row in page:
            fault = fault_of(row, PLAIN)
            if fault is not None:
                yield fault


def keyed_digest(key: str, digest: str) -> str:
    """Return the form in which a row stores a token's `token_digest`: an HMAC under a
    signing key, so that nobody with the database alone can add a token to it. Raises
    `WrongKey`.
    """
    return keyring().mac(key, f"countersign token 1 {digest}".encode()).hex()


def token_digest(text: str) -> str:
    """Return the SHA-256 of a token's text in hexadecimal. It has no salt: the text is
    256 random bits, and a lookup by digest is one indexed query.
    """
    return hashlib.sha256(text.encode()).hexdigest()
