"""Sockets as a browser opens them: through the whole application, with its cookie, its
origin and the host it calls.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from asgiref.testing import ApplicationCommunicator
from channels.db import database_sync_to_async
from channels.testing import WebsocketCommunicator
from django.conf import settings
from django.test import Client

from checkpoints.models import Run
from orchestrator.asgi import application
from tests.support.rows import an_event

PAGE = "http://testserver"


class Browser:
    """Somebody at the pages of this installation; `None` is a stranger."""

    def __init__(self, user: Any) -> None:
        self.client = Client()
        self.cookie = ""
        if user is not None:
            self.client.force_login(user)
            self.cookie = self.client.cookies[settings.SESSION_COOKIE_NAME].value

    def communicator(
        self,
        path: str,
        *,
        origin: str | None = PAGE,
        host: str = "testserver",
        scheme: str | None = None,
    ) -> WebsocketCommunicator:
        headers = [
            (b"host", host.encode()),
            (b"cookie", f"{settings.SESSION_COOKIE_NAME}={self.cookie}".encode()),
        ]
        if origin is not None:
            headers.append((b"origin", origin.encode("latin-1")))
        made = WebsocketCommunicator(application, path, headers=headers)
        if scheme:
            made.scope["scheme"] = scheme
        return made

    @asynccontextmanager
    async def socket(
        self, path: str, **how: Any
    ) -> AsyncIterator[WebsocketCommunicator]:
        communicator = self.communicator(path, **how)
        connected, code = await communicator.connect(timeout=15)
        assert connected, code
        try:
            yield communicator
        finally:
            await communicator.disconnect(timeout=15)


async def close_of(communicator: WebsocketCommunicator) -> int:
    """The code with which the socket is closed, whatever it sends before."""
    while True:
        message = await communicator.receive_output(timeout=15)
        if message["type"] == "websocket.close":
            return int(message["code"])


async def happen(run: Run, *numbers: int) -> None:
    """Add lines with these numbers to the log, and note them in the run's row."""

    def write() -> None:
        for seq in numbers:
            an_event(run, seq, type="checkpoint_saved", payload={"superstep": seq})
        Run.objects.filter(id=run.id).update(event_seq=max(numbers))

    await database_sync_to_async(write)()


async def parts_of(path: str, cookie: str, seen: Callable[[bytes], Any]) -> list[Any]:
    """Return what `seen` says of each part of an answer when it arrives from the
    application, run as by an ASGI server.
    """
    headers = [
        (b"host", b"testserver"),
        (b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()),
    ]
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": headers,
    }
    scope |= {
        "http_version": "1.1",
        "scheme": "http",
        "server": ("testserver", 80),
        "client": ("127.0.0.1", 1),
    }
    made = ApplicationCommunicator(application, scope)
    await made.send_input({"type": "http.request", "body": b"", "more_body": False})
    collected = []
    while True:
        part = await made.receive_output(timeout=20)
        if part.get("body"):
            collected.append(seen(part["body"]))
        if part["type"] == "http.response.body" and not part.get("more_body"):
            await made.wait(timeout=20)  # until its connection is closed
            return collected
