"""DBOS as a contender: each superstep is a step of a workflow, durable when it returns."""

import asyncio
import logging
import time
from typing import Any

from dbos import DBOS, DBOSConfig

from bench.bodies import KILOBYTES, line
from bench.contenders import here
from bench.counting import connections

_config: DBOSConfig = {
    "name": "bench",
    "system_database_url": here.URL.replace("postgres://", "postgresql+psycopg://"),
    "log_level": "ERROR",
}
logging.disable(logging.WARNING)
DBOS(config=_config)
seen: list[Any] = []


@DBOS.step()
def _step(number: int) -> dict[str, Any]:
    seen.append(number)
    return {"number": number, "body": KILOBYTES[number % 64]}


@DBOS.workflow()
def _loop(steps: int) -> int:
    state: dict[str, Any] = {"number": 0}
    while state["number"] < steps:
        state = _step(state["number"] + 1)
    return int(state["number"])


_stamps: list[here.Stamps] = []


@DBOS.step()
def _append(number: int, size: int) -> str:
    _stamps[-1].step(number)
    return line(number, size)


@DBOS.workflow()
def _growing(steps: int, size: int, fill: int) -> int:
    lines = [line(-n, 1024) for n in range(fill)]
    for number in range(1, steps + 1):
        lines.append(_append(number, size))
    return len(lines)


@DBOS.step()
async def _leaf(n: int) -> int:
    seen.append(n)
    return n


@DBOS.step()
async def _join(found: list[int]) -> int:
    return sum(found)


@DBOS.workflow()
async def _fan() -> int:
    return await _join(await asyncio.gather(*(_leaf(n) for n in range(100))))


DBOS.launch()


def close() -> None:
    """The end of the process."""
    DBOS.destroy()


def counts() -> dict[str, Any]:
    """Statements so far; SQLite only, where BENCH_COUNT is set."""
    return dict(connections.counted)


def w1(steps: int) -> dict[str, Any]:
    """A workflow of so many steps, from the call to its end."""
    seen.clear()
    cpu, begun = time.process_time(), time.perf_counter()
    end = _loop(steps)
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    assert seen == list(range(1, steps + 1))
    assert end == steps
    return {"seconds": took, "cpu": cpu}


def w2(steps: int, size: int, fill: int, marks: list[int]) -> dict[str, Any]:
    """A list that grows with each step. The seconds of each step, and bytes on disk after the steps in `marks`."""
    _stamps.append(here.Stamps(marks))
    assert _growing(steps, size, fill) == fill + steps
    return _stamps[-1].told(steps)


def w3(journaled: bool) -> dict[str, Any]:
    """100 steps at once and one that joins them; each is durable on its own in any case."""
    seen.clear()
    begun = time.perf_counter()
    total = asyncio.run(_fan())
    took = time.perf_counter() - begun
    assert sorted(seen) == list(range(100))
    assert total == sum(range(100))
    return {"seconds": took}
