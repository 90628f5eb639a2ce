"""deploy/nginx.conf in a real nginx, before a server that says what reached it: the two
headers that are believed, sizes, sockets, and streams that nothing keeps back.
"""

import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.utils import timezone

from checkpoints.conf import Conf
from tests.deploy.programs import nginx
from tests.house.commands import ROOT
from tests.house.programs import free_port, staying, wait_for

CONFIGURATION = ROOT / "deploy" / "nginx.conf"
SITE = "runs.example.org"
STREAM = "/api/v1/runs/CLM-1/stream/"
MEGABYTE = 1024 * 1024


class Echo(BaseHTTPRequestHandler):
    """Answers with the headers that it got; at the address of a stream with one line,
    and a second one after it was asked for it.
    """

    protocol_version = "HTTP/1.1"
    go_on = threading.Event()

    def do_GET(self) -> None:
        if self.path == STREAM:
            self._stream()
        elif self.headers.get("Upgrade"):
            self._upgrade()
        else:
            self._answer(json.dumps(dict(self.headers.items())).encode())

    def do_POST(self) -> None:
        unread = int(self.headers["Content-Length"])
        while unread:
            unread -= len(self.rfile.read(min(unread, MEGABYTE)))
        self._answer(b"read")

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"data: 1\n\n")
        self.go_on.wait(20)
        self.wfile.write(b"data: 2\n\n")
        self.close_connection = True

    def _upgrade(self) -> None:
        self.send_response(101)
        self.send_header("Upgrade", self.headers["Upgrade"])
        self.send_header("Connection", self.headers["Connection"])
        self.end_headers()
        self.wfile.write(self.rfile.readline())
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    """The port of a server that stands for the web process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(scope="module")
def ports(echo: int) -> Iterator[tuple[int, int]]:
    """The ports of an nginx with the configuration, for HTTP and HTTPS."""
    program = nginx()
    folder = Path(tempfile.mkdtemp(prefix="countersign-"))
    plain = free_port()
    secure = free_port()
    _make_certificate(folder)
    _configure(folder, {80: plain, 443: secure}, echo)
    command = [program, "-p", str(folder), "-c", "nginx.conf", "-e", "errors"]
    tested = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert tested.returncode == 0, tested.stderr
    assert "[warn]" not in tested.stderr
    with staying(command, cwd=folder, env={}, log=folder / "log"):
        wait_for(secure, folder / "log")
        yield plain, secure
    shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, ports: dict[int, int], echo: int) -> None:
    """Write the configuration with ports and folders of ours."""
    text = CONFIGURATION.read_text()
    lines = [line for line in text.splitlines() if "listen [::]" not in line]
    text = "\n".join(lines).replace("127.0.0.1:8000", f"127.0.0.1:{echo}")
    text = text.replace("/etc/ssl/countersign", str(folder))
    for usual, ours in ports.items():
        text = text.replace(f"listen {usual}", f"listen 127.0.0.1:{ours}")
    bodies = folder / "bodies"
    bodies.mkdir()
    # It starts as root in some places, and its workers as another user, who must get in.
    folder.chmod(0o755)
    bodies.chmod(0o777)
    (folder / "nginx.conf").write_text(
        "daemon off;\npid pid;\nevents {}\nhttp {\n"
        f"access_log off;\nclient_body_temp_path {bodies};\n"
        f"proxy_temp_path {folder}/proxied;\n{text}\n}}\n"
    )


def _make_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SITE)])
    now = timezone.now()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "fullchain.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "privkey.pem").write_bytes(
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _ask(
    port: int,
    path: str,
    *,
    method: str = "GET",
    body: bytes | None = None,
    **headers: str,
) -> HTTPResponse:
    connection = HTTPSConnection("127.0.0.1", port, timeout=30, context=_context())
    connection.request(method, path, body, {"Host": SITE, **headers})
    return connection.getresponse()


def test_plain_http_is_redirected(ports: tuple[int, int]) -> None:
    connection = HTTPConnection("127.0.0.1", ports[0], timeout=30)
    connection.request("GET", "/runs/?page=2", headers={"Host": SITE})
    answer = connection.getresponse()
    assert answer.status == 301
    assert answer.headers["Location"] == f"https://{SITE}/runs/?page=2"


def test_what_a_client_says_of_its_address_and_scheme_is_replaced(
    ports: tuple[int, int],
) -> None:
    lies = {
        "X-Real-IP": "203.0.113.9",
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Proto": "http",
        "Forwarded": "for=203.0.113.9",
    }
    answer = _ask(ports[1], "/runs/", method="GET", body=None, **lies)
    reached = json.loads(answer.read())
    assert reached["X-Real-IP"] == "127.0.0.1"
    assert reached["X-Forwarded-For"] == "127.0.0.1"
    assert reached["X-Forwarded-Proto"] == "https"
    assert "Forwarded" not in reached
    assert reached["Host"] == SITE
    # The name under which Django sees a header takes underscores for hyphens.
    spoofed = _ask(ports[1], "/runs/", X_Real_IP="203.0.113.9")
    assert "203.0.113.9" not in spoofed.read().decode()


@pytest.mark.parametrize(
    "path", ["/metrics", "/metrics/", "/healthz", "/readyz", "/readyz/workers"]
)
def test_probes_and_metrics_stay_inside(ports: tuple[int, int], path: str) -> None:
    assert _ask(ports[1], path).status == 404


@pytest.mark.parametrize(
    ("path", "megabytes", "status"),
    [
        ("/api/v1/runs/", 8, 200),
        ("/api/v1/runs/", 10, 413),
        ("/api/v1/uploads/", 64, 200),
        ("/api/v1/imports/", 64, 200),
        ("/graphs/claim/start/", 64, 200),
        ("/runs/-/import/", 64, 200),
        ("/api/v1/uploads/", 66, 413),
    ],
)
def test_as_much_may_be_sent_as_the_web_process_takes(
    ports: tuple[int, int], path: str, megabytes: int, status: int
) -> None:
    assert Conf().max_upload_bytes == 64 * MEGABYTE
    body = bytes(megabytes * MEGABYTE)
    try:
        answer = _ask(ports[1], path, method="POST", body=body).status
    except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
        # It closes while it is still being sent to.
        answer = 413
    assert answer == status


def test_a_stream_is_passed_on_line_by_line(ports: tuple[int, int]) -> None:
    Echo.go_on.clear()
    answer = _ask(ports[1], STREAM)
    first = answer.readline()
    Echo.go_on.set()
    rest = answer.read()
    assert first == b"data: 1\n"
    assert rest == b"\ndata: 2\n\n"


def test_a_socket_is_opened_through_it(ports: tuple[int, int]) -> None:
    request = (
        f"GET /ws/runs/ HTTP/1.1\r\nHost: {SITE}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )
    with (
        socket.create_connection(("127.0.0.1", ports[1]), 30) as plain,
        _context().wrap_socket(plain, server_hostname=SITE) as secure,
    ):
        secure.sendall(request.encode())
        head = secure.recv(4096).decode()
        secure.sendall(b"hello\n")
        echoed = secure.recv(100)
    assert head.startswith("HTTP/1.1 101")
    assert "upgrade: websocket" in head.lower()
    assert echoed == b"hello\n"
