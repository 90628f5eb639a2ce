"""Signing with a passkey: the document that says what is decided, the challenge that is
its hash, and the assertion of an authenticator over it.

A challenge is issued to one person in one session, for minutes, and is used up in the
transaction in which it signs. The document is rebuilt there, from the rows under the
run's lock, so an assertion over anything else fits nothing.
"""

import base64
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from approvals import passkeys
from approvals.confirmation import PostedAssertion, Site
from approvals.models import Passkey, PasskeyChallenge
from checkpoints.bundle.verifier import DOCUMENT, challenge_of, fault_of_assertion
from checkpoints.core.strict_json import parse_strict
from checkpoints.models import Run
from orchestrator.engine.errors import (
    ConfirmationRequired,
    InvalidValue,
    TamperedRow,
    WrongKey,
)

LIFETIME = timedelta(minutes=5)
"""How long a challenge may be answered."""

Lines = Sequence[Mapping[str, Any]]
"""What is decided, write by write, as the document has it."""


def issue_challenge(
    run: Run, by: Any, lines: Lines, *, site: Site, session: str, at: datetime
) -> dict[str, Any]:
    """Return the id of a new challenge over these decisions, and the options with which
    the browser of this person signs it: {"challenge", "options"}. It is made at this
    moment, by the database's clock.

    Raises `InvalidValue` if they have no passkey for this site.
    """
    # Those that they did not answer in time are of no use to anyone.
    unanswered = PasskeyChallenge.objects.filter(user=by.pk)
    unanswered.filter(created_at__lt=at - LIFETIME).delete()
    nonce = secrets.token_hex(16)
    challenge = challenge_of(_document(run, by, lines, site, nonce))
    options = passkeys.signing_options(by, site, challenge)
    row = PasskeyChallenge.objects.create(
        user=by,
        session=session,
        nonce=nonce,
        challenge=challenge.hex(),
        created_at=at,
    )
    return {"challenge": str(row.id), "options": options}


def _document(
    run: Run, by: Any, lines: Lines, site: Site, nonce: str
) -> dict[str, Any]:
    """Return the document that is signed; docs/confirmation.md describes it."""
    return {
        "type": DOCUMENT,
        "rp_id": site.rp_id,
        "origin": site.origin,
        "run": str(run.id),
        "by": by.get_username(),
        "nonce": nonce,
        "decisions": list(lines),
    }


def verified_assertion(
    posted: PostedAssertion, run: Run, by: Any, lines: Lines, *, at: datetime
) -> dict[str, Any]:
    """Return the assertion of a passkey over exactly these decisions, as a receipt keeps
    it. The challenge is used up, and the key's counter kept, in the caller's
    transaction.

    Raises `ConfirmationRequired`, whose fact `reason` is a word for what is wrong.
    """
    challenge = _used_challenge(posted, by, at)
    document = _document(run, by, lines, posted.site, challenge.nonce)
    if challenge_of(document).hex() != challenge.challenge:
        raise _refused("other_content", "it was asked to sign something else")
    credential = _credential(posted)
    key = _usable_key(by, posted.site, str(credential.get("id", "")))
    try:
        sign_count = passkeys.verified_sign_count(
            key,
            posted.site,
            challenge=bytes.fromhex(challenge.challenge),
            credential=credential,
        )
    except InvalidValue as error:
        raise _refused("not_verified", str(error.facts["reason"])) from error
    passkeys.note_use(key, sign_count=sign_count, at=at)
    assertion = _assertion(document, key, credential)
    # Nothing is kept that the offline verifier would refuse.
    fault = fault_of_assertion(assertion)
    if fault:
        raise _refused("not_verified", fault)
    return assertion


def _used_challenge(posted: PostedAssertion, by: Any, at: datetime) -> PasskeyChallenge:
    """Return the challenge that is answered, and use it up: nobody answers it twice."""
    challenges = PasskeyChallenge.objects.select_for_update()
    challenge = challenges.filter(
        id=posted.challenge, user=by.pk, session=posted.session
    ).first()
    if challenge is None:
        raise _refused(
            "no_challenge", "it answers nothing that you were asked in this session"
        )
    if at - challenge.created_at > LIFETIME:
        raise _refused("too_late", "it came too late; sign again")
    removed, _ = PasskeyChallenge.objects.filter(id=challenge.id).delete()
    if removed != 1:
        raise _refused("no_challenge", "it was used already")
    return challenge


def _credential(posted: PostedAssertion) -> dict[str, Any]:
    """Return what the browser returned, as JSON."""
    try:
        credential = parse_strict(posted.credential)
    except (ValueError, RecursionError) as error:
        raise _refused("not_verified", "it cannot be read") from error
    if not isinstance(credential, dict):
        raise _refused("not_verified", "it cannot be read")
    return credential


def _usable_key(by: Any, site: Site, credential: str) -> Passkey:
    try:
        key = passkeys.locked_key(by, site, credential)
    # The run is as it was written, so it must not be taken for tampered.
    except (TamperedRow, WrongKey) as fault:
        raise _refused("tampered_key", "its record was changed") from fault
    if key is None:
        raise _refused("no_key", "it is none of yours, or was revoked")
    return key


def _assertion(
    document: Mapping[str, Any], key: Passkey, credential: Mapping[str, Any]
) -> dict[str, Any]:
    response = credential["response"]
    return {
        "document": document,
        "credential": key.credential,
        "name": key.name,
        "fingerprint": key.fingerprint,
        "public_key": key.public_key,
        "client_data": _base64(response["clientDataJSON"]),
        "authenticator_data": _base64(response["authenticatorData"]),
        "signature": _base64(response["signature"]),
    }


def _base64(text: str) -> str:
    """Return bytes that a browser wrote in base64url as plain base64."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return base64.b64encode(data).decode()


def _refused(reason: str, why: str) -> ConfirmationRequired:
    return ConfirmationRequired(
        f"Nothing was signed: the passkey was not accepted, for {why}.",
        reason=reason,
        method="passkey",
    )
