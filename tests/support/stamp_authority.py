"""A small time stamp authority (RFC 3161) on a local port, with a root certificate of its
own, for tests: it stamps what it is sent, or answers what a test sets.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from asn1crypto import algos, cms, core, tsp
from asn1crypto import x509 as asn1_x509
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

POLICY = "1.2.3.4.1"


@dataclass
class StampAuthority:
    """An authority. `answers`, where it is set, replaces the next answers; `queries`
    are what was asked of it. It answers with this `status`, and with a `pause`, in
    seconds, byte after byte.
    """

    root: x509.Certificate
    certificate: x509.Certificate
    key: Any
    url: str = ""
    answers: list[bytes] = field(default_factory=list)
    queries: list[bytes] = field(default_factory=list)
    status: int = 200
    pause: float = 0.0

    def answer(self, query: bytes) -> bytes:
        self.queries.append(query)
        if self.answers:
            return self.answers.pop(0)
        return self.stamp(query)

    def stamp(self, query: bytes, at: datetime | None = None) -> bytes:
        """Return the TimeStampResp for a TimeStampReq, both DER."""
        stamp_request = tsp.TimeStampReq.load(query)
        info = tsp.TSTInfo(
            {
                "version": "v1",
                "policy": POLICY,
                "message_imprint": stamp_request["message_imprint"],
                "serial_number": len(self.queries) + 1,
                "gen_time": (at or datetime.now(UTC)).replace(microsecond=0),
                "nonce": stamp_request["nonce"],
            }
        )
        token = cms.ContentInfo(
            {"content_type": "signed_data", "content": self._signed(info)}
        )
        response = tsp.TimeStampResp(
            {"status": {"status": "granted"}, "time_stamp_token": token}
        )
        stamped: bytes = response.dump()
        return stamped

    def _signed(self, info: tsp.TSTInfo) -> cms.SignedData:
        own = asn1_x509.Certificate.load(
            self.certificate.public_bytes(serialization.Encoding.DER)
        )
        content = info.dump()
        attributes = cms.CMSAttributes(
            [
                cms.CMSAttribute({"type": "content_type", "values": ["tst_info"]}),
                cms.CMSAttribute(
                    {
                        "type": "message_digest",
                        "values": [core.OctetString(sha256(content).digest())],
                    }
                ),
                cms.CMSAttribute(
                    {
                        "type": "signing_certificate_v2",
                        "values": [
                            tsp.SigningCertificateV2(
                                {"certs": [{"cert_hash": sha256(own.dump()).digest()}]}
                            )
                        ],
                    }
                ),
            ]
        )
        signer = cms.SignerInfo(
            {
                "version": "v1",
                "sid": cms.IssuerAndSerialNumber(
                    {"issuer": own.issuer, "serial_number": own.serial_number}
                ),
                "digest_algorithm": algos.DigestAlgorithm({"algorithm": "sha256"}),
                "signed_attrs": attributes,
                "signature_algorithm": {"algorithm": "sha256_rsa"},
                "signature": self.key.sign(
                    attributes.dump(), padding.PKCS1v15(), hashes.SHA256()
                ),
            }
        )
        return cms.SignedData(
            {
                "version": "v3",
                "digest_algorithms": [{"algorithm": "sha256"}],
                "encap_content_info": {
                    "content_type": "tst_info",
                    "content": core.ParsableOctetString(content),
                },
                "certificates": [own],
                "signer_infos": [signer],
            }
        )


def new_authority() -> StampAuthority:
    """Return an authority with a new key and a new root."""
    root_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    root_name = _name("Test root")
    root = (
        _certificate(root_name, root_name, root_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
    certificate = (
        _certificate(root_name, _name("Test authority"), key.public_key())
        .add_extension(usage, critical=True)
        .sign(root_key, hashes.SHA256())
    )
    return StampAuthority(root, certificate, key)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(issuer: Any, subject: Any, key: Any) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=400))
        .not_valid_after(now + timedelta(days=400))
    )


def write_root(authority: StampAuthority, folder: Path) -> Path:
    """Write the root certificate as PEM, and return the file."""
    path = folder / "roots.pem"
    path.write_bytes(authority.root.public_bytes(serialization.Encoding.PEM))
    return path


@contextmanager
def served(authority: StampAuthority) -> Iterator[StampAuthority]:
    """Serve the authority on a local port while the context is open."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            body = authority.answer(query)
            self.send_response(authority.status)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Type", "application/timestamp-reply")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not authority.pause:
                self.wfile.write(body)
                return
            for byte in body:
                time.sleep(authority.pause)
                try:
                    self.wfile.write(bytes([byte]))
                except OSError:
                    return

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    authority.url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield authority
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
