"""The address that a request came from, for throttles and the audit log. No header is
trusted unless the settings name it.
"""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest

from checkpoints.conf import conf

NETWORK_BITS = 64
"""Bits of an IPv6 address that one visitor cannot choose."""


def client_address(request: HttpRequest) -> str:
    """Return the address of the sender of a request, of IPv6 its network; empty if it
    cannot be determined.

    Behind a proxy it is in the header that `CLIENT_ADDRESS_HEADER` names, in which the
    proxy nearest to us wrote the last entry. Without that setting all visitors behind
    the proxy would have the proxy's own address, so they have none.
    """
    header = conf().client_address_header
    if header:
        address = _from_header(request, header)
        if address:
            return address
    elif settings.SECURE_PROXY_SSL_HEADER:
        return ""
    # A request that did not come through the proxy lacks the header.
    return _parse(str(request.META.get("REMOTE_ADDR") or ""))


def _from_header(request: HttpRequest, header: str) -> str:
    # Django has headers under these names, with WSGI as with ASGI.
    name = header.upper().replace("-", "_")
    value = str(request.META.get(f"HTTP_{name}", ""))
    _, _, last_entry = value.rpartition(",")
    return _parse(last_entry.strip())


def _parse(text: str) -> str:
    """Return the address in a text, with or without a port; empty if there is none."""
    for candidate in (text, _without_port(text)):
        try:
            return _as_counted(ip_address(candidate))
        except ValueError:
            continue
    return ""


def _as_counted(address: IPv4Address | IPv6Address) -> str:
    """Return an address as the throttles count it. A visitor with one IPv6 address can
    use any other of its network, so the network counts.
    """
    if isinstance(address, IPv4Address):
        return str(address)
    # A server for both protocols sees IPv4 visitors in this form. All of them lie in
    # one network, and would count as one visitor.
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    network = IPv6Network((int(address), NETWORK_BITS), strict=False)
    return str(network.network_address)


def _without_port(text: str) -> str:
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""
