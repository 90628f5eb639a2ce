"""DBOS as a contender: each superstep is a step of a workflow, durable when it returns."""

import asyncio
import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from dbos import DBOS, DBOSConfig, SetWorkflowID

from bench.bodies import KILOBYTES, line
from bench.contenders import here
from bench.contenders.serve import last_words
from bench.counting import connections
from bench.notes import note

LONG = 1_000_000
_config: DBOSConfig = {
    "name": "bench",
    "application_version": "1",
    "system_database_url": here.URL.replace("postgres://", "postgresql+psycopg://"),
    "log_level": "ERROR",
}
logging.disable(logging.WARNING)
DBOS(config=_config)
QUEUE = "bench"
seen: list[Any] = []
_on_step: list[Callable[[int], None]] = [seen.append]


@DBOS.step()
def _step(number: int) -> dict[str, Any]:
    _on_step[0](number)
    return {"number": number, "body": KILOBYTES[number % 64]}


@DBOS.workflow()
def _loop(steps: int) -> int:
    state: dict[str, Any] = {"number": 0}
    while state["number"] < steps:
        state = _step(state["number"] + 1)
    return int(state["number"])


@DBOS.step()
def _append(number: int, size: int) -> str:
    _on_step[0](number)
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
async def _join(numbers: list[int]) -> int:
    return sum(numbers)


@DBOS.workflow()
async def _fan() -> int:
    return int(await _join(await asyncio.gather(*(_leaf(n) for n in range(100)))))


_began: list[int] = []
_again = threading.Event()


@DBOS.step()
def _decided(number: int) -> None:
    _began.append(time.monotonic_ns())
    _again.set()


@DBOS.workflow()
def _asking() -> None:
    number = 0
    while DBOS.recv("decision", timeout_seconds=600) == "approve":
        number += 1
        _decided(number)


@DBOS.step()
def _noted(log: str, number: int, step: int) -> str:
    note(log, f"{number}:{step}")
    return KILOBYTES[step]


@DBOS.workflow()
def _five(log: str, number: int) -> None:
    for step in range(1, 6):
        _noted(log, number, step)


@cache
def _launched() -> None:
    """Launching goes on with what a dead process left, so it is part of what W4
    measures.
    """
    DBOS.launch()


def close() -> None:
    """Release what the process holds, at its end."""
    DBOS.destroy()


def counts() -> dict[str, Any]:
    """Statements so far; SQLite only, where BENCH_COUNT is set."""
    return dict(connections.counted)


def w1(steps: int) -> dict[str, Any]:
    """Time a workflow of so many steps, from the call to its end."""
    _launched()
    seen.clear()
    _on_step[0] = seen.append
    cpu = time.process_time()
    begun = time.perf_counter()
    end = _loop(steps)
    took = time.perf_counter() - begun
    cpu = time.process_time() - cpu
    assert seen == list(range(1, steps + 1)), "a step was lost or worked on twice"
    assert end == steps
    return {"seconds": took, "cpu": cpu}


def w2(steps: int, size: int, fill: int, marks: list[int]) -> dict[str, Any]:
    """A list that grows with each step. The seconds of each step, and bytes on disk
    after the steps in `marks`.
    """
    _launched()
    stamps = here.Stamps(marks)
    _on_step[0] = stamps.step
    assert _growing(steps, size, fill) == fill + steps
    return stamps.facts(steps)


def w3(journaled: bool) -> dict[str, Any]:
    """100 steps at once and one that joins them; each is durable on its own in any
    case.
    """
    _launched()
    seen.clear()
    begun = time.perf_counter()
    total = asyncio.run(_fan())
    took = time.perf_counter() - begun
    assert sorted(seen) == list(range(100)), "a leaf was lost or worked on twice"
    assert total == sum(range(100))
    return {"seconds": took}


def w4_die(steps: int) -> dict[str, Any]:
    """Run until this many steps are durable, then be killed. Prints before that the run
    and the seconds of its steps.
    """
    _launched()
    stamps = here.Stamps([])
    run = str(uuid.uuid4())

    def step(number: int) -> None:
        stamps.step(number)
        if number == steps + 1:
            last_words({"run": run, **stamps.facts(number)})

    _on_step[0] = step
    with SetWorkflowID(run):
        _loop(LONG)
    raise AssertionError("the process should be dead")


def w4_resume(run: str, after: int) -> dict[str, Any]:
    """Launch, which goes on with a dead one's workflow; be killed after one more step."""
    _on_step[0] = here.Resumed(after, last_words).step
    _launched()
    time.sleep(600)
    raise AssertionError("the process should be dead")


def w5_list(run: str) -> dict[str, Any]:
    """Milliseconds to list the last 50 steps; the workflow is not recovered meanwhile."""
    from dbos import DBOSClient

    client = DBOSClient(system_database_url=_config["system_database_url"])
    number = len(client.list_workflow_steps(run))
    took = here.milliseconds(
        lambda: client.list_workflow_steps(run, limit=50, offset=number - 50)
    )
    client.destroy()
    return {"ms": took, "newest": number}


def w6_start(log: str) -> dict[str, Any]:
    """Start a workflow that waits for one decision after the other. There is no worker:
    this process does it all.
    """
    _launched()
    return {"run": DBOS.start_workflow(_asking).workflow_id}


def w6_cycle(run: str, log: str, number: int) -> dict[str, Any]:
    """Send the decision, and wait for the step's code."""
    _again.clear()
    DBOS.send(run, "approve", "decision")
    decided = time.monotonic_ns()
    assert _again.wait(30)
    assert len(_began) == number, "a decision was taken twice, or not at all"
    return {"ms": max(0.0, (_began[-1] - decided) / 1e6)}


def workers_ready() -> dict[str, Any]:
    """Take part in working on the queue, looking at it as often as our workers do."""
    _launched()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.05)
    return {}


def w7(number: int, log: str) -> dict[str, Any]:
    """Enqueue workflows of five steps, and wait until all have ended, here or in
    another process.
    """
    workers_ready()
    begun = time.perf_counter()
    handles = [DBOS.enqueue_workflow(QUEUE, _five, log, n) for n in range(number)]
    for handle in handles:
        handle.get_result(polling_interval_sec=0.02)
    took = time.perf_counter() - begun
    steps = Counter(text.split()[1] for text in Path(log).read_text().splitlines())
    assert steps == Counter(
        f"{n}:{step}" for n in range(number) for step in range(1, 6)
    ), "lost or worked on twice"
    return {"seconds": took}
