"""Passkeys of people: registering, naming and revoking them, and reading those that may
sign. The library `webauthn` reads what authenticators say; without it nothing is
registered and nothing is signed.
"""

import base64
from collections.abc import Iterable
from importlib.util import find_spec
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models import Exists, F, OuterRef, QuerySet
from django.utils import timezone

from approvals.confirmation import Site
from approvals.models import Passkey
from checkpoints.audit import lines as audit_log
from checkpoints.bundle.verifier import fingerprint_of
from checkpoints.core.arguments import checked_text
from checkpoints.models import AuditLine
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import PLAIN
from orchestrator.engine.errors import (
    Forbidden,
    InvalidValue,
    TamperedRow,
    UnknownThing,
)
from orchestrator.engine.frozen import frozen

MOST_KEYS = 20
"""The most keys that a person may have at a time."""
LONGEST_NAME = 100
REVOKED = "passkey_revoked"
"""The kind of the audit line of a revocation."""
REVOKE = "approvals.change_passkey"
"""The permission to revoke the keys of others."""
BROUGHT_BACK = "it was revoked, as the audit log says, and its row does not say so"
UNAVAILABLE = (
    "passkeys are not installed here; an administrator installs the package “webauthn”"
)

# The library is imported where it is used: it takes megabytes, which workers and most web
# processes never need.
is_available = find_spec("webauthn") is not None


def require_available() -> None:
    """Raise `InvalidValue` where the library is not installed."""
    if not is_available:
        raise InvalidValue(UNAVAILABLE)


def registration_options(user: Any, site: Site, challenge: bytes) -> dict[str, Any]:
    """Return the options with which a browser makes a key for this person, as JSON.
    Raises `InvalidValue`.
    """
    require_available()
    import webauthn
    from webauthn.helpers import options_to_json_dict, structs

    keys = list(usable_keys(user))
    if len(keys) >= MOST_KEYS:
        raise InvalidValue(f"nobody has more than {MOST_KEYS} passkeys; revoke one")
    options = webauthn.generate_registration_options(
        rp_id=site.rp_id,
        rp_name="Countersign",
        user_id=f"countersign:{user.pk}".encode(),
        user_name=user.get_username(),
        challenge=challenge,
        authenticator_selection=structs.AuthenticatorSelectionCriteria(
            resident_key=structs.ResidentKeyRequirement.DISCOURAGED,
            user_verification=structs.UserVerificationRequirement.REQUIRED,
        ),
        exclude_credentials=[_descriptor(key) for key in keys],
        supported_pub_key_algs=_algorithms(),
    )
    return dict(options_to_json_dict(options))


def _descriptor(key: Passkey) -> Any:
    from webauthn.helpers.structs import PublicKeyCredentialDescriptor

    return PublicKeyCredentialDescriptor(id=_from_base64url(key.credential))


def _from_base64url(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _algorithms() -> list[Any]:
    """Return the algorithms that the offline verifier knows too."""
    from webauthn.helpers.cose import COSEAlgorithmIdentifier

    return [
        COSEAlgorithmIdentifier.ECDSA_SHA_256,
        COSEAlgorithmIdentifier.EDDSA,
        COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
    ]


def register_key(
    user: Any, site: Site, *, name: str, challenge: bytes, credential: Any
) -> Passkey:
    """Keep the key that an authenticator made for this person, and leave an audit line.
    `credential` is what the browser returned, as JSON.

    Raises `InvalidValue` if it is not the answer to this challenge, on this site, by an
    authenticator that verified its person, or if the key is there already.
    """
    require_available()
    import webauthn

    name = checked_text(name.strip(), "name", least=1, most=LONGEST_NAME)
    try:
        registration = webauthn.verify_registration_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            require_user_verification=True,
            supported_pub_key_algs=_algorithms(),
        )
    # The library raises others too where a stranger sends another form than it expects.
    except Exception as error:
        raise InvalidValue(f"the passkey was not taken: {error}") from error
    public_key = _public_key(registration.credential_public_key)
    key = Passkey(
        user=user,
        name=name,
        credential=base64.urlsafe_b64encode(registration.credential_id)
        .decode()
        .rstrip("="),
        cose_key=base64.b64encode(registration.credential_public_key).decode(),
        public_key=base64.b64encode(public_key).decode(),
        fingerprint=fingerprint_of(public_key),
        rp_id=site.rp_id,
        sign_count=registration.sign_count,
        created_at=timezone.now(),
    )
    sealed_rows.seal(key, PLAIN)
    with transaction.atomic():
        if Passkey.objects.filter(credential=key.credential).exists():
            raise InvalidValue("this passkey is registered already")
        key.save()
        audit_log.record(
            "passkey_registered",
            actor=user,
            name=key.name,
            fingerprint=key.fingerprint,
        )
    return key


