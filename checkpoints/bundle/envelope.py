"""Signed envelopes: canonical JSON of a type, signed with the installation's key, as
DSSE version 1 has it.
"""

import hashlib
import json
from base64 import b64encode
from typing import Any

from checkpoints.bundle.signing_keys import private_key, public_key
from orchestrator.engine.values import canonical


def sealed_envelope(payload_type: str, content: Any) -> bytes:
    """Return the bytes of a file with the envelope of a JSON value. Raises
    `InvalidValue` if the value has no canonical form.
    """
    payload = canonical.dumps(content)
    signature = private_key().sign(authenticated_bytes(payload_type, payload))
    signed = {
        "keyid": hashlib.sha256(public_key()).hexdigest(),
        "sig": b64encode(signature).decode(),
    }
    envelope = {
        "payload": b64encode(payload).decode(),
        "payloadType": payload_type,
        "signatures": [signed],
    }
    return json.dumps(envelope, indent=1).encode() + b"\n"


def authenticated_bytes(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that are signed: version, then length and bytes of the type and
    of the payload, one space between.
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
