"""Where a request came from: nothing that a client may write is believed, unless the
settings name the header.
"""

import pytest
from django.test import RequestFactory, override_settings

from orchestrator.client_address import client_address

BEHIND_PROXY = {"SECURE_PROXY_SSL_HEADER": ("HTTP_X_FORWARDED_PROTO", "https")}


def address(remote: str = "203.0.113.9", **headers: str) -> str:
    return client_address(
        RequestFactory().get("/", REMOTE_ADDR=remote, headers=headers)
    )


def test_without_a_setting_no_header_is_believed() -> None:
    forged = {
        "X-Forwarded-For": "198.51.100.1",
        "X-Real-IP": "198.51.100.1",
        "Forwarded": "for=198.51.100.1",
    }
    assert address(**forged) == "203.0.113.9"


@override_settings(**BEHIND_PROXY)
def test_behind_a_proxy_that_names_no_header_nobody_has_an_address() -> None:
    assert address(**{"X-Forwarded-For": "198.51.100.1"}) == ""


@override_settings(
    COUNTERSIGN={"CLIENT_ADDRESS_HEADER": "X-Forwarded-For"}, **BEHIND_PROXY
)
def test_the_entry_that_the_proxy_wrote_into_the_named_header_counts() -> None:
    assert (
        address("10.0.0.1", **{"X-Forwarded-For": "1.2.3.4, 198.51.100.1"})
        == "198.51.100.1"
    )
    assert (
        address("10.0.0.1", **{"X-Forwarded-For": "198.51.100.1:4711"})
        == "198.51.100.1"
    )


@override_settings(COUNTERSIGN={"CLIENT_ADDRESS_HEADER": "X-Real-IP"})
@pytest.mark.parametrize("header", ["", "unknown", "[", "1.2.3", "a\x00b"])
def test_where_the_header_tells_no_address_it_is_that_of_the_connection(
    header: str,
) -> None:
    assert address("203.0.113.9", **{"X-Real-IP": header}) == "203.0.113.9"


@pytest.mark.parametrize(
    ("remote", "network"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
        ("::1", "::"),
        ("", ""),
        ("[2001:db8:1:2::7]:443", "2001:db8:1:2::"),
    ],
)
def test_ipv6_addresses_count_by_network(remote: str, network: str) -> None:
    assert address(remote) == network