def _public_key(cose_key: bytes) -> bytes:
    """Return a public key in the form that needs no WebAuthn to be read."""
    from webauthn.helpers import (
        decode_credential_public_key,
        decoded_public_key_to_cryptography,
    )

    decoded = decode_credential_public_key(cose_key)
    key: Any = decoded_public_key_to_cryptography(decoded)
    return bytes(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def rename_key(user: Any, key_id: int, name: str) -> None:
    """Give a key of this person another name. Raises `UnknownThing`, `InvalidValue`,
    `TamperedRow`.
    """
    name = checked_text(name.strip(), "name", least=1, most=LONGEST_NAME)
    with transaction.atomic():
        key = _locked(user, key_id)
        key.save(update_fields=sealed_rows.seal_again(key, PLAIN, name=name))


def revoke_key(user: Any, key_id: int, *, by: Any = None) -> None:
    """Revoke a key of this person for good, and leave an audit line. What it signed
    before stays signed. `by` is who revokes it, None for the person themselves.

    Raises `UnknownThing`, `TamperedRow`; `Forbidden` where others lack the right.
    """
    by = user if by is None else by
    if by.pk != user.pk and not by.has_perm(REVOKE):
        raise Forbidden("you may revoke only your own passkeys")
    with transaction.atomic():
        key = _locked(user, key_id)
        # The first time counts: it never goes back, and never moves.
        if key.revoked_at is not None:
            return
        at = timezone.now()
        key.save(update_fields=sealed_rows.seal_again(key, PLAIN, revoked_at=at))
        facts: dict[str, Any] = {"name": key.name, "fingerprint": key.fingerprint}
        if by.pk != user.pk:
            facts["of"] = user.get_username()
        audit_log.record("passkey_revoked", actor=by, **facts)


def _locked(user: Any, key_id: int) -> Passkey:
    keys = Passkey.objects.select_for_update().filter(user=user.pk, id=key_id)
    key = keys.first()
    if key is None:
        raise UnknownThing("you have no such passkey")
    sealed_rows.verify_row(key, PLAIN)
    return key


@frozen
class ListedKey:
    """A key as a list shows it. `fault` says why it is not to be relied on: its row is
    not what was registered; empty if it is.
    """

    key: Passkey
    fault: str = ""


def listed_keys(user: Any, *, first: int, most: int) -> list[ListedKey]:
    """Return `most` keys of this person from the `first` on, those that may sign first,
    then the newest. Two queries, one without keys.
    """
    usable_first = F("revoked_at").desc(nulls_first=True)
    rows = Passkey.objects.filter(user=user.pk).order_by(
        usable_first, "-created_at", "-id"
    )
    keys = list(rows[first : first + most])
    if not keys:
        return []
    revoked = revoked_fingerprints(keys)
    listed: list[ListedKey] = []
    for key in keys:
        fault = fault_of(key, PLAIN)
        is_brought_back = key.revoked_at is None and key.fingerprint in revoked
        reason = "" if fault is None else fault.reason
        listed.append(ListedKey(key, BROUGHT_BACK if is_brought_back else reason))
    return listed


def usable_keys(user: Any) -> "QuerySet[Passkey]":
    """Return the keys with which this person may sign, the newest first."""
    return Passkey.objects.filter(user=user.pk, revoked_at=None)


def signing_options(user: Any, site: Site, challenge: bytes) -> dict[str, Any]:
    """Return the options with which a browser asks for a signature over a challenge, as
    JSON. Raises `InvalidValue` if this person has no key for this site.
    """
    require_available()
    import webauthn
    from webauthn.helpers import options_to_json_dict
    from webauthn.helpers.structs import UserVerificationRequirement

    keys = list(usable_keys(user).filter(rp_id=site.rp_id))
    if not keys:
        raise InvalidValue(
            "you have no passkey for this site; register one on the page of your account"
        )
    options = webauthn.generate_authentication_options(
        rp_id=site.rp_id,
        challenge=challenge,
        allow_credentials=[_descriptor(key) for key in keys],
        user_verification=UserVerificationRequirement.REQUIRED,
    )
    return dict(options_to_json_dict(options))


def verified_sign_count(
    key: Passkey, site: Site, *, challenge: bytes, credential: Any
) -> int:
    """Return the counter of an authenticator that signed this challenge on this site
    with this key, its person verified. Raises `InvalidValue` (with `reason`) otherwise,
    including where its counter is not above the last one.
    """
    require_available()
    import webauthn

    try:
        used = webauthn.verify_authentication_response(
            credential=credential,
            expected_challenge=challenge,
            expected_rp_id=site.rp_id,
            expected_origin=site.origin,
            credential_public_key=base64.b64decode(key.cose_key),
            credential_current_sign_count=key.sign_count,
            require_user_verification=True,
        )
    except Exception as error:
        raise InvalidValue(
            f"the passkey was not accepted: {error}", reason=str(error)
        ) from error
    return int(used.new_sign_count)


def note_use(key: Passkey, *, sign_count: int, at: Any) -> None:
    """Keep the counter of a key that has signed, in the caller's transaction."""
    values = {"sign_count": sign_count, "used_at": at}
    key.save(update_fields=sealed_rows.seal_again(key, PLAIN, **values))


def locked_key(user: Any, site: Site, credential: str) -> Passkey | None:
    """Return this person's usable key with this id for this site, locked; None if there
    is none. Raises `TamperedRow` if it is not as it was registered, or was revoked.
    """
    keys = usable_keys(user).select_for_update()
    key = keys.filter(credential=credential, rp_id=site.rp_id).first()
    if key is None:
        return None
    sealed_rows.verify_row(key, PLAIN)
    # A whole earlier row verifies too; the audit log never forgets.
    if revoked_fingerprints([key]):
        name = sealed_rows.name_of(key)
        raise TamperedRow(f"{name}: {BROUGHT_BACK}", row=name)
    return key


def revoked_fingerprints(keys: Iterable[Passkey]) -> set[str]:
    """Return the fingerprints of those of these keys that the audit log records as
    revoked, whatever their rows say. One query.
    """
    fingerprints = [key.fingerprint for key in keys]
    lines = AuditLine.objects.filter(kind=REVOKED, facts__fingerprint__in=fingerprints)
    return set(lines.order_by().values_list("facts__fingerprint", flat=True))


def people_without_keys() -> "QuerySet[Any]":
    """Return the active people who have no passkey with which they could sign."""
    own = Passkey.objects.filter(user=OuterRef("pk"), revoked_at=None)
    people = get_user_model()._default_manager.filter(is_active=True)
    return people.filter(~Exists(own))
