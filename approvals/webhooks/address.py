"""The addresses to which webhooks send: how they are read, and to which network
addresses a connection is allowed.
"""

import ipaddress
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from checkpoints.conf import conf
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen

LONGEST_URL = 500
PORTS = {"https": 443, "http": 80}
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that embed an IPv4 address in their last 32 bits."""


@frozen
class WebhookAddress:
    """The parts of an address. `path` includes the query."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def named_host(self) -> str:
        """Return the host as a request names it, with its port unless that is the
        default.
        """
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"


def read_address(url: Any) -> WebhookAddress:
    """Return the parts of an address to which a webhook may send. Raises
    `InvalidValue`, which quotes no part of it, because its path may be secret.
    """
    if not isinstance(url, str) or not 1 <= len(url) <= LONGEST_URL:
        raise _refusal(f"has 1 to {LONGEST_URL} characters")
    # A line break or a space would end the line of the request.
    if not url.isascii() or not url.isprintable() or " " in url:
        raise _refusal("has ASCII characters without spaces")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refusal("cannot be read") from None
    _require_plain(parts)
    _require_scheme(parts.scheme)
    path = parts.path or "/"
    if parts.query:
        path = f"{path}?{parts.query}"
    return WebhookAddress(
        parts.scheme, str(parts.hostname), port or PORTS[parts.scheme], path
    )


def _require_plain(parts: SplitResult) -> None:
    if not parts.hostname:
        raise _refusal("names a host")
    if parts.username is not None or parts.password is not None:
        raise _refusal("holds no user and no password")
    if parts.fragment:
        raise _refusal("has no part after #")


def _require_scheme(scheme: str) -> None:
    if scheme == "https":
        return
    if scheme == "http" and (settings.DEBUG or conf().webhooks_over_http):
        return
    raise _refusal("begins with https://")


def _refusal(words: str) -> InvalidValue:
    return InvalidValue(f"the address of a webhook {words}", path="url")


def may_connect(address: str) -> bool:
    """Return whether a webhook may connect to this network address: only to public
    ones, unless the settings allow others. Link-local addresses are never allowed:
    clouds hand out credentials there.
    """
    if conf().webhooks_to_private_addresses:
        return not _is_of_link(address)
    return is_public(address)


def _is_of_link(address: str) -> bool:
    """Return whether an address is link-local, or not an address at all."""
    parsed = _parsed(address)
    if parsed is None:
        return True
    return any(inner.is_link_local for inner in (parsed, *_inside(parsed)))


def is_public(address: str) -> bool:
    """Return whether a network address is public: not loopback, private, link-local or
    multicast, even when embedded in an IPv6 address.
    """
    parsed = _parsed(address)
    # Python counts these deprecated addresses as global.
    if parsed is None or getattr(parsed, "is_site_local", False):
        return False
    for inner in (parsed, *_inside(parsed)):
        if not inner.is_global or inner.is_multicast or inner.is_reserved:
            # The NAT64 range is reserved; the embedded address decides.
            if inner in _NAT64:
                continue
            return False
    return True


def _parsed(address: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None


def _inside(address: IPAddress) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that are embedded in an IPv6 address."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    inside = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [inner for inner in inside if inner is not None]
