"""Statements and transactions of a superstep, counted exactly rather than timed."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from django.db import connection

from bench import w1
from orchestrator import runs


def per_superstep(steps: int) -> dict[str, float]:
    """What `steps` supersteps cost on top of a run of one, divided by their number."""
    one, many = _counted(1), _counted(steps)
    extra = {name: (many[name] - one[name]) / (steps - 1) for name in ("reads", "writes")}
    return {"statements": sum(extra.values()), **extra, "checkpoints_stored_kb": _stored(steps)}


def _counted(steps: int) -> Counter[str]:
    run = runs.start(w1.graph(steps), {})
    seen: Counter[str] = Counter()

    def count(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        seen["reads" if sql.lstrip().upper().startswith("SELECT") else "writes"] += 1
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count):
        runs.advance(run.id)
    return seen


def _stored(steps: int) -> float:
    """Kilobytes per checkpoint of the last run of the loop."""
    from django.db.models import Avg

    from checkpoints.models import Checkpoint

    rows = Checkpoint.objects.filter(graph=f"bench_w1_{steps}")
    return float(rows.aggregate(size=Avg("stored_size"))["size"]) / 1024
