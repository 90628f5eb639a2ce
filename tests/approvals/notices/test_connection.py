"""One POST within bounds: only where it may go, only once, for so long and so much."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from time import monotonic
from typing import Any

import pytest

from approvals.notices import connection
from approvals.notices.connection import NotSent, post
from approvals.webhooks.address import WebhookAddress
from tests.support.receivers import receiving


@pytest.fixture
def private(configure: Any) -> None:
    configure(
        WEBHOOKS_TO_PRIVATE_ADDRESSES=True,
    )


def at_port(port: int, *, scheme: str = "http", host: str = "127.0.0.1") -> Any:
    return WebhookAddress(scheme, host, port, "/here?a=1")


def port_of(url: str) -> int:
    return int(url.rstrip("/").rpartition(":")[2])


def test_a_body_arrives_and_the_status_comes_back(private: None) -> None:
    with receiving() as receiver:
        receiver.answers = [201]
        address = at_port(port_of(receiver.url))
        assert post(address, {"webhook-id": "msg_1"}, b'{"a": 1}') == 201
    [received] = receiver.received
    assert received.body == b'{"a": 1}'
    assert received.id == "msg_1"
    assert received.headers["host"] == f"127.0.0.1:{address.port}"


def test_a_redirect_is_an_answer_and_is_not_followed(private: None) -> None:
    with receiving() as receiver:
        receiver.answers = [307]
        assert post(at_port(port_of(receiver.url)), {}, b"{}") == 307
    assert len(receiver.received) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_host_in_a_private_network_is_not_connected_to(host: str) -> None:
    with receiving() as receiver:
        address = at_port(port_of(receiver.url), host=host)
        with pytest.raises(NotSent, match="private network"):
            post(address, {}, b"{}")
    assert receiver.received == []


def test_a_name_that_leads_to_one_private_address_among_others_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def looked_up(*args: Any, **kwargs: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 443))
            for place in ("93.184.216.34", "10.0.0.1")
        ]

    def connected(*args: Any) -> Any:
        raise AssertionError("it was connected to")

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(socket, "create_connection", connected)
    with pytest.raises(NotSent, match="private network"):
        post(at_port(443, host="hooks.example.org"), {}, b"{}")


def test_what_is_connected_to_is_what_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [["93.184.216.34"], ["127.0.0.1"]]
    places: list[Any] = []

    def looked_up(*args: Any, **kwargs: Any) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 80))
            for place in answers.pop(0)
        ]

    def connected(place: Any, timeout: float) -> Any:
        places.append(place)
        raise OSError

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    monkeypatch.setattr(socket, "create_connection", connected)
    with pytest.raises(NotSent, match="connected"):
        post(at_port(80, host="hooks.example.org"), {}, b"{}")
    assert places == [("93.184.216.34", 80)]
    assert len(answers) == 1


def test_an_unknown_host_and_a_closed_port_are_said_without_their_names(
    private: None,
) -> None:
    with pytest.raises(NotSent) as unknown:
        post(at_port(80, host="no.such.host.invalid"), {}, b"{}")
    assert "invalid" not in str(unknown.value)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(NotSent, match="cannot be connected to"):
            post(at_port(closed.getsockname()[1]), {}, b"{}")


def test_a_host_without_tls_gets_nothing(private: None) -> None:
    with receiving() as receiver:
        address = at_port(port_of(receiver.url), scheme="https")
        with pytest.raises(NotSent):
            post(address, {}, b"{}")
    assert receiver.received == []


@contextmanager
def answering(*parts: bytes, pause: float = 0.0) -> Iterator[int]:
    """A server that sends these parts to whoever connects, with pauses between them."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = server.accept()
        with client:
            client.recv(65_536)
            for part in parts:
                try:
                    client.sendall(part)
                except OSError:
                    return
                if pause:
                    done.wait(pause)

    from threading import Event

    done = Event()
    Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        done.set()
        server.close()


@pytest.mark.parametrize(
    "answer", [b"", b"hello\r\n", b"HTTP/1.1 2000 OK\r\n", b"x" * 100_000]
)
def test_an_answer_that_is_not_http_is_none(private: None, answer: bytes) -> None:
    with answering(answer) as port, pytest.raises(NotSent):
        post(at_port(port), {}, b"{}")


def test_a_body_without_end_is_not_read(private: None) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1_000_000) as port:
        assert post(at_port(port), {}, b"{}") == 200


def test_an_answer_that_drips_is_cut_off(
    private: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SECONDS", 2.0)
    began = monotonic()
    with answering(*[b"H"] * 100, pause=0.5) as port, pytest.raises(NotSent):
        post(at_port(port), {}, b"{}")
    assert monotonic() - began < 20
