"""Renewals in a slice: the gate at which people are asked again about what a task acts
on, as its earlier request had it.
"""

from dataclasses import replace
from typing import Any
from uuid import UUID

from approvals.gates.new_requests import ReachedGate
from approvals.models import ApprovalRequest
from checkpoints.models.fields import of_tasks
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import Gate, Task
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.gates.gate_on_run import gate_on_run
from orchestrator.engine.graphs.consideration import considered_by
from orchestrator.engine.graphs.review_claim import claim_time
from orchestrator.execution.open_superstep import FinishedTask
from orchestrator.execution.session import Session


def renewed_gate(session: Session, task: Task, held: FinishedTask) -> ReachedGate:
    """Return the gate that asks again before a task acts, under the rules and with the
    title and facts of the request that had let it. Three queries.

    Raises `TamperedRow` and `WrongKey` if that request is not as it was written, and
    `InvalidValue` if the terms of the gate fail.
    """
    lease = session.lease
    earlier = ApprovalRequest.objects.filter(of_tasks(lease.id, lease.line, [task]))
    guard = held.guard or task.node
    declared = session.graph.nodes[guard].gate or Gate()
    gate = gate_on_run(session.graph, declared, session.input)
    # It asks about one value that nobody edits, and waits as long as it takes: nothing
    # is let through, or turned down, by silence. Whoever signs confirms it whatever the
    # amount, because what was applied shows no money.
    bare = replace(
        gate,
        writes={},
        shows=(),
        deadline=None,
        on_deadline="reject",
        tiers=(),
        confirm_above=None,
        # Its recheck is what is asked about this, and people decide.
        veto=None,
        auto=None,
        standing=False,
        auto_after=None,
    )
    reached = ReachedGate(
        bare,
        _why(held),
        guard=guard,
        reads=held.reads,
        ordinal=earlier.count(),
        shown=_shown(guard, guard, []),
    )
    if not held.renews:
        return reached
    return _as_asked(reached, _renewed_request(UUID(held.renews)))


def _why(held: FinishedTask) -> str:
    return f"What was approved may not be acted on any more: {held.why}"


def _renewed_request(id: UUID) -> ApprovalRequest:
    request = ApprovalRequest.objects.select_related("run").filter(id=id).first()
    if request is None:
        raise TamperedRow(
            f"request {id} is gone", row=f"approvals_approvalrequest {id}"
        )
    sealed_rows.verify_row(request, protection_of(request.run))
    return request


def _as_asked(reached: ReachedGate, request: ApprovalRequest) -> ReachedGate:
    """Return the gate with the rules of an earlier request."""
    shown = _shown(
        reached.guard,
        str(read_value(request, "title")),
        read_value(request, "facts") or [],
    )
    # Nobody here was named by the rules of another installation.
    if request.run.imported:
        return replace(reached, shown=shown, renews=request.id)
    policy = request.policy
    gate = replace(
        reached.gate,
        quorum=policy["quorum"],
        reject_quorum=policy["reject_quorum"],
        four_eyes=policy["four_eyes"],
        all_or_nothing=policy["all_or_nothing"],
        confirm=policy.get("confirm"),
        considered=considered_by(policy),
        exclusive=policy.get("exclusive", False),
        claim_for=claim_time(policy),
    )
    # What its functions read then decides as well whom it asks now.
    reads = policy.get("reads")
    if reads is not None:
        reads = sorted({*reads, *(reached.reads or ())})
    return replace(
        reached,
        gate=gate,
        reads=reads,
        # Later changes must not be attributed to other people.
        reviewers=request.reviewers_now,
        shown=shown,
        renews=request.id,
    )


def _shown(guard: str, title: str, facts: list[Any]) -> dict[str, Any]:
    """Return what people are shown, in the form of `present`."""
    write = {
        "label": f"What {guard} approved",
        "money": None,
        "reversible": None,
        "reason_required": False,
    }
    return {"title": title, "facts": facts, "writes": [write], "notes": []}
