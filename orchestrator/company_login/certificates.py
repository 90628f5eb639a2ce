"""The certificates by which a SAML provider signs, and the key of this site."""

from base64 import b64encode
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from checkpoints.conf import conf


class OwnKey(NamedTuple):
    """The key by which this site signs and decrypts, in PEM, and its certificate in
    base64.
    """

    private: str
    certificate: str


def of_provider() -> list[str]:
    """Return the certificates of the configured file, each in base64. Read at each
    log-in, so that another file counts at once. Raises `OSError`, `ValueError`.
    """
    text = Path(conf().saml_certificate).read_bytes()
    return [
        _in_base64(certificate) for certificate in x509.load_pem_x509_certificates(text)
    ]


def own_key() -> OwnKey | None:
    """Return the key of the configured file; None if none is configured. Raises
    `OSError`, `ValueError`.
    """
    path = conf().saml_key
    if not path:
        return None
    text = Path(path).read_bytes()
    certificate = x509.load_pem_x509_certificate(text)
    try:
        key = load_pem_private_key(text, password=None)
    except TypeError as error:
        raise ValueError("the key has a password") from error
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("the key is not an RSA key")
    if key.public_key() != certificate.public_key():
        raise ValueError("the certificate is that of another key")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return OwnKey(private.decode(), _in_base64(certificate))


def _in_base64(certificate: x509.Certificate) -> str:
    return b64encode(certificate.public_bytes(Encoding.DER)).decode()
