"""The channels that waiting requests are bound to. A commit that changes none of them
moves no base, so most commits beside a gate have nothing to compare.
"""

from collections.abc import Iterable, Sequence

from approvals.gates.request_state import RequestState
from checkpoints.ledger import pending_writes
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.graphs.trace import is_memory


@frozen
class BoundChannels:
    """Waiting requests, and their positions by each channel that one of their writes is
    bound to.
    """

    requests: Sequence[RequestState]
    positions_by_channel: dict[str, set[int]]

    def requests_bound_to(self, changed: Iterable[str]) -> list[RequestState]:
        """Return the requests that a change of these channels may bring back, in their
        order.
        """
        positions: set[int] = set()
        for channel in changed:
            of_channel = self.positions_by_channel.get(channel, set())
            positions.update(of_channel)
        return [self.requests[position] for position in sorted(positions)]


def bound_channels(
    requests: Sequence[RequestState], compiled: Compiled
) -> BoundChannels:
    """Return the channels that these requests are bound to in this version of their
    graph.
    """
    positions_by_channel: dict[str, set[int]] = {}
    for position, request in enumerate(requests):
        for channel in _channels_of(request, compiled):
            positions = positions_by_channel.setdefault(channel, set())
            positions.add(position)
    return BoundChannels(requests, positions_by_channel)


def _channels_of(request: RequestState, compiled: Compiled) -> set[str]:
    channels: set[str] = set()
    for row in request.writes:
        channel = row.channel
        base = pending_writes.base_of(row)
        channels.update(base.shows)
        # The version of a trace binds, whatever its channel's reducer.
        if is_memory(channel) or compiled.channels[channel].bound:
            channels.add(channel)
    return channels


def memory_channels(requests: Sequence[RequestState]) -> frozenset[str]:
    """Return the channels of memory that these requests hold writes to."""
    channels: set[str] = set()
    for request in requests:
        for row in request.writes:
            if is_memory(row.channel):
                channels.add(row.channel)
    return frozenset(channels)
