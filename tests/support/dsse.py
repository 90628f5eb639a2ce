"""A verifier of DSSE envelopes, written from the specification (protocol and envelope,
version 1) alone.
"""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def opened(envelope: bytes, payload_type: str, public_key: bytes) -> Any:
    """The JSON payload of an envelope that this key signed. Raises `InvalidSignature`,
    `ValueError`, `KeyError`.
    """
    document = json.loads(envelope)
    body = _decoded(document["payload"])
    kind = document["payloadType"].encode()
    before = (
        b"DSSEv1"
        + b" "
        + str(len(kind)).encode()
        + b" "
        + kind
        + b" "
        + str(len(body)).encode()
        + b" "
        + body
    )
    for signature in document["signatures"]:
        Ed25519PublicKey.from_public_bytes(public_key).verify(
            _decoded(signature["sig"]), before
        )
    if document["payloadType"] != payload_type or not document["signatures"]:
        raise ValueError("another type, or nobody signed it")
    return json.loads(body)


def _decoded(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
