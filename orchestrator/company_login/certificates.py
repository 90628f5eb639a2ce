"""The certificates by which a SAML provider signs."""

from base64 import b64encode
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from checkpoints.conf import conf


def of_provider() -> list[str]:
    """Return the certificates of the configured file, each in base64. Read at each
    log-in, so that another file counts at once. Raises `OSError`, `ValueError`.
    """
    text = Path(conf().saml_certificate).read_bytes()
    return [
        b64encode(certificate.public_bytes(Encoding.DER)).decode()
        for certificate in x509.load_pem_x509_certificates(text)
    ]
