"""Between a client and PostgreSQL: a proxy on a Unix socket that counts messages of the
protocol. Used only where nothing is timed.

A round trip is a message that obliges the server to answer at once: Sync, Query or
Flush.
"""

import selectors
import socket
import struct
import threading
from collections import Counter
from pathlib import Path

from bench.counting.connections import kind


class Frontend:
    """The messages of a client: counts statements, round trips and transactions as they
    pass.
    """

    def __init__(self, counted: "Counter[str]") -> None:
        self._counted = counted
        self._rest = b""
        self._greeted = False
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}

    def feed(self, data: bytes) -> None:
        self._rest += data
        if not self._greeted and len(self._rest) >= 4:
            # The first message has no type; on a Unix socket nobody asks for TLS before
            # it.
            (size,) = struct.unpack_from("!I", self._rest)
            self._rest = self._rest[size:]
            self._greeted = True
        while len(self._rest) >= 5:
            (size,) = struct.unpack_from("!I", self._rest, 1)
            if len(self._rest) < size + 1:
                return
            self._message(self._rest[:1], self._rest[5 : size + 1])
            self._rest = self._rest[size + 1 :]

    def _message(self, letter: bytes, body: bytes) -> None:
        if letter in b"SQH":
            self._counted["round_trips"] += 1
        if letter == b"Q":
            self._ran(body[:-1].decode())
        elif letter == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._prepared[name] = text.decode()
        elif letter == b"B":
            portal, name, _ = body.split(b"\0", 2)
            self._portals[portal] = self._prepared[name]
        elif letter == b"E":
            self._ran(self._portals[body.split(b"\0", 1)[0]])

    def _ran(self, sql: str) -> None:
        self._counted[kind(sql)] += 1


class Wire:
    """The proxy: listens in `folder`, passes on to the server's socket in `server`. One
    thread.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.counted: Counter[str] = Counter()
        self._server = str(server / ".s.PGSQL.5432")
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, tuple[socket.socket, Frontend | None]] = {}
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._open = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._open = False
        self._thread.join()
        for link in [*self._peers, self._listening]:
            link.close()

    def _run(self) -> None:
        while self._open:
            for key, _ in self._selector.select(0.1):
                link = key.fileobj
                assert isinstance(link, socket.socket)
                if link is self._listening:
                    self._accept()
                elif link in self._peers:
                    self._pass_on(link)

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._server)
        self._peers |= {
            client: (server, Frontend(self.counted)),
            server: (client, None),
        }
        for link in (client, server):
            self._selector.register(link, selectors.EVENT_READ)

    def _pass_on(self, link: socket.socket) -> None:
        other, frontend = self._peers[link]
        data = link.recv(1 << 16)
        if data:
            if frontend:
                frontend.feed(data)
            other.sendall(data)
            return
        for end in (link, other):
            self._selector.unregister(end)
            del self._peers[end]
            end.close()
