"""One POST to the address of a webhook, within bounds: the address that is connected to
is the one that was checked, no redirect is followed, and neither the time nor what is
read of the answer can grow.
"""

import re
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Timer

from approvals.webhooks.address import WebhookAddress, may_connect

SECONDS = 10.0
"""The longest time of one attempt, once the name of the host is looked up."""
MOST_BYTES = 4096
"""The most that is read of an answer: its first line is all that counts."""
MOST_PLACES = 3
"""How many addresses of one host are tried."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?:[ \r\n]|$)")


class NotSent(Exception):
    """There was no answer. The message is a sentence of ours, without any part of the
    address or of what the other side said.
    """


def post(address: WebhookAddress, headers: Mapping[str, str], body: bytes) -> int:
    """Send a body to an address, and return the status of the answer. Raises `NotSent`.

    It takes `SECONDS`, and the time of looking up the name of the host.
    """
    with _limited(_opened(address)) as connection:
        connection.sendall(_request(address, headers, body))
        return _read_status(connection)


def _opened(address: WebhookAddress) -> socket.socket:
    """Return a connection to the host, at an address that may be connected to. That is
    looked up once, so that no second answer can lead elsewhere.
    """
    connection = _connected(_checked_places(address), address.port)
    if address.scheme == "http":
        return connection
    try:
        context = ssl.create_default_context()
        return context.wrap_socket(
            connection, server_hostname=address.host, do_handshake_on_connect=False
        )
    except (OSError, ValueError) as error:
        connection.close()
        raise NotSent("the host offers no valid certificate") from error


def _connected(places: Sequence[str], port: int) -> socket.socket:
    """Return a connection to the first of these that answers. Raises `NotSent`."""
    for place in places:
        try:
            return socket.create_connection((place, port), SECONDS / len(places))
        except OSError:
            continue
    raise NotSent("the host cannot be connected to")


def _checked_places(address: WebhookAddress) -> list[str]:
    """Return the first addresses of the host on the network. Raises `NotSent` if any of
    its addresses must not be connected to.
    """
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotSent("the host has no address") from error
    places = [str(info[4][0]) for info in infos]
    for place in places:
        if not may_connect(place):
            raise NotSent("the host is in a private network")
    return list(dict.fromkeys(places))[:MOST_PLACES]


@contextmanager
def _limited(connection: socket.socket) -> Iterator[socket.socket]:
    """Close a connection after the block, and cut it off when its time is over. Errors
    of it are raised as `NotSent`.
    """
    # A time limit of the socket begins anew with each byte that arrives.
    connection.settimeout(SECONDS)
    limit = Timer(SECONDS, _cut, [connection])
    limit.daemon = True
    limit.start()
    try:
        if isinstance(connection, ssl.SSLSocket):
            connection.do_handshake()
        yield connection
    except ssl.SSLCertVerificationError as error:
        raise NotSent("the host offers no valid certificate") from error
    except (OSError, ValueError) as error:
        raise NotSent(f"no answer within {SECONDS:g} seconds") from error
    finally:
        limit.cancel()
        connection.close()


def _cut(connection: socket.socket) -> None:
    try:
        # Past the layer of TLS, which another thread is using.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        # It was closed meanwhile.
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
    """Return the status in the first line of an answer. Raises `NotSent`."""
    answer = b""
    while b"\n" not in answer and len(answer) < MOST_BYTES:
        part = connection.recv(MOST_BYTES - len(answer))
        if not part:
            break
        answer += part
    line = _STATUS.match(answer)
    if line is None:
        raise NotSent("the answer is not HTTP, or there was none")
    return int(line[1])
