"""W5: list the last 50 of many checkpoints and read the state at any of them; with a
state of 1 KB, and with one that grew to 1 MB. Rows 10 and 11. Peers list theirs with
the small state.
"""

from bench.bench import OURS, Bench
from bench.contender import Contender
from bench.workloads.w4 import LEASE, History, die_after

MB = 1024 * 1024
ANYWHERE = (0.1, 0.25, 0.5, 0.75, 0.95)
AT_THE_END = (0.96, 0.97, 0.98, 0.99, 1.0)
"""Where the growing state is nearly 1 MB."""


def run(bench: Bench) -> None:
    """Lists and reads, those of the small state interleaved with those of the large
    one.
    """
    steps = bench.size(10_000, 1000)
    histories = bench.shared.get("histories") or {
        who: die_after(bench, who, steps) for who in (OURS, *bench.peers)
    }
    small = histories[OURS]
    with (
        Contender(OURS, small.place, **LEASE) as of_kb,
        Contender(OURS, bench.place(OURS, "w5")) as of_mb,
    ):
        large = of_mb.ask("w2", steps=steps, size=MB // steps, fill=0, marks=[])["run"]
        for number in range(bench.rounds):
            _round(bench, of_kb, "1 KB", small.run, number=number)
            _round(bench, of_mb, "1 MB", large, number=number)
            _peers(bench, histories, number=number)


def _round(
    bench: Bench, contender: Contender, grown: str, run: str, *, number: int
) -> None:
    listed = contender.ask("w5_list", run=run)
    bench.add(
        "W5 list",
        grown=grown,
        round=number,
        list_ms=listed["ms"],
        checkpoints=listed["newest"] + 1,
    )
    for where in (*ANYWHERE, *AT_THE_END):
        facts = contender.ask("w5_read", run=run, seq=int(where * listed["newest"]))
        full = grown == "1 KB" or where in AT_THE_END
        bench.add("W5 read", grown=grown, round=number, where=where, full=full, **facts)


def _peers(bench: Bench, histories: dict[str, History], *, number: int) -> None:
    for who in bench.peers:
        with Contender(who, histories[who].place) as contender:
            listed = contender.ask("w5_list", run=histories[who].run)
        bench.add(
            "W5 list",
            who,
            grown="1 KB",
            round=number,
            list_ms=listed["ms"],
            checkpoints=listed["newest"],
        )
