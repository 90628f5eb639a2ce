"""The SAML provider of a company: `pysaml2`, which signs by the program `xmlsec1`. It reads
the metadata of this site, and answers the requests that browsers bring.
"""

import shutil
from base64 import b64encode
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from saml2 import BINDING_HTTP_REDIRECT
from saml2.config import IdPConfig
from saml2.saml import NAMEID_FORMAT_PERSISTENT, NAMEID_FORMAT_UNSPECIFIED, NameID
from saml2.server import Server
from saml2.xmldsig import DIGEST_SHA256, SIG_RSA_SHA256

ISSUER = "https://login.example.org/saml"
XMLSEC = shutil.which("xmlsec1") or ""
MISSING = "the program xmlsec1 is not installed: apt-get install xmlsec1"


def pem_of(key: Any) -> bytes:
    """Return a private key as text."""
    pem: bytes = key.private_bytes(
        Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
    )
    return pem


def certificate_of(key: Any) -> bytes:
    """Return a certificate of a key, signed by itself, as text."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


@dataclass
class SamlCompany:
    """The people of a company and their groups, at a provider with a key of its own."""

    folder: Path
    key: Any = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    sign_in_url: str = "https://login.example.org/saml/sign-in"
    people: dict[str, dict[str, Any]] = field(default_factory=dict)
    wants_signed: bool = False
    """Whether it refuses a request that is not signed."""

    def __post_init__(self) -> None:
        self.key_file.write_bytes(pem_of(self.key))
        self.certificate.write_bytes(certificate_of(self.key))

    @property
    def key_file(self) -> Path:
        return self.folder / "provider.key"

    @property
    def certificate(self) -> Path:
        return self.folder / "provider.pem"

    def set_person(self, sub: str, *groups: str, **attributes: Any) -> None:
        """Keep a person with these groups, in the place of what was said before."""
        self.people[sub] = {"groups": list(groups), **attributes}

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return what `COUNTERSIGN` needs for this provider."""
        return {
            "SAML_ISSUER": ISSUER,
            "SAML_SIGN_IN_URL": self.sign_in_url,
            "SAML_CERTIFICATE": str(self.certificate),
            "COMPANY_NAME": "Acme",
            "COMPANY_GROUPS": {
                "acme-reviewers": ["reviewer"],
                "acme-auditors": ["auditor"],
            },
            **more,
        }

    def answer_as(
        self,
        sub: str,
        address: str,
        *,
        metadata: str,
        issuer: str = ISSUER,
        lifetime: int = 5,
        asked_at: int | None = None,
        name_format: str = NAMEID_FORMAT_PERSISTENT,
        **changes: Any,
    ) -> str:
        """Return the answer that a browser is given which came to `address`, and at which
        that person signs in: XML in base64.
        """
        server = self._server(metadata, issuer, lifetime)
        query = dict(parse_qsl(urlsplit(address).query))
        request = server.parse_authn_request(
            query["SAMLRequest"],
            BINDING_HTTP_REDIRECT,
            relay_state=query.get("RelayState"),
            sigalg=query.get("SigAlg"),
            signature=query.get("Signature"),
        )
        moment = int(datetime.now(UTC).timestamp()) if asked_at is None else asked_at
        arguments = {
            **server.response_args(request.message),
            "userid": sub,
            "name_id": NameID(format=name_format, text=sub),
            "authn": {
                "class_ref": "urn:oasis:names:tc:SAML:2.0:ac:classes:Password",
                "authn_auth": issuer,
                "authn_instant": moment,
            },
            "sign_assertion": True,
            "sign_response": False,
            "sign_alg": SIG_RSA_SHA256,
            "digest_alg": DIGEST_SHA256,
            **changes,
        }
        del arguments["name_id_policy"]
        answer = server.create_authn_response(self.people[sub], **arguments)
        return b64encode(str(answer).encode()).decode()

    def _server(self, metadata: str, issuer: str, lifetime: int) -> Server:
        ways = [(self.sign_in_url, BINDING_HTTP_REDIRECT)]
        policy = {
            "lifetime": {"minutes": lifetime},
            "attribute_restrictions": None,
            "name_form": "urn:oasis:names:tc:SAML:2.0:attrname-format:basic",
        }
        config = IdPConfig()
        config.load(
            {
                "entityid": issuer,
                "service": {
                    "idp": {
                        "endpoints": {"single_sign_on_service": ways},
                        "name_id_format": [NAMEID_FORMAT_UNSPECIFIED],
                        "policy": {"default": policy},
                        "want_authn_requests_signed": self.wants_signed,
                    }
                },
                "key_file": str(self.key_file),
                "cert_file": str(self.certificate),
                "xmlsec_binary": XMLSEC,
                "metadata": {"inline": [metadata]},
                "attribute_map_dir": None,
            }
        )
        return Server(config=config)
