"""What a soak does to its workers and their database: at random, but from a seed.

A `Target` is a cluster whose processes are told apart; `Chaos` kills, freezes and terms
them by role and counts it by kind. It never touches a process that the soak did not
start.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from django.db import Error, connection

from checkpoints.models import Run, Worker
from tests.soak import freezes
from tests.support.clusters import Cluster, children, send

ROLES = ("main", "sentinel", "pusher", "monitor", "worker", "worker", "all")
"""`main` is the supervisor and django-q2's parent in one process. `all` means every
process of a cluster at once.
"""
SIGNALS = (
    signal.SIGKILL,
    signal.SIGKILL,
    signal.SIGKILL,
    signal.SIGSTOP,
    signal.SIGSTOP,
    signal.SIGTERM,
)
MEASURED = 0.5
"""Share of the kills of a whole cluster after which there is peace until its runs are
taken over, which is timed.
"""
IN_TRANSACTION = 0.25
"""Share of the troubles that are freezes inside a transaction."""

PEACE_SECONDS = 15.0


class Target(Cluster):
    """A cluster whose roles are known, also after workers were replaced."""

    def __init__(self, log: Path, *, workers: int, **env: str) -> None:
        super().__init__("worker", log=log, COUNTERSIGN_WORKERS=str(workers), **env)
        self.size = workers
        self.born = time.monotonic()
        self._guards: dict[int, tuple[int, int]] = {}

    def role(self, name: str, dice: random.Random) -> list[int]:
        """The processes of a role; none where it is not there just now."""
        if name in ("main", "all"):
            return [self.main.pid] if name == "main" else self.alive()
        below = children(self.main.pid)[:1]
        if name == "sentinel" or not below:
            return below
        monitor, pusher = self._guards_of(below[0])
        if name in ("monitor", "pusher"):
            return [pid for pid in [monitor if name == "monitor" else pusher] if pid]
        workers = [pid for pid in children(below[0]) if pid not in (monitor, pusher)]
        return [dice.choice(workers)] if workers and monitor else []

    def _guards_of(self, sentinel: int) -> tuple[int, int]:
        """Monitor and pusher: what the sentinel forks last when it begins. Later it
        replaces workers only.
        """
        below = children(sentinel)
        if sentinel not in self._guards and len(below) == self.size + 2:
            self._guards[sentinel] = (below[-2], below[-1])
        return self._guards.get(sentinel, (0, 0))

    def look(self) -> None:
        """Learn the roles while they can be told apart."""
        for sentinel in children(self.main.pid)[:1]:
            self._guards_of(sentinel)


@dataclass
class Orphan:
    """A run whose cluster was killed: it waits for another to take it over."""

    run: UUID
    epoch: int
    since: float


@dataclass
class Chaos:
    """The troubles of one soak. `lease` in seconds; `restart` restarts the database,
    where that can be done; `freezes` is the folder in which its clusters are asked to
    freeze inside a transaction.
    """

    clusters: list[Target]
    make: Callable[[], Target]
    dice: random.Random
    lease: float
    restart: Callable[[], None] | None = None
    freezes: Path | None = None
    roles: tuple[str, ...] = ROLES
    signals: tuple[signal.Signals, ...] = SIGNALS
    counted: Counter[str] = field(default_factory=Counter)
    takeovers: list[float] = field(default_factory=list)
    _orphans: list[Orphan] = field(default_factory=list)
    _frozen: list[tuple[float, list[int]]] = field(default_factory=list)
    _peace_until: float = 0.0

    def trouble(self) -> None:
        """One trouble for one cluster, or for the database; none while a takeover is
        timed.
        """
        if self._orphans and time.monotonic() < self._peace_until:
            return
        if self.restart and self.dice.random() < 0.04:
            self.restart()
            self.counted["database restart"] += 1
            return
        if self.freezes and self.dice.random() < IN_TRANSACTION:
            freezes.ask(self.freezes)
            return
        target, role, number = map(
            self.dice.choice, (self.clusters, self.roles, self.signals)
        )
        pids = target.role(role, self.dice)
        if not pids or any(
            pid in stopped for _, stopped in self._frozen for pid in pids
        ):
            return
        whole = number == signal.SIGKILL and role in ("main", "sentinel", "all")
        row = _row_of(target) if whole and self.dice.random() < MEASURED else None
        for pid in pids:
            send(pid, number)
        at = time.monotonic()
        self.counted[f"{signal.Signals(number).name} {role}"] += 1
        if number == signal.SIGSTOP:
            self._frozen.append((at + self.lease * self.dice.uniform(1.2, 2.0), pids))
        if row:
            self._thaw(float("inf"))
            self._peace_until = at + PEACE_SECONDS
            self._orphan(target, row, at)

    def _orphan(self, target: Target, row: UUID, at: float) -> None:
        """Note what the dead cluster held, once nothing of it can move any more."""
        until = time.monotonic() + 1.0
        while (
            target.main.poll() is None
            and time.monotonic() < until
            and children(target.main.pid)
        ):
            time.sleep(0.005)
        held = Run.objects.filter(leased_by=row, status="running").values_list(
            "id", "epoch"
        )
        self._orphans += [Orphan(run, epoch, at) for run, epoch in held]

    def care(self) -> None:
        """Wake what was frozen long enough, start clusters that have ended, and note
        takeovers.
        """
        self._note_freezes()
        self._thaw(time.monotonic())
        for n, target in enumerate(self.clusters):
            if target.main.poll() is not None:
                target.kill_all()
                self.clusters[n] = self.make()
            target.look()
        self._note_takeovers()

    def _note_freezes(self) -> None:
        frozen = freezes.taken(self.freezes) if self.freezes else []
        if frozen:
            self.counted["SIGSTOP inside a transaction"] += len(frozen)
            self._frozen.append(
                (time.monotonic() + self.lease * self.dice.uniform(1.2, 2.0), frozen)
            )

    def _thaw(self, now: float) -> None:
        for until, pids in self._frozen:
            if until <= now:
                for pid in pids:
                    send(pid, signal.SIGCONT)
        self._frozen = [one for one in self._frozen if one[0] > now]

    def _note_takeovers(self) -> None:
        if not self._orphans:
            return
        try:
            now = dict(
                Run.objects.filter(
                    id__in=[orphan.run for orphan in self._orphans]
                ).values_list("id", "epoch")
            )
        except Error:
            connection.close()
            return
        at = time.monotonic()
        taken = [
            orphan
            for orphan in self._orphans
            if now.get(orphan.run, orphan.epoch) > orphan.epoch
        ]
        self.takeovers += [at - one.since for one in taken]
        self._orphans = [
            orphan
            for orphan in self._orphans
            if orphan not in taken and at - orphan.since < PEACE_SECONDS
        ]

    def end(self) -> None:
        """No more troubles: wake everybody."""
        if self.freezes:
            freezes.take_back(self.freezes)
            time.sleep(0.1)  # whoever has taken it by now stands still by then
        self._note_freezes()
        self._thaw(float("inf"))

    def stop(self) -> None:
        """End all clusters, kindly first."""
        for target in self.clusters:
            send(target.main.pid, signal.SIGTERM)
        until = time.monotonic() + 20
        while (
            any(target.main.poll() is None for target in self.clusters)
            and time.monotonic() < until
        ):
            time.sleep(0.05)
        for target in self.clusters:
            target.kill_all()


def _row_of(target: Target) -> UUID | None:
    """The id under which a cluster leases."""
    below = children(target.main.pid)[:1]
    try:
        requests = (
            Worker.objects.filter(pid=below[0], stopped_at=None).order_by("-started_at")
            if below
            else None
        )
        return (
            requests.values_list("id", flat=True).first()
            if requests is not None
            else None
        )
    except Error:
        connection.close()
        return None


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of these values, 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
