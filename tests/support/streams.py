"""Server-sent events as a browser or a program reads them: through the whole
application, part by part.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from asgiref.testing import ApplicationCommunicator
from django.conf import settings

from orchestrator.asgi import application


class Stream:
    """An answer that has begun. `status` and `headers` are there at once; what comes is
    asked for.
    """

    def __init__(self, communicator: ApplicationCommunicator) -> None:
        self.communicator = communicator
        self.status = 0
        self.headers: dict[str, str] = {}
        self.ended = False
        self._text = ""

    async def begin(self) -> None:
        start = await self.communicator.receive_output(timeout=15)
        self.status = start["status"]
        self.headers = {
            name.decode().lower(): value.decode() for name, value in start["headers"]
        }

    async def block(self) -> str | None:
        """The next block of the stream; None where it has ended."""
        while "\n\n" not in self._text:
            part = await self.communicator.receive_output(timeout=15)
            self._text += part.get("body", b"").decode()
            if not part.get("more_body"):
                self.ended = True
                return None
        block_text, _, self._text = self._text.partition("\n\n")
        return block_text

    async def line(self) -> dict[str, Any] | None:
        """The next line of the log, its number in `id`; None where the stream has
        ended.
        """
        while (block := await self.block()) is not None:
            fields = dict(
                row.split(": ", 1)
                for row in block.splitlines()
                if not row.startswith(":")
            )
            if "data" in fields:
                return {"id": int(fields["id"]), **json.loads(fields["data"])}
        return None

    async def numbers(self, count: int) -> list[int]:
        lines = [await self.line() for _ in range(count)]
        return [line["id"] for line in lines if line is not None]

    async def body(self) -> Any:
        """Return what a refusal says."""
        text = b""
        while True:
            part = await self.communicator.receive_output(timeout=15)
            text += part.get("body", b"")
            if not part.get("more_body"):
                return json.loads(text)


@asynccontextmanager
async def opened(
    path: str, *, cookie: str = "", token: str = "", **headers: str
) -> AsyncIterator[Stream]:
    """The stream at a path below /api/v1/, cut off at the end of the block. Header
    names have _ for -.
    """
    sent_headers = {"host": "testserver", "accept": "text/event-stream", **headers}
    sent_headers |= (
        {"cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"} if cookie else {}
    )
    sent_headers |= {"authorization": f"Token {token}"} if token else {}
    address, _, query = path.partition("?")
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "path": f"/api/v1/{address}",
        "scheme": "http",
        "query_string": query.encode(),
        "server": ("testserver", 80),
        "client": ("127.0.0.1", 1),
        "headers": [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in sent_headers.items()
        ],
    }
    stream = Stream(ApplicationCommunicator(application, scope))
    await stream.communicator.send_input(
        {"type": "http.request", "body": b"", "more_body": False}
    )
    try:
        await stream.begin()
        yield stream
    finally:
        await stream.communicator.send_input({"type": "http.disconnect"})
        with suppress(TimeoutError):
            await stream.communicator.wait(timeout=5)
