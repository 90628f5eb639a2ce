"""The operations of the API, each as a call that a client sends.

    client.send(calls.runs_retrieve("CLM-1"))

Written by `python -m tests.house.client_source` from the schema of the API; what is
changed here by hand is lost.
"""

from typing import Any, Literal

from orchestrator.client import types
from orchestrator.client.exchange import Call, part


def approvals_list(
    *,
    cursor: str | None = None,
    key: str | None = None,
    page_size: int | None = None,
    status: str | None = None,
) -> "Call[types.Page[types.ApprovalLine]]":
    """GET approvals/"""
    return Call(
        "GET",
        "approvals/",
        {
            "cursor": cursor,
            "key": key,
            "page_size": page_size,
            "status": status,
        },
    )


def approvals_create(
    body: "types.AskBody",
) -> "Call[types.NewApprovalOut]":
    """POST approvals/"""
    return Call(
        "POST",
        "approvals/",
        body=body,
    )


def approvals_retrieve(
    run: str,
    *,
    wait: int | None = None,
) -> "Call[types.AskedApprovalOut]":
    """GET approvals/{run}/"""
    return Call(
        "GET",
        f"approvals/{part(run)}/",
        {
            "wait": wait,
        },
    )


def approvals_callback_retrieve(
    run: str,
) -> "Call[types.CallbackOut]":
    """GET approvals/{run}/callback/"""
    return Call(
        "GET",
        f"approvals/{part(run)}/callback/",
    )


def approvals_cancel_create(
    run: str,
    body: "types.CancelApprovalBody",
) -> "Call[types.AskedApprovalOut]":
    """POST approvals/{run}/cancel/"""
    return Call(
        "POST",
        f"approvals/{part(run)}/cancel/",
        body=body,
    )


def approvals_outcomes_create(
    run: str,
    body: "types.OutcomesBody",
) -> "Call[types.AskedApprovalOut]":
    """POST approvals/{run}/outcomes/"""
    return Call(
        "POST",
        f"approvals/{part(run)}/outcomes/",
        body=body,
    )


def audit_list(
    *,
    by: str | None = None,
    cursor: str | None = None,
    from_: str | None = None,
    graph: str | None = None,
    kind: str | None = None,
    page_size: int | None = None,
    run: str | None = None,
    to: str | None = None,
) -> "Call[types.Page[types.AuditOut]]":
    """GET audit/"""
    return Call(
        "GET",
        "audit/",
        {
            "by": by,
            "cursor": cursor,
            "from": from_,
            "graph": graph,
            "kind": kind,
            "page_size": page_size,
            "run": run,
            "to": to,
        },
    )


def audit_retrieve(
    number: int,
) -> "Call[types.AuditLineOut]":
    """GET audit/{number}/"""
    return Call(
        "GET",
        f"audit/{part(number)}/",
    )


def checkpoints_retrieve(
    checkpoint: str,
) -> "Call[types.CheckpointOut]":
    """GET checkpoints/{checkpoint}/"""
    return Call(
        "GET",
        f"checkpoints/{part(checkpoint)}/",
    )


def checkpoints_diff_retrieve(
    checkpoint: str,
    *,
    against: str | None = None,
) -> "Call[types.DiffOut]":
    """GET checkpoints/{checkpoint}/diff/"""
    return Call(
        "GET",
        f"checkpoints/{part(checkpoint)}/diff/",
        {
            "against": against,
        },
    )


def checkpoints_fork_create(
    checkpoint: str,
    body: "types.ForkBody",
) -> "Call[types.RunOut]":
    """POST checkpoints/{checkpoint}/fork/"""
    return Call(
        "POST",
        f"checkpoints/{part(checkpoint)}/fork/",
        body=body,
    )


def checkpoints_plan_create(
    checkpoint: str,
    body: "types.HowBody",
) -> "Call[types.PlanOut]":
    """POST checkpoints/{checkpoint}/plan/"""
    return Call(
        "POST",
        f"checkpoints/{part(checkpoint)}/plan/",
        body=body,
    )


def checkpoints_replay_create(
    checkpoint: str,
    body: "types.ReplayBody",
) -> "Call[types.RunOut]":
    """POST checkpoints/{checkpoint}/replay/"""
    return Call(
        "POST",
        f"checkpoints/{part(checkpoint)}/replay/",
        body=body,
    )


