"""One soak from its first process to its verdict: service, people and clusters are
started, troubled, and judged.

`__main__` prepares the database and calls `Campaign(...).run()`.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from django.db import Error, connection

from checkpoints.core.status import ENDS
from checkpoints.models import Run
from tests.soak import freezes, judging, people, service
from tests.soak.chaos import Chaos, Target, percentile
from tests.soak.judging import Verdict
from tests.support.processes import ROOT, environment

LEASE_SECONDS = 2.0
TAKEOVER_SECONDS = LEASE_SECONDS + 5.0
PATIENCE_SECONDS = 90.0
"""After the last trouble: a run that has not ended by then is stuck."""
SETTINGS = "tests.soak.settings"


@dataclass(frozen=True)
class Options:
    """`pause` is the mean time between two troubles; all times in seconds."""

    database: str = "sqlite"
    supersteps: int = 10_000
    seconds: float = 3600.0
    seed: int = 1
    clusters: int = 2
    workers: int = 2
    alive: int = 24
    pause: float = 1.2
    patience: float = PATIENCE_SECONDS
    dawdle: float = 0.01
    only_workers: bool = False


@dataclass
class Campaign:
    """`restart` restarts the database; None where there is no server."""

    options: Options
    folder: Path
    restart: Callable[[], None] | None = None
    counted: Counter[str] = field(default_factory=Counter)
    supersteps: int = 0
    seconds: float = 0.0

    def run(self) -> int:
        """Run the whole soak. Returns the exit code: 0 if nothing was lost, doubled or
        stuck.
        """
        people.reviewer()
        with self._service(), self._people() as helpers:
            chaos = self._chaos()
            begun = time.monotonic()
            try:
                self._trouble(chaos, begun)
                self.counted += helpers.pop("starter").end()
                chaos.end()
                self._calm(chaos)
                self.seconds = time.monotonic() - begun
            finally:
                chaos.stop()
                self.counted += sum((one.end() for one in helpers.values()), Counter())
            verdict = judging.judge_all(service.everything())
            self.supersteps = people.supersteps()
        self._tell(chaos, verdict)
        return 1 if verdict.lost or verdict.doubled or verdict.stuck else 0

    def _chaos(self) -> Chaos:
        dice = random.Random(self.options.seed)
        made = [self._cluster() for _ in range(self.options.clusters)]
        chaos = Chaos(
            made, self._cluster, dice, LEASE_SECONDS, self.restart, self.folder
        )
        if self.options.only_workers:
            chaos.roles = ("worker",)
            chaos.signals = (signal.SIGKILL,)
            chaos.restart = None
            chaos.freezes = None
        return chaos

    def _cluster(self) -> Target:
        log = self.folder / f"worker-{uuid4().hex}.log"
        times = {
            "COUNTERSIGN_LEASE_SECONDS": str(LEASE_SECONDS),
            "COUNTERSIGN_SLICE_SECONDS": "1",
        }
        env = (
            times
            if self.options.only_workers
            else {**times, freezes.FOLDER: str(self.folder)}
        )
        return Target(
            log,
            workers=self.options.workers,
            DJANGO_SETTINGS_MODULE=SETTINGS,
            COUNTERSIGN_LOG_LEVEL="WARNING",
            **env,
        )

    def _trouble(self, chaos: Chaos, begun: float) -> None:
        """Continue until there were enough supersteps, or the time is up."""
        due = begun + 5.0
        shown = begun
        while time.monotonic() - begun < self.options.seconds:
            if time.monotonic() >= due:
                due = (
                    time.monotonic() + chaos.dice.expovariate(1.0) * self.options.pause
                )
                chaos.trouble()
            chaos.care()
            if time.monotonic() - shown > 2.0:
                shown = time.monotonic()
                if self._asked_supersteps() >= self.options.supersteps:
                    return
            time.sleep(0.05)

    def _asked_supersteps(self) -> int:
        try:
            self.supersteps = people.supersteps()
        except Error:
            connection.close()
        return self.supersteps

    def _calm(self, chaos: Chaos) -> None:
        """No more troubles; every run must come to its end."""
        until = time.monotonic() + self.options.patience
        left = Run.objects.filter(graph=people.GRAPH).exclude(status__in=ENDS)
        while time.monotonic() < until:
            chaos.care()
            with contextlib.suppress(Error):
                if not left.exists():
                    return
            time.sleep(0.2)

    @contextmanager
    def _service(self) -> Iterator[None]:
        with _process("tests.soak.service") as process:
            assert process.stdout
            os.environ[service.PORT] = process.stdout.readline().strip()
            yield

    @contextmanager
    def _people(self) -> Iterator[dict[str, "_Helper"]]:
        seed = str(self.options.seed)
        words = {
            "starter": (str(self.options.alive), seed, str(self.options.dawdle)),
            "signer": (seed,),
            "operator": (),
        }
        with contextlib.ExitStack() as stack:
            yield {
                role: _Helper(
                    stack.enter_context(
                        _process("tests.soak.people", role, *words_of_role)
                    )
                )
                for role, words_of_role in words.items()
            }

    def _tell(self, chaos: Chaos, verdict: Verdict) -> None:
        runs = Run.objects.filter(graph=people.GRAPH).count()
        print(
            f"soak on {self.options.database}, seed {self.options.seed}: {runs} runs,"
            f" {self.supersteps} supersteps in {self.seconds:.0f} s"
        )
        for kind, n in sorted(chaos.counted.items()):
            print(f"  {n:>5} × {kind}")
        for what, n in sorted(self.counted.items()):
            print(f"  {n:>5} × {what}")
        print(f"  {verdict.repeats:>5} × an idempotent call repeated under its key")
        p50 = percentile(chaos.takeovers, 0.5)
        p99 = percentile(chaos.takeovers, 0.99)
        print(
            f"  {len(chaos.takeovers)} takeovers after a whole cluster was killed:"
            f" p50 {p50:.2f} s, p99 {p99:.2f} s (lease {LEASE_SECONDS:g} s, must be"
            f" under {TAKEOVER_SECONDS:g} s)"
        )
        for word in ("lost", "doubled", "stuck"):
            for sentence in getattr(verdict, word)[:20]:
                print(f"  {word}: {sentence}")
        print(
            f"lost {len(verdict.lost)} / doubled {len(verdict.doubled)} / stuck"
            f" {len(verdict.stuck)}",
            flush=True,
        )


@dataclass
class _Helper:
    process: "subprocess.Popen[str]"

    def end(self) -> Counter[str]:
        """Close its input, and take its figures."""
        out, _ = self.process.communicate(timeout=30)
        return Counter(json.loads(out.splitlines()[-1])) if out.strip() else Counter()


@contextmanager
def _process(module: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """A process of ours that ends with its input."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *words],
        cwd=ROOT,
        env=environment(DJANGO_SETTINGS_MODULE=SETTINGS),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.stdin and not process.stdin.closed:
            process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
