"""A socket is opened by a page of this installation only: scheme, host and port are
those it is called by.
"""

from typing import Any

import pytest
from django.test import override_settings

from checkpoints.models import Run
from orchestrator.live.origins import is_from_here, parse_origin
from tests.support.browsers import Browser

HTTPS_BY_PROXY = ("HTTP_X_FORWARDED_PROTO", "https")


def allowed(
    origin: str | None,
    *,
    host: str = "testserver",
    scheme: str | None = None,
    **headers: str,
) -> bool:
    sent_headers = [
        (b"host", host.encode()),
        *((name.encode(), value.encode()) for name, value in headers.items()),
    ]
    if origin is not None:
        sent_headers.append((b"origin", origin.encode()))
    scope: dict[str, Any] = {
        "type": "websocket",
        "path": "/ws/runs/",
        "query_string": b"",
        "headers": sent_headers,
    }
    return is_from_here(scope | ({"scheme": scheme} if scheme else {}))


@pytest.mark.django_db(transaction=True)
async def test_a_page_of_another_port_opens_no_socket(run: Run, olive: Browser) -> None:
    async with olive.socket(f"/ws/runs/{run.id}/", origin="http://testserver"):
        pass
    connected, _ = await olive.communicator(
        f"/ws/runs/{run.id}/", origin="http://testserver:8001"
    ).connect(timeout=15)
    assert not connected


@pytest.mark.parametrize(
    "origin",
    [
        "http://testserver:8001",
        "https://testserver",
        "http://elsewhere",
        "http://localhost",
        "null",
        "",
        "testserver",
        "http://testserver.elsewhere",
        "http://testserver/",
        "http://u@testserver",
        "http://testserver:x",
        "ftp://testserver",
        "http://[",
        "http://",
        None,
    ],
)
def test_a_page_of_another_scheme_host_or_port_is_refused(origin: str | None) -> None:
    assert not allowed(origin)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://testserver", "testserver"),
        ("http://testserver", "testserver:80"),
        ("HTTP://TESTSERVER", "testserver"),
        ("http://localhost:8000", "localhost:8000"),
    ],
)
def test_a_page_of_this_installation_is_let_in(origin: str, host: str) -> None:
    assert allowed(origin, host=host)


def test_a_host_that_is_not_ours_is_refused_whatever_the_origin_says() -> None:
    assert not allowed("http://rebound.example", host="rebound.example")


@pytest.mark.parametrize(
    ("scheme", "origin"), [("wss", "https://testserver"), ("ws", "http://testserver")]
)
def test_the_scheme_is_what_the_server_says(scheme: str, origin: str) -> None:
    assert allowed(origin, scheme=scheme)
    other = "http" if origin.startswith("https") else "https"
    assert not allowed(f"{other}://testserver", scheme=scheme)


@override_settings(SECURE_PROXY_SSL_HEADER=HTTPS_BY_PROXY)
def test_behind_a_proxy_the_scheme_is_what_its_header_says() -> None:
    assert allowed("https://testserver", scheme="ws", **{"x-forwarded-proto": "https"})
    assert not allowed(
        "http://testserver", scheme="ws", **{"x-forwarded-proto": "https"}
    )
    assert not allowed(
        "https://testserver", scheme="ws", **{"x-forwarded-proto": "http"}
    )


@override_settings(SECURE_SSL_REDIRECT=True)
def test_where_the_server_does_not_tell_it_is_the_scheme_that_pages_are_led_to() -> (
    None
):
    assert allowed("https://testserver")
    assert not allowed("http://testserver")


@override_settings(
    CSRF_TRUSTED_ORIGINS=[
        "https://console.example.org",
        "https://*.inner.example.org:8443",
    ]
)
def test_origins_that_are_trusted_with_forms_may_open_sockets() -> None:
    assert allowed("https://console.example.org")
    assert allowed("https://a.inner.example.org:8443")
    assert not allowed("http://console.example.org")
    assert not allowed("https://a.inner.example.org")
    assert not allowed("https://evil-inner.example.org:8443")


def test_an_origin_has_the_usual_port_of_its_scheme() -> None:
    assert parse_origin("https://a.example") == ("https", "a.example", 443)
    assert parse_origin("http://[::1]:8000") == ("http", "::1", 8000)