def checkpoints_state_retrieve(
    checkpoint: str,
) -> "Call[types.StateOut]":
    """GET checkpoints/{checkpoint}/state/"""
    return Call(
        "GET",
        f"checkpoints/{part(checkpoint)}/state/",
    )


def decisions_receipt_retrieve(
    decision: str,
) -> "Call[dict[str, Any]]":
    """GET decisions/{decision}/receipt/"""
    return Call(
        "GET",
        f"decisions/{part(decision)}/receipt/",
    )


def delegations_list(
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.DelegationOut]]":
    """GET delegations/"""
    return Call(
        "GET",
        "delegations/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def delegations_revoke_create(
    delegation: str,
) -> "Call[types.DelegationOut]":
    """POST delegations/{delegation}/revoke/"""
    return Call(
        "POST",
        f"delegations/{part(delegation)}/revoke/",
    )


def door_deliver(
    door: str,
) -> "Call[types.MessageOut]":
    """POST doors/{door}/"""
    return Call(
        "POST",
        f"doors/{part(door)}/",
    )


def figures_list(
    *,
    by: Literal["day", "graph", "run"] | None = None,
    cursor: str | None = None,
    from_: str | None = None,
    graph: str | None = None,
    page_size: int | None = None,
    to: str | None = None,
) -> "Call[types.Page[types.FigureSum]]":
    """GET figures/"""
    return Call(
        "GET",
        "figures/",
        {
            "by": by,
            "cursor": cursor,
            "from": from_,
            "graph": graph,
            "page_size": page_size,
            "to": to,
        },
    )


def forks_create(
    body: "types.BulkForkBody",
) -> "Call[types.BulkForkOut | types.BulkPlanOut]":
    """POST forks/"""
    return Call(
        "POST",
        "forks/",
        body=body,
    )


def forks_retrieve(
    fork: str,
) -> "Call[types.BulkForkOut]":
    """GET forks/{fork}/"""
    return Call(
        "GET",
        f"forks/{part(fork)}/",
    )


def forks_results_retrieve(
    fork: str,
    *,
    cursor: str | None = None,
    page_size: int | None = None,
    refused: bool | None = None,
) -> "Call[types.Page[types.BulkForkResultOut]]":
    """GET forks/{fork}/results/"""
    return Call(
        "GET",
        f"forks/{part(fork)}/results/",
        {
            "cursor": cursor,
            "page_size": page_size,
            "refused": refused,
        },
    )


def gate_figures(
    *,
    gate: str | None = None,
    graph: str | None = None,
    since: str | None = None,
) -> "Call[types.GatesOut]":
    """GET gates/figures/"""
    return Call(
        "GET",
        "gates/figures/",
        {
            "gate": gate,
            "graph": graph,
            "since": since,
        },
    )


def graphs_list(
) -> "Call[types.Page[types.GraphLine]]":
    """GET graphs/"""
    return Call(
        "GET",
        "graphs/",
    )


def graphs_retrieve(
    name: str,
) -> "Call[types.GraphOut]":
    """GET graphs/{name}/"""
    return Call(
        "GET",
        f"graphs/{part(name)}/",
    )


def notices_list(
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.NoticeOut]]":
    """GET notices/"""
    return Call(
        "GET",
        "notices/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def notices_read_create(
    body: "types.ReadNoticesBody",
) -> "Call[types.UnreadOut]":
    """POST notices/read/"""
    return Call(
        "POST",
        "notices/read/",
        body=body,
    )


def requests_list(
    *,
    cursor: str | None = None,
    graph: str | None = None,
    page_size: int | None = None,
    run: str | None = None,
    waiting: Literal["me"] | None = None,
) -> "Call[types.Page[types.RequestLine]]":
    """GET requests/"""
    return Call(
        "GET",
        "requests/",
        {
            "cursor": cursor,
            "graph": graph,
            "page_size": page_size,
            "run": run,
            "waiting": waiting,
        },
    )


def requests_retrieve(
    request_id: str,
) -> "Call[types.RequestOut]":
    """GET requests/{request_id}/"""
    return Call(
        "GET",
        f"requests/{part(request_id)}/",
    )


def requests_assign_create(
    request_id: str,
    body: "types.AssignBody",
) -> "Call[types.RequestOut]":
    """POST requests/{request_id}/assign/"""
    return Call(
        "POST",
        f"requests/{part(request_id)}/assign/",
        body=body,
    )


