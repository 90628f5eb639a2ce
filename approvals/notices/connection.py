"""One POST to the address of a webhook, within bounds: it connects to the address that
was checked, follows no redirects, and limits both the time and the bytes that are read.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Thread, Timer
from time import monotonic
from typing import Any

from approvals.webhooks.address import WebhookAddress, may_connect

SECONDS = 10.0
"""The longest time of one attempt: looking up the host, connecting, TLS, the answer."""
MOST_BYTES = 4096
"""The most bytes read of an answer: only its first line counts."""
MOST_PLACES = 3
"""How many addresses of one host are tried."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([2-9][0-9]{2})(?:[ \r\n]|$)")
_INTERIM = re.compile(rb"HTTP/1\.[01] 1[0-9]{2}[ \r\n]")
_INTERIM_ANSWERS = re.compile(
    rb"(?:HTTP/1\.[01] 1[0-9]{2}[ \r\n].*?\r?\n\r?\n)+", re.DOTALL
)
"""The first lines of interim answers, which only announce another."""


class NotSent(Exception):
    """The receiver did not answer. The message is our own sentence, and quotes neither
    the address nor the receiver.
    """


def post(address: WebhookAddress, headers: Mapping[str, str], body: bytes) -> int:
    """Send a body to an address, and return the status of the answer. Raises `NotSent`.
    It takes at most `SECONDS`.
    """
    until = monotonic() + SECONDS
    with _limited(_opened(address, until), until) as connection:
        connection.sendall(_request(address, headers, body))
        return _read_status(connection)


def _seconds_until(until: float) -> float:
    """Return the seconds that are left. Raises `NotSent` if there are none."""
    seconds = until - monotonic()
    if seconds <= 0:
        raise _too_late()
    return seconds


def _too_late() -> NotSent:
    return NotSent(f"no answer within {SECONDS:g} seconds")


def _opened(address: WebhookAddress, until: float) -> socket.socket:
    """Return a connection to the host, at an allowed address. The name is resolved
    once, so that a second lookup cannot lead elsewhere.
    """
    connection = _connected(_checked_places(address, until), address.port, until)
    if address.scheme == "http":
        return connection
    try:
        context = ssl.create_default_context()
        return context.wrap_socket(
            connection, server_hostname=address.host, do_handshake_on_connect=False
        )
    except (OSError, ValueError) as error:
        connection.close()
        raise NotSent("TLS cannot be used here: its settings are wrong") from error


def _connected(places: Sequence[str], port: int, until: float) -> socket.socket:
    """Return a connection to the first of these addresses that answers. Raises
    `NotSent`.
    """
    for number, place in enumerate(places):
        # Each gets an equal share of the remaining time.
        seconds = _seconds_until(until) / (len(places) - number)
        try:
            return socket.create_connection((place, port), seconds)
        except OSError:
            continue
    raise NotSent("the host cannot be connected to")


def _checked_places(address: WebhookAddress, until: float) -> list[str]:
    """Return the first addresses of the host on the network. Raises `NotSent` if any of
    its addresses must not be connected to.
    """
    places = [str(info[4][0]) for info in _looked_up(address, until)]
    for place in places:
        if not may_connect(place):
            raise NotSent("the host is in a private network")
    return list(dict.fromkeys(places))[:MOST_PLACES]


def _looked_up(address: WebhookAddress, until: float) -> list[Any]:
    """Resolve the name of the host. Raises `NotSent`."""
    infos: list[Any] = []

    def look_up() -> None:
        try:
            infos.extend(
                socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            )
        except (OSError, UnicodeError):
            return

    # The system's own limit for this is longer, and it cannot be interrupted.
    thread = Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_seconds_until(until))
    if thread.is_alive():
        raise _too_late()
    if not infos:
        raise NotSent("the host has no address")
    return infos


@contextmanager
def _limited(connection: socket.socket, until: float) -> Iterator[socket.socket]:
    """Close a connection after the block, and cut it off when its time is up. Its
    errors are raised as `NotSent`.
    """
    # A time limit of the socket starts over with each byte that arrives.
    connection.settimeout(SECONDS)
    limit = Timer(max(0.0, until - monotonic()), _cut, [connection])
    limit.daemon = True
    limit.start()
    try:
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        yield connection
    except ssl.SSLCertVerificationError as error:
        raise NotSent("the host offers no valid certificate") from error
    except (OSError, ValueError) as error:
        raise _reason_of(error, until) from error
    finally:
        limit.cancel()
        connection.close()


def _reason_of(error: Exception, until: float) -> NotSent:
    """Return why a connection ended before there was an answer."""
    # A connection that is cut off may end with any error.
    if isinstance(error, TimeoutError) or monotonic() >= until:
        return _too_late()
    if isinstance(error, ssl.SSLError):
        return NotSent("the host could not agree on TLS")
    return NotSent("the host broke the connection off")


def _cut(connection: socket.socket) -> None:
    try:
        # Bypasses the TLS layer, which another thread is using.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        # It was closed in the meantime.
        return


def _request(address: WebhookAddress, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes of the request. The caller vouches that no header holds a line
    break.
    """
    lines = [f"POST {address.path} HTTP/1.1", f"Host: {address.named_host}"]
    lines += [f"{name}: {text}" for name, text in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("ascii") + body


def _read_status(connection: socket.socket) -> int:
    """Return the status of an answer, after any interim ones. Raises `NotSent`."""
    answer = b""
    while len(answer) < MOST_BYTES and not _has_status(answer):
        part = connection.recv(MOST_BYTES - len(answer))
        if not part:
            break
        answer += part
    line = _STATUS.match(_final(answer))
    if line is None:
        raise NotSent("the answer is not HTTP, or there was none")
    return int(line[1])


def _has_status(answer: bytes) -> bool:
    """Return whether the first line of the final answer is there."""
    final = _final(answer)
    return b"\n" in final and not _INTERIM.match(final)


def _final(answer: bytes) -> bytes:
    """Return an answer without those before it that only announce it."""
    announced = _INTERIM_ANSWERS.match(answer)
    return answer[announced.end() :] if announced else answer
