"""Runs at a gate with a deadline, and deadlines that have come."""

from datetime import timedelta
from typing import Any

from django.utils import timezone

from approvals import deadlines
from approvals.gates.deadline_jobs import KIND
from approvals.models import ApprovalRequest
from checkpoints.models import Job, Run
from orchestrator.engine import END, START, Gate, Graph, Write
from orchestrator.jobs.kinds import advance
from tests.support.forging import rewrite
from tests.support.small_graphs import advanced, graph

HOUR = timedelta(hours=1)


def gated(name: str, **gate: Any) -> Graph:
    """propose, whose gate holds a letter and a total for an hour; then finish."""
    flow = graph(name)
    options = {"reviewers": ["group:claims"], "deadline": HOUR, **gate}

    @flow.node(effect="human", gate=Gate(**options))
    def propose(state: Any, ctx: Any) -> list[Write]:
        return [Write("letter", "Dear Marta"), Write("total", 4)]

    @flow.node()
    def finish(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["finished"]}

    flow.edge(START, "propose")
    flow.edge("propose", "finish", when=("approved", "partial"))
    flow.edge("finish", END)
    return flow


def paused_run(name: str = "with-deadline", **gate: Any) -> Run:
    """A run of that graph which waits for people."""
    run = advanced(gated(name, **gate))
    assert run.status == "paused", run.error_code
    return run


def let_come(run: Run) -> None:
    """Move the deadlines of a run's open requests, and their jobs, to a minute ago."""
    past = timezone.now() - timedelta(minutes=1)
    waiting = ApprovalRequest.objects.filter(run=run, status="open")
    for row in waiting.exclude(deadline=None):
        rewrite(row, deadline=past)
    Job.objects.filter(run=run.id, kind=KIND).update(due_at=past)


def meet_deadline(run: Run) -> bool:
    """Let the deadline of a run's only open request decide, without its job."""
    request = ApprovalRequest.objects.get(run=run, status="open")
    return deadlines.meet_deadline(run.id, request.id)


def work_off(run: Run) -> list[Job]:
    """Let the jobs of a run's deadlines work as far as they are due."""
    ids = Job.objects.filter(run=run.id, kind=KIND).order_by("created_at", "id")
    return [advance(job) for job in ids.values_list("id", flat=True)]
