"""The clients of the API: one that blocks and one that awaits, with the same methods."""

from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Self, TypeVar, Unpack

from orchestrator.client import types
from orchestrator.client.approval import Approval
from orchestrator.client.connections import (
    AsyncConnection,
    AsyncTransport,
    Connection,
    Transport,
    site_of,
)
from orchestrator.client.exchange import Call
from orchestrator.client.flows import Flows, Question
from orchestrator.client.requests import AsyncRequests, Requests
from orchestrator.client.runs import AsyncRuns, Runs

R = TypeVar("R")
T = TypeVar("T")


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
        transport: Transport | None = None,
    ) -> None:
        self._flows = Flows(site_of(url), retries)
        self._connection = Connection(
            self._flows, token, timeout=timeout, transport=transport
        )
        self.runs = Runs(self._connection)
        self.requests = Requests(self._connection)

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
        self._connection.close()

    def ask(self, **question: Unpack[Question]) -> Approval:
        """Ask people to decide on items. With a `key`, the same question is the same
        approval. Raises `KeyConflict` where the key is that of another question.
        """
        return self._connection.carry_out(self._flows.ask(question))

    def approval(self, id_or_key: str) -> Approval:
        """Return an approval by its id or key."""
        return self._connection.carry_out(self._flows.approval(id_or_key))

    def wait(self, id_or_key: str, timeout: float | None = None) -> Approval:
        """Return an approval as soon as it is neither opening nor open. Raises
        `TimeoutError` after `timeout` seconds.
        """
        return self._connection.carry_out(self._flows.wait(id_or_key, timeout))

    def cancel(self, id_or_key: str, reason: str = "") -> Approval:
        """Take a question back. What was signed stays on record."""
        return self._connection.carry_out(self._flows.cancel(id_or_key, reason))

    def report(
        self,
        approval: Approval,
        outcomes: Mapping[str, tuple[str, str]],
    ) -> Approval:
        """Report what came of the items: {item: (done, failed or unknown, detail)}.
        `approval` is the one whose values were acted on: the report is refused where
        something else was signed since.
        """
        flow = self._flows.report(approval, outcomes)
        return self._connection.carry_out(flow)

    def send(self, call: Call[T]) -> T:
        """Send any call of `orchestrator.client.calls` and return its answer."""
        return self._connection.carry_out(self._flows.send(call))

    def rows(self, call: Call[types.Page[R]]) -> Iterator[R]:
        """Yield the rows of a list, page by page."""
        return self._connection.rows(call)


class AsyncClient:
    """A client that awaits; its methods are those of `Client`.

    async with AsyncClient("https://runs.example.org", token=token) as client:
        approval = await client.ask(title=…, items=…, reviewers=…)
    """

    def __init__(
        self,
        url: str,
        *,
        token: str,
        timeout: float = 30.0,
        retries: int = 3,
        transport: AsyncTransport | None = None,
    ) -> None:
        self._flows = Flows(site_of(url), retries)
        self._connection = AsyncConnection(
            self._flows, token, timeout=timeout, transport=transport
        )
        self.runs = AsyncRuns(self._connection)
        self.requests = AsyncRequests(self._connection)

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
        await self._connection.aclose()

    async def ask(self, **question: Unpack[Question]) -> Approval:
        """Ask people to decide on items, as `Client.ask`."""
        return await self._connection.carry_out(self._flows.ask(question))

    async def approval(self, id_or_key: str) -> Approval:
        """Return an approval by its id or key."""
        return await self._connection.carry_out(self._flows.approval(id_or_key))

    async def wait(
        self,
        id_or_key: str,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Approval:
        """Return an approval as soon as it is decided, as `Client.wait`."""
        return await self._connection.carry_out(self._flows.wait(id_or_key, timeout))

    async def cancel(self, id_or_key: str, reason: str = "") -> Approval:
        """Take a question back. What was signed stays on record."""
        return await self._connection.carry_out(self._flows.cancel(id_or_key, reason))

    async def report(
        self,
        approval: Approval,
        outcomes: Mapping[str, tuple[str, str]],
    ) -> Approval:
        """Report what came of the items, as `Client.report`."""
        flow = self._flows.report(approval, outcomes)
        return await self._connection.carry_out(flow)

    async def send(self, call: Call[T]) -> T:
        """Send any call of `orchestrator.client.calls` and return its answer."""
        return await self._connection.carry_out(self._flows.send(call))

    def rows(self, call: Call[types.Page[R]]) -> AsyncIterator[R]:
        """Yield the rows of a list, page by page."""
        return self._connection.rows(call)
