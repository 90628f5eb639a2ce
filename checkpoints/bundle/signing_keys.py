"""The key with which this installation signs what leaves it, and the public keys that
it trusts.
"""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from checkpoints.conf import bundle_seed, trusted_keys
from checkpoints.core.keyring import public_part


def private_key() -> Ed25519PrivateKey:
    """Return the key of the settings; without one a key made from the secret key."""
    return Ed25519PrivateKey.from_private_bytes(bundle_seed())


def public_key() -> bytes:
    """Return the 32 bytes with which others verify what this installation signed."""
    return public_part(bundle_seed())


def name_of_key(public: bytes) -> str | None:
    """Return the name under which a public key is trusted here, empty for this
    installation's own; None if it is not trusted.
    """
    if public == public_key():
        return ""
    for name, key in trusted_keys().items():
        if key == public:
            return name
    return None
