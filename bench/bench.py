"""The frame of every workload: the server to measure on, who takes part, how much to
do, and where results go.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bench.contender import Contender
from bench.limit import Limit
from bench.places import Place, Server
from bench.results import Results

OURS = "countersign"


@dataclass
class Bench:
    """One pass over one kind of database."""

    server: Server
    results: Results
    rounds: int
    short: bool
    peers: tuple[str, ...] = ()
    delay_ms: float = 1.0
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def vendor(self) -> str:
        return self.server.vendor

    @cached_property
    def limit(self) -> Limit:
        """Return the commit limit of this server, measured in a separate database."""
        return Limit(self.server.fresh("limit", ours=False))

    def size(self, long: int, short: int) -> int:
        """Return how much to do."""
        return short if self.short else long

    def place(self, who: str, what: str, *, delay_ms: float = 0.0) -> Place:
        """Return a fresh database for a contender."""
        return self.server.fresh(f"{what}_{who}", ours=who == OURS, delay_ms=delay_ms)

    @contextmanager
    def contenders(
        self,
        what: str,
        *,
        delay_ms: float = 0.0,
        peers: bool = True,
        **environment: str,
    ) -> Iterator[list[Contender]]:
        """Yield us and the peers, each with its own process and database."""
        started: list[Contender] = []
        try:
            for who in (OURS, *(self.peers if peers else ())):
                started.append(
                    Contender(
                        who, self.place(who, what, delay_ms=delay_ms), **environment
                    )
                )
            yield started
        finally:
            for contender in started:
                contender.close()

    def add(self, workload: str, who: str = OURS, **figures: Any) -> None:
        """Keep a record of this pass."""
        self.results.add(workload=workload, database=self.vendor, who=who, **figures)
