"""The requests on which people decide, for a client that blocks and one that awaits."""

from collections.abc import AsyncIterator, Iterator
from typing import Literal

from orchestrator.client import calls, types
from orchestrator.client.connections import AsyncConnection, Connection
from orchestrator.client.decision_set import DecisionSet

Waiting = Literal["me"] | None


class Requests:
    """Reads requests and signs them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._flows = connection.flows

    def list(
        self,
        *,
        waiting: Waiting = None,
        run: str | None = None,
        graph: str | None = None,
    ) -> Iterator[types.RequestLine]:
        """Yield requests; with `waiting="me"` those that wait for the token's user."""
        call = calls.requests_list(waiting=waiting, run=run, graph=graph)
        return self._connection.rows(call)

    def get(self, id: str) -> types.RequestOut:
        """Return a request with its writes. Where its gate asks people to look first,
        this is the look.
        """
        return self._connection.carry_out(self._flows.send(calls.requests_retrieve(id)))

    def sign(self, decisions: DecisionSet) -> types.ReceiptOut:
        """Sign what was decided on a request, as one act."""
        return self._connection.carry_out(self._flows.sign(decisions))


class AsyncRequests:
    """Reads requests and signs them, as `Requests`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._flows = connection.flows

    def list(
        self,
        *,
        waiting: Waiting = None,
        run: str | None = None,
        graph: str | None = None,
    ) -> AsyncIterator[types.RequestLine]:
        """Yield requests, as `Requests.list`."""
        call = calls.requests_list(waiting=waiting, run=run, graph=graph)
        return self._connection.rows(call)

    async def get(self, id: str) -> types.RequestOut:
        """Return a request with its writes, as `Requests.get`."""
        return await self._connection.carry_out(
            self._flows.send(calls.requests_retrieve(id))
        )

    async def sign(self, decisions: DecisionSet) -> types.ReceiptOut:
        """Sign what was decided on a request, as one act."""
        return await self._connection.carry_out(self._flows.sign(decisions))
