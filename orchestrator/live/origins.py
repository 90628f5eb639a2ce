"""The pages that may open a socket: those of this installation, by scheme, host and port,
and the trusted origins.

A browser sends its cookies with a socket that any page opens, without asking first;
only the origin distinguishes the pages.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.utils.http import is_same_domain

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[Any]]
Origin = tuple[str, str, int]
"""Scheme, host and port."""

PORTS = {"http": 80, "https": 443}


class SameOrigin:
    """Passes on the sockets of this installation's own pages; the handshake of every
    other is refused.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> Any:
        application = self.application if is_from_here(scope) else WebsocketDenier()
        return await application(scope, receive, send)


def is_from_here(scope: Scope) -> bool:
    """Return whether the socket's origin is the address it was opened at, or one of
    `CSRF_TRUSTED_ORIGINS`.
    """
    origins = [
        value.decode("latin-1")
        for name, value in scope.get("headers", ())
        if name == b"origin"
    ]
    # If there are two origins, nobody can say which one the browser means.
    origin = parse_origin(origins[0]) if len(origins) == 1 else None
    # Django's own request, so that hosts are allowed, and read behind a proxy, as they
    # are for pages.
    request = ASGIRequest({**scope, "type": "http", "method": "GET"}, BytesIO())
    try:
        host = request.get_host()
    except DisallowedHost:
        return False
    if origin is None:
        return False
    return origin == parse_origin(f"{_scheme(request, scope)}://{host}") or _is_trusted(
        origin
    )


def parse_origin(text: str) -> Origin | None:
    """Return scheme, host and port of an origin, by default the usual port of its
    scheme; None if the text is no origin.
    """
    try:
        parts = urlsplit(text.lower())
        port = parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    if (
        not parts.hostname
        or parts.path
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        return None
    return parts.scheme, parts.hostname, port


def _scheme(request: ASGIRequest, scope: Scope) -> str:
    """Return the scheme of the page's address: as the trusted proxy reports it, else
    the server, else as the settings require.
    """
    if settings.SECURE_PROXY_SSL_HEADER:
        return request.scheme or "http"
    plain_scheme = {"wss": "https", "https": "https", "ws": "http", "http": "http"}.get(
        scope.get("scheme", "")
    )
    # daphne does not report the scheme of a socket.
    return plain_scheme or ("https" if settings.SECURE_SSL_REDIRECT else "http")


def _is_trusted(origin: Origin) -> bool:
    for text in settings.CSRF_TRUSTED_ORIGINS:
        # Django compares a wildcard as a domain with a leading dot.
        trusted = parse_origin(text.replace("://*.", "://.", 1))
        if (
            trusted
            and trusted[::2] == origin[::2]
            and is_same_domain(origin[1], trusted[1])
        ):
            return True
    return False
