"""Verifies that a passkey signed exactly what was decided: its assertion over a document,
with the public key that is kept beside it. Needs nothing but that.

The document says what was decided: {type, rp_id, origin, run, by, nonce, decisions:
[{request, write, revision, hash, verdict, value_hash, reason_hash}]}. The authenticator
was given the SHA-256 of its canonical JSON as its challenge.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from checkpoints.core.strict_json import parse_strict
from orchestrator.engine.values import canonical

DOCUMENT = "countersign-passkey-1"
_FLAGS_AT = 32
"""The place of the flags in an authenticator's data, behind the hash of the site."""
_PRESENT = 0x01
_VERIFIED = 0x04


class BadAssertion(Exception):
    """An assertion that proves nothing; its text says why."""


def challenge_of(document: Mapping[str, Any]) -> bytes:
    """Return the challenge for a document: the SHA-256 of its canonical JSON."""
    return hashlib.sha256(canonical.dumps(document)).digest()


def fingerprint_of(public_key: bytes) -> str:
    """Return the fingerprint of a public key (SubjectPublicKeyInfo, DER), which people
    compare: its SHA-256 in hex.
    """
    return hashlib.sha256(public_key).hexdigest()


def verify_assertion(assertion: Mapping[str, Any]) -> None:
    """Raise `BadAssertion` unless the key of an assertion signed its document, with its
    person present and verified.

    `assertion`: {document, public_key, client_data, authenticator_data, signature}, the
    last four in base64.
    """
    document = assertion["document"]
    _require(document["type"] == DOCUMENT, "its document is of an unknown type")
    client_data = _bytes(assertion, "client_data")
    authenticator_data = _bytes(assertion, "authenticator_data")
    _require_client_data(client_data, document)

    site_hash = hashlib.sha256(document["rp_id"].encode()).digest()
    is_of_site = authenticator_data[:_FLAGS_AT] == site_hash
    _require(is_of_site, "it was made for another site")
    flags = authenticator_data[_FLAGS_AT]
    _require(bool(flags & _PRESENT), "nobody was present")
    _require(bool(flags & _VERIFIED), "its person was not verified")

    # This is what WebAuthn signs.
    signed = authenticator_data + hashlib.sha256(client_data).digest()
    _require_signature(
        _bytes(assertion, "public_key"), _bytes(assertion, "signature"), signed
    )


def _require_client_data(client_data: bytes, document: Mapping[str, Any]) -> None:
    """Raise `BadAssertion` unless a browser asked for a signature of this document."""
    client = parse_strict(client_data)
    _require(client["type"] == "webauthn.get", "it is no assertion")
    is_of_origin = client["origin"] == document["origin"]
    _require(is_of_origin, "it was made on a page of another origin")
    challenge = base64.urlsafe_b64encode(challenge_of(document)).decode().rstrip("=")
    _require(client["challenge"] == challenge, "it is over something else")


def _require_signature(public_key: bytes, signature: bytes, signed: bytes) -> None:
    key = load_der_public_key(public_key)
    try:
        if isinstance(key, EllipticCurvePublicKey):
            key.verify(signature, signed, ECDSA(SHA256()))
        elif isinstance(key, Ed25519PublicKey):
            key.verify(signature, signed)
        elif isinstance(key, RSAPublicKey):
            key.verify(signature, signed, PKCS1v15(), SHA256())
        else:
            raise BadAssertion("its key is of an unknown kind")
    except InvalidSignature:
        raise BadAssertion("its signature is not of its key") from None


def _bytes(assertion: Mapping[str, Any], name: str) -> bytes:
    return base64.b64decode(assertion[name], validate=True)


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise BadAssertion(reason)
