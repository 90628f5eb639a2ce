"""W1: a loop of n supersteps, a 1 KB state replaced in each, durable after each."""

import time
from typing import Any

from pydantic import BaseModel

from orchestrator import runs
from orchestrator.engine import END, START, Graph, registry


class Nothing(BaseModel):
    pass


class Blob(BaseModel):
    number: int = 0
    body: str = ""


def graph(steps: int) -> str:
    """Register the loop and give its name."""
    loop = Graph(f"bench_w1_{steps}", input=Nothing, state=Blob, max_supersteps=steps + 1)

    @loop.node("step")
    def step(state: Blob, ctx: Any) -> dict[str, Any]:
        return {"number": state.number + 1, "body": f"{state.number % 10}" * 1024}

    loop.edge(START, "step")
    loop.branch("step", lambda s: "on" if s.number < steps else "done", {"on": "step", "done": END})
    registry.replace(loop)
    return loop.name


def supersteps_per_second(steps: int) -> float:
    """Supersteps a second of one run, from its claim to its end."""
    run = runs.start(graph(steps), {})
    begun = time.perf_counter()
    run = runs.advance(run.id)
    took = time.perf_counter() - begun
    assert (run.status, run.superstep) == ("completed", steps), run.status
    return steps / took
