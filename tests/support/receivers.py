"""A service of elsewhere that receives webhooks, on this host: it keeps what it got, and
answers as the test says.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import orjson


@dataclass
class Received:
    """One request that came in."""

    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = orjson.loads(self.body)
        return document

    def is_signed_with(self, secret: str) -> bool:
        """Return whether the signature verifies, as Standard Webhooks say."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        mac = hmac.new(key, signed, hashlib.sha256).digest()
        expected = f"v1,{base64.b64encode(mac).decode()}"
        return hmac.compare_digest(expected, self.headers["webhook-signature"])


@dataclass
class Receiver:
    """What came in so far, and the statuses of the next answers; 204 after these."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    before_answer: Callable[[], None] = lambda: None


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run a receiver at an address of this host."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            headers = {name.lower(): text for name, text in self.headers.items()}
            receiver.received.append(Received(headers, self.rfile.read(length)))
            receiver.before_answer()
            status = receiver.answers.pop(0) if receiver.answers else 204
            self.send_response(status)
            if status in (301, 302, 307):
                self.send_header("Location", receiver.url + "elsewhere")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
