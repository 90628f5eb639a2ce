"""Backpressure: responses wait for their readers. daphne accepts whatever an application
sends and keeps it in memory until the client has read it, so a stream that nobody reads
would grow for as long as it is open.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog
from twisted.web.http import Request

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

log = structlog.get_logger(__name__)


class SendGate:
    """Open while the connection takes more; Twisted calls it a push producer. The
    transport closes it once some 64 KiB wait to be read, and opens it when they were,
    or when the client is gone.
    """

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    async def passed(self) -> None:
        """Wait until it is open."""
        await self._open.wait()

    def pauseProducing(self) -> None:
        self._open.clear()

    def resumeProducing(self) -> None:
        self._open.set()

    def stopProducing(self) -> None:
        self._open.set()


class PacedResponses:
    """An ASGI application for HTTP: each part of an answer waits until the client has
    read those before it. An answer that fails half-way ends with its connection, so
    that the client takes no half for the whole.

    Servers other than daphne wait by themselves, and get each part at once.
    """

    def __init__(self, application: Application) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        request = _request_of(send)
        if request is None:
            return await self.application(scope, receive, send)
        paced = _Paced(send, request)
        try:
            await self.application(scope, receive, paced)
        except Exception:
            if not paced.begun:
                raise
            # daphne would begin a second answer, fail at that, and never again look
            # after connections that ended.
            log.exception("answer_broken_off", path=scope["path"])
            request.loseConnection()
        finally:
            paced.leave()


def _request_of(send: Send) -> Any:
    """Return the request of daphne that `send` is bound to; None with another server."""
    bound = getattr(send, "args", ())
    return bound[0] if bound and isinstance(bound[0], Request) else None


class _Paced:
    """The `send` of one request."""

    def __init__(self, send: Send, request: Any) -> None:
        self._send = send
        self._request = request
        self._gate: SendGate | None = None
        self.begun = False

    async def __call__(self, message: Message) -> None:
        has_more = message["type"] == "http.response.body" and message.get(
            "more_body", False
        )
        # A request whose client is gone has no channel to register a gate with.
        if has_more and self._gate is None and self._request.channel is not None:
            self._gate = SendGate()
            self._request.registerProducer(self._gate, True)
        if self._gate is not None:
            await self._gate.passed()
        if not has_more:
            self.leave()
        self.begun = True
        await self._send(message)

    def leave(self) -> None:
        """Remove the gate from the transport, before the last part or after an error,
        because a request can only end without one.
        """
        if self._gate is not None and self._request.channel is not None:
            self._request.unregisterProducer()
        self._gate = None
