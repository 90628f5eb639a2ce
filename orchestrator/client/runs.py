"""The runs of graphs, for a client that blocks and for one that awaits."""

from collections.abc import AsyncIterator, Iterator
from typing import Unpack

from orchestrator.client import calls, types
from orchestrator.client.connections import AsyncConnection, Connection
from orchestrator.client.events import Event


class Runs:
    """Starts runs, steers them and follows them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._flows = connection.flows

    def start(self, **body: Unpack[types.StartBody]) -> types.RunOut:
        """Start a run: `start(graph=…, input=…, key=…)`. The same key and input is the
        same run. Raises `KeyConflict` where the key is that of another one.
        """
        return self._connection.carry_out(self._flows.send(calls.runs_create(body)))

    def get(self, id_or_key: str) -> types.RunOut:
        """Return a run."""
        call = calls.runs_retrieve(id_or_key)
        return self._connection.carry_out(self._flows.send(call))

    def wait(
        self,
        id_or_key: str,
        timeout: float | None = None,
        *,
        until_paused: bool = False,
    ) -> types.RunOut:
        """Return a run as soon as it has ended or stopped; with `until_paused`, also as
        soon as it waits for people. Raises `TimeoutError`.
        """
        flow = self._flows.wait_for_run(id_or_key, timeout, until_paused=until_paused)
        return self._connection.carry_out(flow)

    def resume(self, id_or_key: str, **body: Unpack[types.ResumeBody]) -> types.RunOut:
        """Queue a run again that failed, or that stopped before an effect."""
        call = calls.runs_resume_create(id_or_key, body)
        return self._connection.carry_out(self._flows.send(call))

    def cancel(self, id_or_key: str, reason: str = "") -> types.RunOut:
        """Cancel a run, at once or after the current superstep."""
        call = calls.runs_cancel_create(id_or_key, {"reason": reason})
        return self._connection.carry_out(self._flows.send(call))

    def events(self, id_or_key: str, after: int = 0) -> Iterator[Event]:
        """Yield the lines of its log after the line `after`, as they come, each once,
        over cuts too. It does not end with the run, which may be rewound.
        """
        return self._connection.events(id_or_key, after)


class AsyncRuns:
    """Starts runs, steers them and follows them, as `Runs`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._flows = connection.flows

    async def start(self, **body: Unpack[types.StartBody]) -> types.RunOut:
        """Start a run, as `Runs.start`."""
        flow = self._flows.send(calls.runs_create(body))
        return await self._connection.carry_out(flow)

    async def get(self, id_or_key: str) -> types.RunOut:
        """Return a run."""
        flow = self._flows.send(calls.runs_retrieve(id_or_key))
        return await self._connection.carry_out(flow)

    async def wait(
        self,
        id_or_key: str,
        timeout: float | None = None,  # noqa: ASYNC109
        *,
        until_paused: bool = False,
    ) -> types.RunOut:
        """Return a run as soon as it has ended or stopped, as `Runs.wait`."""
        flow = self._flows.wait_for_run(id_or_key, timeout, until_paused=until_paused)
        return await self._connection.carry_out(flow)

    async def resume(
        self, id_or_key: str, **body: Unpack[types.ResumeBody]
    ) -> types.RunOut:
        """Queue a run again that failed, or that stopped before an effect."""
        flow = self._flows.send(calls.runs_resume_create(id_or_key, body))
        return await self._connection.carry_out(flow)

    async def cancel(self, id_or_key: str, reason: str = "") -> types.RunOut:
        """Cancel a run, at once or after the current superstep."""
        call = calls.runs_cancel_create(id_or_key, {"reason": reason})
        return await self._connection.carry_out(self._flows.send(call))

    def events(self, id_or_key: str, after: int = 0) -> AsyncIterator[Event]:
        """Yield the lines of its log, as `Runs.events`."""
        return self._connection.events(id_or_key, after)
