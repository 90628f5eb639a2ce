"""The connections of a client to a site, which carry out steps: one that blocks and one
that awaits.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar
from urllib.parse import urlsplit

try:
    import httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the client needs httpx: pip install 'django-countersign[client]'",
        name="httpx",
    ) from error

from orchestrator.client import types
from orchestrator.client.errors import ApiError
from orchestrator.client.events import SILENCE, Event, EventReader, stream_of
from orchestrator.client.exchange import (
    Call,
    Flow,
    Listen,
    Pause,
    Send,
    Step,
    failure_of,
    unreachable,
)
from orchestrator.client.flows import Flows, next_page

Transport = httpx.BaseTransport
AsyncTransport = httpx.AsyncBaseTransport
R = TypeVar("R")
T = TypeVar("T")


def site_of(url: str) -> str:
    """Return the address of a site. Raises `ValueError` where it is none, or has a
    password, which would stand in errors.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the address of a site begins with https:// or http://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the address has no user, password, query or fragment")
    return url.rstrip("/")


def _options(site: str, token: str, timeout: float) -> dict[str, Any]:
    # Elsewhere a refusal of the header would print it.
    if not re.fullmatch(r"[\w-]+", token, re.ASCII):
        raise ValueError("a token has letters, digits, - and _ alone")
    return {
        "base_url": f"{site}/api/v1/",
        "headers": {"Authorization": f"Token {token}", "Accept": "application/json"},
        "timeout": timeout,
    }


def _request(step: Send) -> dict[str, Any]:
    return {
        "method": step.call.method,
        "url": step.call.path,
        "params": step.call.parameters,
        "json": step.call.body,
        "headers": step.headers,
    }


def _stream(
    reader: EventReader, path: str, *, timeout: float, silence: float
) -> dict[str, Any]:
    """Return the request of a stream from where the reader is."""
    return {
        "method": "GET",
        "url": path,
        "headers": reader.headers(),
        "timeout": httpx.Timeout(timeout, read=silence),
    }


class Connection:
    """Blocks until a step is done."""

    def __init__(
        self,
        flows: Flows,
        token: str,
        *,
        timeout: float,
        transport: Transport | None,
    ) -> None:
        self.flows = flows
        self._timeout = timeout
        self._http = httpx.Client(
            **_options(flows.site, token, timeout), transport=transport
        )

    def close(self) -> None:
        """Close what is open."""
        self._http.close()

    def carry_out(self, flow: Flow[T]) -> T:
        """Carry out the steps and return what they lead to."""
        try:
            step = next(flow)
            while True:
                try:
                    outcome = self._do(step)
                except httpx.RequestError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result

    def rows(self, call: Call[types.Page[R]]) -> Iterator[R]:
        """Yield the rows of a list, page by page."""
        following: Call[types.Page[R]] | None = call
        while following is not None:
            page = self.carry_out(self.flows.send(following))
            yield from page["results"]
            following = next_page(following, page)

    def events(self, run: str, after: int) -> Iterator[Event]:
        """Yield the lines of the log of a run after a line, as they come."""
        call = Call[Any]("GET", stream_of(run))
        reader = EventReader(after)
        while True:
            failure = None
            try:
                with self._open(reader, call.path, SILENCE) as response:
                    if response.is_success:
                        for line in response.iter_lines():
                            event = reader.read(line)
                            if event is not None:
                                yield event
                    else:
                        response.read()
                        failure = failure_of(call, response)
            except httpx.RequestError as error:
                failure = unreachable(call, error)
            time.sleep(
                reader.pause_after_cut(call, failure, retries=self.flows.retries)
            )

    def _do(self, step: Step) -> httpx.Response | int | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        if isinstance(step, Listen):
            return self._listen(step)
        return self._http.request(**_request(step))

    def _listen(self, step: Listen) -> int | None:
        reader = EventReader(step.after)
        ends = time.monotonic() + step.seconds
        try:
            with self._open(reader, step.path, step.seconds) as response:
                if not response.is_success:
                    return None
                for line in response.iter_lines():
                    if reader.read(line) or time.monotonic() > ends:
                        return reader.last
        except httpx.ReadTimeout:
            return reader.last
        except (httpx.RequestError, ApiError):
            return None
        return None

    def _open(
        self, reader: EventReader, path: str, silence: float
    ) -> AbstractContextManager[httpx.Response]:
        return self._http.stream(
            **_stream(reader, path, timeout=self._timeout, silence=silence)
        )


class AsyncConnection:
    """Awaits that a step is done."""

    def __init__(
        self,
        flows: Flows,
        token: str,
        *,
        timeout: float,
        transport: AsyncTransport | None,
    ) -> None:
        self.flows = flows
        self._timeout = timeout
        self._http = httpx.AsyncClient(
            **_options(flows.site, token, timeout), transport=transport
        )

    async def aclose(self) -> None:
        """Close what is open."""
        await self._http.aclose()

    async def carry_out(self, flow: Flow[T]) -> T:
        """Carry out the steps and return what they lead to."""
        try:
            step = next(flow)
            while True:
                try:
                    outcome = await self._do(step)
                except httpx.RequestError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result

    async def rows(self, call: Call[types.Page[R]]) -> AsyncIterator[R]:
        """Yield the rows of a list, page by page."""
        following: Call[types.Page[R]] | None = call
        while following is not None:
            page = await self.carry_out(self.flows.send(following))
            for row in page["results"]:
                yield row
            following = next_page(following, page)

    async def events(self, run: str, after: int) -> AsyncIterator[Event]:
        """Yield the lines of the log of a run after a line, as they come."""
        call = Call[Any]("GET", stream_of(run))
        reader = EventReader(after)
        while True:
            failure = None
            try:
                async with self._open(reader, call.path, SILENCE) as response:
                    if response.is_success:
                        async for line in response.aiter_lines():
                            event = reader.read(line)
                            if event is not None:
                                yield event
                    else:
                        await response.aread()
                        failure = failure_of(call, response)
            except httpx.RequestError as error:
                failure = unreachable(call, error)
            await asyncio.sleep(
                reader.pause_after_cut(call, failure, retries=self.flows.retries)
            )

    async def _do(self, step: Step) -> httpx.Response | int | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        if isinstance(step, Listen):
            return await self._listen(step)
        return await self._http.request(**_request(step))

    async def _listen(self, step: Listen) -> int | None:
        reader = EventReader(step.after)
        ends = time.monotonic() + step.seconds
        try:
            async with self._open(reader, step.path, step.seconds) as response:
                if not response.is_success:
                    return None
                async for line in response.aiter_lines():
                    if reader.read(line) or time.monotonic() > ends:
                        return reader.last
        except httpx.ReadTimeout:
            return reader.last
        except (httpx.RequestError, ApiError):
            return None
        return None

    def _open(
        self, reader: EventReader, path: str, silence: float
    ) -> AbstractAsyncContextManager[httpx.Response]:
        return self._http.stream(
            **_stream(reader, path, timeout=self._timeout, silence=silence)
        )