def requests_claim_create(
    request_id: str,
) -> "Call[types.RequestOut]":
    """POST requests/{request_id}/claim/"""
    return Call(
        "POST",
        f"requests/{part(request_id)}/claim/",
    )


def request_comments_list(
    request_id: str,
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.CommentOut]]":
    """GET requests/{request_id}/comments/"""
    return Call(
        "GET",
        f"requests/{part(request_id)}/comments/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def requests_comments_create(
    request_id: str,
    body: "types.CommentBody",
) -> "Call[types.CommentOut]":
    """POST requests/{request_id}/comments/"""
    return Call(
        "POST",
        f"requests/{part(request_id)}/comments/",
        body=body,
    )


def requests_decisions_create(
    request_id: str,
    body: "types.DecisionsBody",
) -> "Call[types.ReceiptOut]":
    """POST requests/{request_id}/decisions/"""
    return Call(
        "POST",
        f"requests/{part(request_id)}/decisions/",
        body=body,
    )


def requests_release_create(
    request_id: str,
) -> "Call[types.RequestOut | None]":
    """POST requests/{request_id}/release/"""
    return Call(
        "POST",
        f"requests/{part(request_id)}/release/",
    )


def requests_reopen_retrieve(
    request_id: str,
) -> "Call[types.ReopeningOut]":
    """GET requests/{request_id}/reopen/"""
    return Call(
        "GET",
        f"requests/{part(request_id)}/reopen/",
    )


def requests_reopen_create(
    request_id: str,
    body: "types.ReopenBody",
) -> "Call[types.RequestOut]":
    """POST requests/{request_id}/reopen/"""
    return Call(
        "POST",
        f"requests/{part(request_id)}/reopen/",
        body=body,
    )


def runs_list(
    *,
    cursor: str | None = None,
    graph: str | None = None,
    key: str | None = None,
    origin: str | None = None,
    page_size: int | None = None,
    since: str | None = None,
    status: str | None = None,
) -> "Call[types.Page[types.RunLine]]":
    """GET runs/"""
    return Call(
        "GET",
        "runs/",
        {
            "cursor": cursor,
            "graph": graph,
            "key": key,
            "origin": origin,
            "page_size": page_size,
            "since": since,
            "status": status,
        },
    )


def runs_create(
    body: "types.StartBody",
) -> "Call[types.RunOut]":
    """POST runs/"""
    return Call(
        "POST",
        "runs/",
        body=body,
    )


def runs_retrieve(
    run: str,
) -> "Call[types.RunOut]":
    """GET runs/{run}/"""
    return Call(
        "GET",
        f"runs/{part(run)}/",
    )


def runs_align_retrieve(
    run: str,
    *,
    at: int | None = None,
    with_: str,
    with_at: int | None = None,
) -> "Call[types.AlignOut]":
    """GET runs/{run}/align/"""
    return Call(
        "GET",
        f"runs/{part(run)}/align/",
        {
            "at": at,
            "with": with_,
            "with_at": with_at,
        },
    )


def runs_blame_retrieve(
    run: str,
    *,
    at: int | None = None,
    path: str,
) -> "Call[types.BlameOut]":
    """GET runs/{run}/blame/"""
    return Call(
        "GET",
        f"runs/{part(run)}/blame/",
        {
            "at": at,
            "path": path,
        },
    )


def runs_cancel_create(
    run: str,
    body: "types.CancelBody",
) -> "Call[types.RunOut]":
    """POST runs/{run}/cancel/"""
    return Call(
        "POST",
        f"runs/{part(run)}/cancel/",
        body=body,
    )


def runs_checkpoints_retrieve(
    run: str,
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.CheckpointLine]]":
    """GET runs/{run}/checkpoints/"""
    return Call(
        "GET",
        f"runs/{part(run)}/checkpoints/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def runs_decisions_retrieve(
    run: str,
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.DecisionLine]]":
    """GET runs/{run}/decisions/"""
    return Call(
        "GET",
        f"runs/{part(run)}/decisions/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def runs_erase_retrieve(
    run: str,
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.ErasureOut]]":
    """GET runs/{run}/erase/"""
    return Call(
        "GET",
        f"runs/{part(run)}/erase/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def runs_erase_create(
    run: str,
    body: "types.EraseBody",
) -> "Call[types.ErasureOut | dict[str, Any]]":
    """POST runs/{run}/erase/"""
    return Call(
        "POST",
        f"runs/{part(run)}/erase/",
        body=body,
    )


