"""The spans of a slice: the slice itself, its supersteps, the attempts of their tasks,
and the effects. They name run, graph and node, and never a value.

Each is opened only if the slice has found that the host traces.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import Error

from checkpoints import event_log
from checkpoints.core import traces
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.effect import PURE
from orchestrator.engine.graphs.node import Node


@contextmanager
def slice_span(tracer: Any, lease: Lease) -> Iterator[Any]:
    """Open the span of a slice, in the trace in which the run was started, however long
    ago. One query.
    """
    context = traces.context_of(_trace_of(lease))
    attributes = {
        **_of_run(lease),
        "countersign.version": lease.version,
        "countersign.epoch": lease.epoch,
    }
    with traces.span(
        tracer, "countersign.slice", attributes, context=context
    ) as opened:
        yield opened


def _trace_of(lease: Lease) -> str:
    try:
        return event_log.trace_of(lease.id)
    except (CountersignError, Error):
        # The slice itself finds out what is wrong with the run or the database.
        return ""


@contextmanager
def superstep_span(tracer: Any, lease: Lease) -> Iterator[Any]:
    """Open the span of the superstep that follows."""
    attributes = {**_of_run(lease), "countersign.superstep": lease.superstep + 1}
    with traces.span(tracer, "countersign.superstep", attributes) as opened:
        yield opened


@contextmanager
def attempt_span(
    trace: tuple[Any, Any], lease: Lease, task: Task, node: Node, number: int
) -> Iterator[None]:
    """Open the span of an attempt, and within it that of its effect if it has one.
    `trace` is the tracer, and the context of the thread that began the superstep.
    """
    tracer, context = trace
    attributes = {
        **_of_run(lease),
        "countersign.node": task.node,
        "countersign.visit": task.visit,
        "countersign.attempt": number,
    }
    with traces.span(tracer, "countersign.attempt", attributes, context=context):
        if node.effect == PURE or not node.journaled:
            yield
            return
        effect = {**attributes, "countersign.effect": str(node.effect)}
        with traces.span(tracer, "countersign.effect", effect, is_call=True):
            yield


def _of_run(lease: Lease) -> dict[str, Any]:
    return {"countersign.run": str(lease.id), "countersign.graph": lease.graph}
