"""An authenticator in software, and what it says on request, right or wrong."""

import base64
import hashlib
import json
import os
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from approvals import passkeys
from approvals.confirmation import Confirmation, PostedAssertion, Site
from approvals.models import Passkey

SITE = Site("localhost", "http://localhost")
SESSION = "a" * 64
PRESENT = 0x01
VERIFIED = 0x04
WITH_KEY = 0x40


def to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def to_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Authenticator:
    """One key of one person, with a counter, on one site."""

    def __init__(self, site: Site = SITE) -> None:
        self.site = site
        self.credential = os.urandom(16)
        self.count = 0
        self._key = ec.generate_private_key(ec.SECP256R1())

    def create(
        self, options: dict[str, Any], flags: int = PRESENT | VERIFIED
    ) -> dict[str, Any]:
        """Return what a browser returns for a new key."""
        numbers = self._key.public_key().public_numbers()
        cose = {1: 2, 3: -7, -1: 1}
        cose |= {-2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        own = bytes(16) + len(self.credential).to_bytes(2, "big") + self.credential
        data = self._data(flags | WITH_KEY, self.site) + own + cbor2.dumps(cose)
        attestation = {"fmt": "none", "attStmt": {}, "authData": data}
        client = self._client("webauthn.create", options["challenge"], self.site)
        return self._answer(
            clientDataJSON=client, attestationObject=cbor2.dumps(attestation)
        )

    def sign(
        self,
        options: dict[str, Any],
        *,
        flags: int = PRESENT | VERIFIED,
        site: Site | None = None,
        challenge: str = "",
    ) -> dict[str, Any]:
        """Return what a browser returns for a signature."""
        site = site or self.site
        self.count += 1
        data = self._data(flags, site)
        client = self._client("webauthn.get", challenge or options["challenge"], site)
        signed = data + hashlib.sha256(client).digest()
        signature = self._key.sign(signed, ec.ECDSA(SHA256()))
        return self._answer(
            clientDataJSON=client, authenticatorData=data, signature=signature
        )

    def _data(self, flags: int, site: Site) -> bytes:
        site_hash = hashlib.sha256(site.rp_id.encode()).digest()
        return site_hash + bytes([flags]) + self.count.to_bytes(4, "big")

    def _client(self, kind: str, challenge: str, site: Site) -> bytes:
        client = {"type": kind, "challenge": challenge, "origin": site.origin}
        return json.dumps({**client, "crossOrigin": False}).encode()

    def _answer(self, **response: bytes) -> dict[str, Any]:
        return {
            "id": to_text(self.credential),
            "rawId": to_text(self.credential),
            "type": "public-key",
            "response": {name: to_text(data) for name, data in response.items()},
            "clientExtensionResults": {},
        }


def registered(user: Any, site: Site = SITE) -> tuple[Authenticator, Passkey]:
    """A new key of this person, registered."""
    authenticator = Authenticator(site)
    challenge = os.urandom(32)
    options = passkeys.registration_options(user, site, challenge)
    made = authenticator.create(options)
    key = passkeys.register_key(
        user, site, name="My laptop", challenge=challenge, credential=made
    )
    return authenticator, key


def confirmation(
    user: Any,
    asked: dict[str, Any],
    credential: Any,
    *,
    site: Site = SITE,
    session: str = SESSION,
) -> Confirmation:
    """The answer to a challenge, as a page hands it on."""
    posted = PostedAssertion(
        challenge=asked["challenge"],
        session=session,
        site=site,
        credential=json.dumps(credential),
    )
    return Confirmation(user.pk, "passkey", posted)