def runs_events_retrieve(
    run: str,
    *,
    after: int | None = None,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.EventOut]]":
    """GET runs/{run}/events/"""
    return Call(
        "GET",
        f"runs/{part(run)}/events/",
        {
            "after": after,
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def runs_history_retrieve(
    run: str,
    *,
    before: int | None = None,
    limit: int | None = None,
    path: str,
) -> "Call[types.HistoryOut]":
    """GET runs/{run}/history/"""
    return Call(
        "GET",
        f"runs/{part(run)}/history/",
        {
            "before": before,
            "limit": limit,
            "path": path,
        },
    )


def runs_lineage_retrieve(
    run: str,
) -> "Call[types.LineageOut]":
    """GET runs/{run}/lineage/"""
    return Call(
        "GET",
        f"runs/{part(run)}/lineage/",
    )


def runs_replay_report_retrieve(
    run: str,
) -> "Call[types.ReplayOut]":
    """GET runs/{run}/replay-report/"""
    return Call(
        "GET",
        f"runs/{part(run)}/replay-report/",
    )


def runs_resume_create(
    run: str,
    body: "types.ResumeBody",
) -> "Call[types.RunOut]":
    """POST runs/{run}/resume/"""
    return Call(
        "POST",
        f"runs/{part(run)}/resume/",
        body=body,
    )


def runs_rewind_create(
    run: str,
    body: "types.RewindBody",
) -> "Call[types.RunOut]":
    """POST runs/{run}/rewind/"""
    return Call(
        "POST",
        f"runs/{part(run)}/rewind/",
        body=body,
    )


def runs_settle_create(
    run: str,
    body: "types.SettleBody",
) -> "Call[types.RunOut]":
    """POST runs/{run}/settle/"""
    return Call(
        "POST",
        f"runs/{part(run)}/settle/",
        body=body,
    )


def runs_signatures_create(
    run: str,
    body: "types.DecisionsBody",
) -> "Call[types.ReceiptOut]":
    """POST runs/{run}/signatures/"""
    return Call(
        "POST",
        f"runs/{part(run)}/signatures/",
        body=body,
    )


def schema(
) -> "Call[dict[str, Any]]":
    """GET schema/"""
    return Call(
        "GET",
        "schema/",
    )


def standing_policies_list(
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.StandingPolicyOut]]":
    """GET standing-policies/"""
    return Call(
        "GET",
        "standing-policies/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def standing_policies_retrieve(
    standing_policy: str,
) -> "Call[types.StandingPolicyOut]":
    """GET standing-policies/{standing_policy}/"""
    return Call(
        "GET",
        f"standing-policies/{part(standing_policy)}/",
    )


def standing_policies_revoke_create(
    standing_policy: str,
) -> "Call[types.StandingPolicyOut]":
    """POST standing-policies/{standing_policy}/revoke/"""
    return Call(
        "POST",
        f"standing-policies/{part(standing_policy)}/revoke/",
    )


def webhooks_list(
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.WebhookOut]]":
    """GET webhooks/"""
    return Call(
        "GET",
        "webhooks/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def webhooks_create(
    body: "types.WebhookBody",
) -> "Call[types.AddedWebhookOut]":
    """POST webhooks/"""
    return Call(
        "POST",
        "webhooks/",
        body=body,
    )


def webhooks_destroy(
    webhook: str,
) -> "Call[None]":
    """DELETE webhooks/{webhook}/"""
    return Call(
        "DELETE",
        f"webhooks/{part(webhook)}/",
    )


def webhooks_deliveries_retrieve(
    webhook: str,
    *,
    cursor: str | None = None,
    page_size: int | None = None,
) -> "Call[types.Page[types.DeliveryOut]]":
    """GET webhooks/{webhook}/deliveries/"""
    return Call(
        "GET",
        f"webhooks/{part(webhook)}/deliveries/",
        {
            "cursor": cursor,
            "page_size": page_size,
        },
    )


def webhooks_deliveries_send_create(
    delivery: str,
    webhook: str,
) -> "Call[types.DeliveryOut]":
    """POST webhooks/{webhook}/deliveries/{delivery}/send/"""
    return Call(
        "POST",
        f"webhooks/{part(webhook)}/deliveries/{part(delivery)}/send/",
    )
