"""Addresses of version 1 of the API, and of the probes. A project includes them at its
root.
"""

from django.urls import include, path, re_path

from approvals import urls as approvals
from orchestrator import health
from orchestrator.api import approvals as asked
from orchestrator.api import (
    checkpoints,
    comparisons,
    doors,
    figures,
    graphs,
    not_found,
    reopenings,
    runs,
    schema,
    travel,
    uploads,
)
from orchestrator.api.base import mount
from orchestrator.api.bundles import endpoints as bundles
from orchestrator.api.verbs import verb_paths
from orchestrator.live import approval_stream, stream
from orchestrator.metrics.door import metrics

v1 = [
    path("graphs/", mount(graphs.Graphs), name="graphs"),
    path("graphs/<str:name>/", mount(graphs.OneGraph), name="graph"),
    path("figures/", mount(figures.Figures), name="figures"),
    path("runs/", mount(runs.Runs), name="runs"),
    path("runs/<str:run>/", mount(runs.OneRun), name="run"),
    path(
        "runs/<str:run>/checkpoints/",
        mount(runs.RunCheckpoints),
        name="run-checkpoints",
    ),
    path("runs/<str:run>/events/", mount(runs.RunEvents), name="run-events"),
    path("runs/<str:run>/stream/", mount(stream.RunStream), name="run-stream"),
    path("runs/<str:run>/blame/", mount(comparisons.RunBlame), name="run-blame"),
    path("runs/<str:run>/history/", mount(comparisons.RunHistory), name="run-history"),
    path("runs/<str:run>/lineage/", mount(comparisons.RunLineage), name="run-lineage"),
    path("runs/<str:run>/align/", mount(comparisons.RunAlign), name="run-align"),
    path("runs/<str:run>/export/", mount(bundles.RunExport), name="run-export"),
    path("approvals/", mount(asked.Approvals), name="approvals"),
    path(
        "approvals/<str:run>/", mount(approval_stream.AwaitedApproval), name="approval"
    ),
    path(
        "approvals/<str:run>/stream/",
        mount(approval_stream.ApprovalStream),
        name="approval-stream",
    ),
    path(
        "approvals/<str:run>/callback/",
        mount(asked.ApprovalCallback),
        name="approval-callback",
    ),
    path(
        "approvals/<str:run>/cancel/",
        mount(asked.ApprovalCancelled),
        name="approval-cancel",
    ),
    path(
        "approvals/<str:run>/outcomes/",
        mount(asked.ApprovalOutcomes),
        name="approval-outcomes",
    ),
    path("doors/<str:door>/", mount(doors.DoorMessages), name="door"),
    path("imports/", mount(bundles.Imports), name="imports"),
    path(
        "runs/<str:run>/replay-report/",
        mount(travel.ReplayReport),
        name="replay-report",
    ),
    path("runs/<str:run>/erase/", mount(runs.Erase), name="erase"),
    *verb_paths(),
    path(
        "requests/<uuid:request_id>/reopen/",
        mount(reopenings.RequestReopened),
        name="request-reopen",
    ),
    path(
        "checkpoints/<str:checkpoint>/",
        mount(checkpoints.OneCheckpoint),
        name="checkpoint",
    ),
    path(
        "checkpoints/<str:checkpoint>/state/",
        mount(checkpoints.CheckpointState),
        name="checkpoint-state",
    ),
    path(
        "checkpoints/<str:checkpoint>/diff/",
        mount(checkpoints.CheckpointDiff),
        name="checkpoint-diff",
    ),
    path(
        "checkpoints/<str:checkpoint>/plan/",
        mount(travel.TravelPlan),
        name="travel-plan",
    ),
    path("forks/", mount(travel.BulkForks), name="forks"),
    path("forks/<uuid:fork>/", mount(travel.OneBulkFork), name="bulk-fork"),
    path(
        "forks/<uuid:fork>/results/",
        mount(travel.BulkForkResults),
        name="bulk-fork-results",
    ),
    path("uploads/", mount(uploads.Uploads), name="uploads"),
    *approvals.patterns(mount),
    path("schema/", mount(schema.Schema), name="schema"),
    # Last, because it matches every address.
    re_path(r"^.*/$", mount(not_found.Nothing)),
]

urlpatterns = [
    path("api/v1/", include((v1, "api"))),
    path("healthz", health.healthz, name="healthz"),
    path("metrics", metrics, name="metrics"),
    path("readyz", health.readyz, name="readyz"),
    path("readyz/workers", health.workers_readyz, name="readyz-workers"),
]
