"""W1: a loop of n supersteps, a state of 1 KB replaced in each, durable after each.
Rows 1 to 5 and 17 of the targets.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from bench.bench import OURS, Bench, in_turn
from bench.contender import Contender
from bench.counting import durable, server
from bench.counting.wire import Wire
from bench.limit import Limit
from bench.places import Place, Postgresql


def run(bench: Bench) -> None:
    """Measure rates beside the limit, also with slow commits, and count what one
    superstep costs.
    """
    _rates(bench, "W1", also=("langgraph-async",))
    if bench.vendor == "postgresql":
        _rates(
            bench, "W1 unprepared", peers=False, COUNTERSIGN_PREPARED_STATEMENTS="false"
        )
    if bench.vendor == "postgresql" and bench.delay_ms:
        _slow(bench)
    for who in (OURS, *bench.peers):
        bench.add("W1 counted", who, **_counted(bench, who))


def _rates(
    bench: Bench, workload: str, *, limit: Limit | None = None, **how: Any
) -> None:
    limit = limit or bench.limit
    steps = bench.size(200, 80) if "delay_ms" in how else 400
    with bench.contenders("w1", **how) as contenders:
        cases = []
        for contender in contenders:
            cases.append(_Case(workload, contender))
            # Our next superstep begins while the commit of this one is on its way. It is
            # shown without that too, for no peer's setting "sync" has it.
            if contender.name == OURS and workload == "W1":
                cases.append(_Case("W1 waited", contender, {"waited": True}))
        for case in cases:
            # Connections, caches and plans are there before anything is timed, and
            # SQLite's log has its size.
            case.take(20 if "delay_ms" in how else 400)
        for number in range(bench.rounds):
            for case in in_turn(cases, number):
                facts, commits = limit.around(case.take, steps)
                _add(bench, case, steps, commits, round=number, **facts)


@dataclass
class _Case:
    """A contender, and how it loops."""

    workload: str
    contender: Contender
    how: dict[str, Any] = field(default_factory=dict)

    def take(self, steps: int) -> dict[str, Any]:
        """Return the seconds of so many steps, and those of the processors."""
        before = server.cpu_seconds(self.contender.place)
        facts = self.contender.ask("w1", steps=steps, **self.how)
        server_cpu = server.cpu_seconds(self.contender.place) - before
        return {**facts, "server_cpu": server_cpu}


def _add(
    bench: Bench,
    case: _Case,
    steps: int,
    commits: float,
    *,
    round: int,
    seconds: float,
    cpu: float,
    server_cpu: float,
) -> None:
    """Keep the record of one case in one round, each figure for one step."""
    rate = steps / seconds
    bench.add(
        case.workload,
        case.contender.name,
        round=round,
        limit=commits,
        steps=rate,
        fraction=rate / commits,
        client_cpu_ms=1000 * cpu / steps,
        server_cpu_ms=1000 * server_cpu / steps,
        cpu_ms=1000 * (cpu + server_cpu) / steps,
    )


def _slow(bench: Bench) -> None:
    """Measure the same with slower commits, as on a network disk."""
    limit = Limit(bench.server.fresh("limit", ours=False, delay_ms=bench.delay_ms))
    fastest = limit.fastest_ms(50)
    assert fastest >= bench.delay_ms, (
        f"a commit took {fastest:.2f} ms: it was not made slower"
    )
    _rates(bench, "W1 slow", limit=limit, delay_ms=bench.delay_ms)
    limit.close()


def _counted(bench: Bench, who: str) -> dict[str, float]:
    """Per superstep: what a run of 3n costs beyond one of n, so that starts and ends do
    not count.
    """
    n = 40
    few = _cost(bench, who, n)
    many = _cost(bench, who, 3 * n)
    return {name: (many[name] - few.get(name, 0)) / (2 * n) for name in many}


def _cost(bench: Bench, who: str, steps: int) -> dict[str, int]:
    place = bench.place(who, "counted")
    bench.limit.tell()
    if isinstance(bench.server, Postgresql):
        return _cost_on_postgresql(bench.server, place, who, steps)
    with Contender(who, place, BENCH_COUNT="1") as contender:
        contender.ask("w1", steps=5)
        before = contender.ask("counts")
        commits = durable.commits(place)
        contender.ask("w1", steps=steps)
        commit_count = commits.count()
        after = contender.ask("counts")
        commits.close()
    # In WAL mode with synchronous=FULL each commit is one sync of the log.
    counted = {name: after[name] - before.get(name, 0) for name in ("reads", "writes")}
    return {
        **counted,
        "statements": sum(counted.values()),
        "transactions": commit_count,
        "fsyncs": commit_count,
    }


def _cost_on_postgresql(
    postgres: Postgresql, place: Place, who: str, steps: int
) -> dict[str, int]:
    wire = Wire(place.folder, postgres.socket)
    _wait_for_backends(place)
    fsyncs = server.wal_fsyncs(place)
    with Contender(who, postgres.through(place, place.folder)) as contender:
        contender.ask("w1", steps=5)
        before = wire.counted.copy()
        commits = durable.commits(place)
        contender.ask("w1", steps=steps)
        after = wire.counted.copy()
        commit_count = commits.count()
    wire.close()
    _wait_for_backends(place)
    counted = {
        name: after[name] - before[name] for name in ("reads", "writes", "round_trips")
    }
    statements = counted["reads"] + counted["writes"]
    return {
        **counted,
        "statements": statements,
        "transactions": commit_count,
        "fsyncs": server.wal_fsyncs(place) - fsyncs,
    }


def _wait_for_backends(place: Place) -> None:
    """Wait until its backends have ended, which only then report their statistics."""
    end = time.monotonic() + 10
    while server.connected(place):
        assert time.monotonic() < end, "a backend did not end"
        time.sleep(0.02)
    time.sleep(0.1)
