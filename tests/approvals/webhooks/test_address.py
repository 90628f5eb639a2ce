"""Which addresses a webhook may have, and which hosts it may connect to."""

from typing import Any

import pytest

from approvals.webhooks.address import is_public, may_connect, read_address
from orchestrator.engine.errors import InvalidValue


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example.org/",
        "ftp://hooks.example.org/",
        "https://",
        "https:///path",
        "https://user:word@hooks.example.org/",
        "https://user@hooks.example.org/",
        "https://hooks.example.org/#part",
        "https://hooks.example.org:0x50/",
        "https://hooks.example.org:99999/",
        "https://hooks.example.org/a b",
        "https://hooks.example.org/\r\nX-Other: 1",
        "https://hooks.example.org/\x00",
        "https://hooks.exämple.org/",
        "https://[::1",
        "javascript:alert(1)",
        "https://hooks.example.org/" + "a" * 500,
        "",
        None,
        7,
    ],
)
def test_what_is_no_address_of_a_service_is_refused(url: Any) -> None:
    with pytest.raises(InvalidValue) as refusal:
        read_address(url)
    assert refusal.value.facts["path"] == "url"


def test_a_refusal_repeats_nothing_of_an_address() -> None:
    with pytest.raises(InvalidValue) as refusal:
        read_address("https://user:hunter2@hooks.example.org/")
    assert "hunter2" not in refusal.value.message


def test_an_address_is_read_in_its_parts() -> None:
    read = read_address("https://hooks.example.org:8443/a/b?key=1")
    assert (read.scheme, read.host, read.port) == ("https", "hooks.example.org", 8443)
    assert read.path == "/a/b?key=1"
    assert read.named_host == "hooks.example.org:8443"
    assert read_address("https://hooks.example.org").path == "/"
    assert read_address("https://[2001:db8::1]/").named_host == "[2001:db8::1]"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "239.1.1.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fd00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a00:1",
        "2002:7f00:1::",
        "2001:db8::1",
        "no address",
    ],
)
def test_no_address_that_leads_inwards_is_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "2606:4700:4700::1111", "64:ff9b::5db8:d822"],
)
def test_an_address_that_everybody_reaches_is_public(address: str) -> None:
    assert is_public(address)


def test_settings_allow_private_networks_and_plain_http(configure: Any) -> None:
    assert not may_connect("127.0.0.1")
    configure(
        WEBHOOKS_TO_PRIVATE_ADDRESSES=True,
        WEBHOOKS_OVER_HTTP=True,
    )
    assert may_connect("127.0.0.1")
    assert read_address("http://127.0.0.1:8000/").port == 8000


def test_debug_mode_allows_plain_http(settings: Any) -> None:
    settings.DEBUG = True
    assert read_address("http://hooks.example.org/").scheme == "http"
