"""The clients of the API: one that blocks and one that awaits, with the same methods."""

import asyncio
import re
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self, TypeVar, Unpack
from urllib.parse import urlsplit

try:
    import httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "the client needs httpx: pip install 'django-countersign[client]'",
        name="httpx",
    ) from error

from orchestrator.client.approval import Approval
from orchestrator.client.exchange import Call, Flow, Pause
from orchestrator.client.flows import Flows, Question

T = TypeVar("T")


def _site(url: str) -> str:
    """Return the address of a site. Raises `ValueError` where it is none, or has a
    password, which would stand in errors.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the address of a site begins with https:// or http://")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the address has no user, password, query or fragment")
    return url.rstrip("/")


def _headers(token: str) -> dict[str, str]:
    # Elsewhere a refusal of the header would print it.
    if not re.fullmatch(r"[\w-]+", token, re.ASCII):
        raise ValueError("a token has letters, digits, - and _ alone")
    return {"Authorization": f"Token {token}", "Accept": "application/json"}


class Client:
    """A client that blocks. `url` is the address of the site, `token` that of a user;
    a call is sent again up to `retries` times where that has its effect only once.

        with Client("https://runs.example.org", token=token) as client:
            approval = client.ask(title=…, items=…, reviewers=…)
    """

    def __init__(
        self,
        url: str,
        *,
        token: str,
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._flows = Flows(_site(url), retries)
        self._http = httpx.Client(
            base_url=f"{self._flows.site}/api/v1/",
            headers=_headers(token),
            timeout=timeout,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"Client({self._flows.site!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ask(self, **question: Unpack[Question]) -> Approval:
        """Ask people to decide on items. With a `key`, the same question is the same
        approval. Raises `KeyConflict` where the key is that of another question.
        """
        return self._run(self._flows.ask(question))

    def approval(self, id_or_key: str) -> Approval:
        """Return an approval by its id or key."""
        return self._run(self._flows.approval(id_or_key))

    def wait(self, id_or_key: str, timeout: float | None = None) -> Approval:
        """Return an approval as soon as it is neither opening nor open. Raises
        `TimeoutError` after `timeout` seconds.
        """
        return self._run(self._flows.wait(id_or_key, timeout))

    def cancel(self, id_or_key: str, reason: str = "") -> Approval:
        """Take a question back. What was signed stays on record."""
        return self._run(self._flows.cancel(id_or_key, reason))

    def report(
        self, id_or_key: str, outcomes: Mapping[str, tuple[str, str]]
    ) -> Approval:
        """Report what came of the items: {item: (done, failed or unknown, detail)}."""
        return self._run(self._flows.report(id_or_key, outcomes))

    def send(self, call: Call[T]) -> T:
        """Send a call and return its answer."""
        return self._run(self._flows.send(call))

    def _run(self, flow: Flow[T]) -> T:
        """Carry out the steps and return what they lead to."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    response = self._http.request(
                        step.call.method,
                        step.call.path,
                        params=step.call.query,
                        json=step.call.body,
                        headers=step.headers,
                    )
                except httpx.TransportError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(response)
        except StopIteration as end:
            result: T = end.value
            return result


class AsyncClient:
    """A client that awaits; its methods are those of `Client`."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._flows = Flows(_site(url), retries)
        self._http = httpx.AsyncClient(
            base_url=f"{self._flows.site}/api/v1/",
            headers=_headers(token),
            timeout=timeout,
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"AsyncClient({self._flows.site!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(self, **question: Unpack[Question]) -> Approval:
        """Ask people to decide on items, as `Client.ask`."""
        return await self._run(self._flows.ask(question))

    async def approval(self, id_or_key: str) -> Approval:
        """Return an approval by its id or key."""
        return await self._run(self._flows.approval(id_or_key))

    async def wait(
        self,
        id_or_key: str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Approval:
        """Return an approval as soon as it is decided, as `Client.wait`."""
        return await self._run(self._flows.wait(id_or_key, timeout))

    async def cancel(self, id_or_key: str, reason: str = "") -> Approval:
        """Take a question back. What was signed stays on record."""
        return await self._run(self._flows.cancel(id_or_key, reason))

    async def report(
        self, id_or_key: str, outcomes: Mapping[str, tuple[str, str]]
    ) -> Approval:
        """Report what came of the items, as `Client.report`."""
        return await self._run(self._flows.report(id_or_key, outcomes))

    async def send(self, call: Call[T]) -> T:
        """Send a call and return its answer."""
        return await self._run(self._flows.send(call))

    async def _run(self, flow: Flow[T]) -> T:
        """Carry out the steps and return what they lead to."""
        try:
            step = next(flow)
            while True:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = flow.send(None)
                    continue
                try:
                    response = await self._http.request(
                        step.call.method,
                        step.call.path,
                        params=step.call.query,
                        json=step.call.body,
                        headers=step.headers,
                    )
                except httpx.TransportError as error:
                    step = flow.throw(error)
                else:
                    step = flow.send(response)
        except StopIteration as end:
            result: T = end.value
            return result
