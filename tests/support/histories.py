"""Histories for retention: runs with lines, forks of forks and requests; what every
checkpoint of them loads as.
"""

from typing import Any

from checkpoints import retention, timeline
from checkpoints.models import Checkpoint, Job, RetentionPolicy, Run
from checkpoints.verification import verify_run
from orchestrator.jobs import kinds
from tests.support.chain import join_in_a_row
from tests.support.large_states import large
from tests.support.small_graphs import advanced, graph


def policy(graph: str, **fields: Any) -> RetentionPolicy:
    """The stored policy of a graph."""
    row = RetentionPolicy.objects.filter(graph=graph).first() or RetentionPolicy(
        graph=graph
    )
    for name, value in fields.items():
        setattr(row, name, value)
    return retention.save_policy(row, by=None)


def pruned(policy: RetentionPolicy, *, by: Any = None) -> Job:
    """The removal of what a policy does not keep, to its end."""
    job = kinds.advance(retention.prune(policy, by=by).id)
    assert job.status == "done"
    assert job.error == ""
    return job


def loaded(*of: Run) -> dict[Any, Any]:
    """The state at each checkpoint that is there, by its id: of these runs, or of all."""
    rows = Checkpoint.objects.filter(kept=True).order_by("id")
    rows = rows.filter(run__in=[run.id for run in of]) if of else rows
    return {
        row.id: timeline.state_at(row.id)
        for row in rows
        if Run.objects.filter(id=row.run_id).exists()
    }


def seqs(run: Run) -> list[int]:
    return sorted(Checkpoint.objects.filter(run=run.id).values_list("seq", flat=True))


def faults(*of: Run) -> list[str]:
    """Return what is wrong with any run: of these, as far as they are there, or of all."""
    rows = (
        Run.objects.filter(id__in=[run.id for run in of]) if of else Run.objects.all()
    )
    return [fault.reason for run in rows for fault in verify_run(run.id)]


def short_run(name: str) -> Run:
    """A run of three checkpoints, which ended."""
    flow = graph(name)
    for node in "ab":
        flow.node(node)(lambda state, ctx: {"notes": [ctx.node]})
    join_in_a_row(flow, "a", "b")
    return advanced(flow)


def long_run(name: str = "long", nodes: str = "abcdefgh", **settings: Any) -> Run:
    """A run that ended, of a checkpoint a node and the first one, which alone has a
    snapshot.
    """
    return advanced(large(name, nodes, **{"snapshot": 1000, **settings}))
