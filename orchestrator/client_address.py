"""Where a request came from, for throttles and the audit log. No header is believed unless the settings name it."""

from ipaddress import IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest

from checkpoints.conf import conf


def client_address(request: HttpRequest) -> str:
    """The address of who sent the request, of IPv6 its network; empty where nobody can tell.

    Behind a proxy it stands in the header that `CLIENT_ADDRESS_HEADER` names, where the proxy nearest to us wrote the
    last entry. Without that setting everybody behind the proxy would have the proxy's own address, so nobody has one.
    """
    if header := conf().client_address_header:
        told = str(request.META.get(f"HTTP_{header.upper().replace('-', '_')}", ""))
        if found := _parse(told.rpartition(",")[2].strip()):
            return found
    elif settings.SECURE_PROXY_SSL_HEADER:
        return ""
    return _parse(str(request.META.get("REMOTE_ADDR") or ""))


def _parse(text: str) -> str:
    for each in (text, _without_port(text)):
        try:
            found = ip_address(each)
        except ValueError:
            continue
        if isinstance(found, IPv6Address):
            # Whoever has one address of IPv6 has as many as he likes: it is the network that is his.
            network = IPv6Network((int(found), 64), strict=False).network_address
            return str(found.ipv4_mapped or network)
        return str(found)
    return ""


def _without_port(text: str) -> str:
    try:
        return urlsplit(f"//{text}").hostname or ""
    except ValueError:
        return ""
