"""The frame of every workload: the server to measure on, who takes part, how much to
do, and where results go.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from bench.contender import Contender
from bench.limit import Limit
from bench.places import Place, Server
from bench.results import Results

OURS = "countersign"
T = TypeVar("T")


@dataclass
class Bench:
    """One pass over one kind of database. `beside`: the runs of others in W8; 0 takes as
    many as the length of the bench allows.
    """

    server: Server
    results: Results
    rounds: int
    short: bool
    peers: tuple[str, ...] = ()
    delay_ms: float = 1.0
    beside: int = 0
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
        also: Sequence[str] = (),
        **environment: str,
    ) -> Iterator[list[Contender]]:
        """Yield us and the peers, each with its own process and database; `also` those
        of a peer that is there.
        """
        names = [OURS]
        if peers:
            names += self.peers
            names += [name for name in also if name.split("-")[0] in self.peers]
        started: list[Contender] = []
        try:
            for who in names:
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


def in_turn(contestants: Sequence[T], round_number: int) -> list[T]:
    """Return them in the order of a round: each is first as often as any other, for what
    comes first meets another machine than what comes last.
    """
    first = round_number % len(contestants)
    return [*contestants[first:], *contestants[:first]]
