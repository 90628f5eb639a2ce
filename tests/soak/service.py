"""The outside world of a soak: a process of its own that counts calls by what was asked
and under which key.

Nothing ever kills it, so what it has counted is the truth. Nodes call it, the operator
asks it, the judge reads it all.
"""

import json
import os
import socket
import socketserver
import sys
import threading
from collections import Counter

PORT = "COUNTERSIGN_SOAK_SERVICE"
"""The variable that holds its port on the loopback."""

_counted: Counter[str] = Counter()
_lock = threading.Lock()


class _Line(socketserver.StreamRequestHandler):
    """One line: `call WHAT RUN KEY` counts, `count WHAT RUN KEY` asks, `all` gives
    everything as JSON.
    """

    def handle(self) -> None:
        verb, _, name = self.rfile.readline().decode().strip().partition(" ")
        with _lock:
            if verb == "call":
                _counted[name] += 1
            answer = json.dumps(_counted if verb == "all" else _counted[name])
        self.wfile.write(answer.encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = allow_reuse_address = True
    request_queue_size = 128


def call(what: str, run: str, key: str) -> None:
    """An effect that cannot be taken back."""
    _ask(f"call {what} {run} {key}")


def count(what: str, run: str, key: str) -> int:
    """Return how often this was called."""
    return int(_ask(f"count {what} {run} {key}"))


def everything() -> dict[tuple[str, str, str], int]:
    """Each (what, run, key) that was ever called, and how often."""
    document: dict[str, int] = json.loads(_ask("all"))
    return {
        (what, run, key): n
        for name, n in document.items()
        for what, run, key in [name.split(" ")]
    }


def _ask(line: str) -> str:
    with socket.create_connection(("127.0.0.1", int(os.environ[PORT])), 30) as link:
        link.sendall(f"{line}\n".encode())
        with link.makefile() as answer:
            return answer.read()


if __name__ == "__main__":
    with _Server(("127.0.0.1", 0), _Line) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()  # until whoever started it is gone
