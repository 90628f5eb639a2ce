"""Secrets and signatures of messages as Standard Webhooks describe them
(standardwebhooks.com), of those that are sent and of those that come in.
"""

import base64
import binascii
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
"""The beginning of a secret; behind it are its bytes in base64."""
SECRET_BYTES = 32
FEWEST_BYTES = 24
MOST_BYTES = 64
TOLERANCE = 300
"""The most seconds by which the clocks of sender and receiver may differ."""
MOST_SIGNATURES = 10


def new_secret() -> str:
    """Return a new secret, as it is shown."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def key_of(secret: str) -> bytes:
    """Return the bytes of a secret, with which messages are signed. Raises `ValueError`
    for a text that is no secret.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("it is not base64") from None
    if not FEWEST_BYTES <= len(key) <= MOST_BYTES:
        raise ValueError(f"it has {FEWEST_BYTES} to {MOST_BYTES} bytes")
    return key


def signature_of(key: bytes, id: str, at: int | str, body: bytes) -> str:
    """Return the signature of a message that is sent `at` this many seconds after 1970."""
    mac = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(mac).decode()}"


def is_signed(
    key: bytes, id: str, at: str, signatures: str, body: bytes, *, now: float
) -> bool:
    """Return whether one of these signatures fits the message, and it was sent within
    `TOLERANCE` of now.
    """
    expected = signature_of(key, id, at, body).encode()
    fits = False
    for signature in signatures.split(" ")[:MOST_SIGNATURES]:
        fits |= hmac.compare_digest(expected, signature.encode())
    is_moment = at.isascii() and at.isdecimal() and len(at) <= 12
    return fits and is_moment and abs(now - int(at)) <= TOLERANCE
