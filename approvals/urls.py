"""Addresses of the approvals part of the API. `orchestrator.urls_api` mounts them under
/api/v1/.
"""

from collections.abc import Callable
from typing import Any

from django.urls import URLPattern, path
from rest_framework.views import APIView

from approvals.api import (
    audit,
    endpoints,
    gate_figures,
    notices,
    people,
    webhooks,
)

Mount = Callable[[type[APIView]], Callable[..., Any]]


def patterns(mount: Mount) -> list[URLPattern]:
    """Return the addresses; `mount` puts each view on the common part of the API."""
    return [
        path("audit/", mount(audit.AuditLines), name="audit"),
        path("audit/<int:number>/", mount(audit.OneAuditLine), name="audit-line"),
        path(
            "gates/figures/", mount(gate_figures.GateFiguresRead), name="gate-figures"
        ),
        path("requests/", mount(endpoints.Requests), name="requests"),
        path(
            "requests/<uuid:request_id>/", mount(endpoints.OneRequest), name="request"
        ),
        path(
            "requests/<uuid:request_id>/decisions/",
            mount(endpoints.RequestDecisions),
            name="request-decisions",
        ),
        path(
            "requests/<uuid:request_id>/claim/",
            mount(people.RequestClaimed),
            name="request-claim",
        ),
        path(
            "requests/<uuid:request_id>/release/",
            mount(people.RequestReleased),
            name="request-release",
        ),
        path(
            "requests/<uuid:request_id>/assign/",
            mount(people.RequestAssigned),
            name="request-assign",
        ),
        path(
            "requests/<uuid:request_id>/comments/",
            mount(people.RequestComments),
            name="request-comments",
        ),
        path("delegations/", mount(people.Delegations), name="delegations"),
        path(
            "delegations/<uuid:delegation>/revoke/",
            mount(people.DelegationRevoked),
            name="delegation-revoke",
        ),
        path(
            "standing-policies/",
            mount(people.StandingPolicies),
            name="standing-policies",
        ),
        path(
            "standing-policies/<uuid:standing_policy>/",
            mount(people.StandingPolicyDetail),
            name="standing-policy",
        ),
        path(
            "standing-policies/<uuid:standing_policy>/revoke/",
            mount(people.StandingPolicyRevoked),
            name="standing-policy-revoke",
        ),
        # The id of a run or its key, which is any text without a slash.
        path(
            "runs/<str:run>/signatures/", mount(endpoints.Signatures), name="signatures"
        ),
        path(
            "runs/<str:run>/decisions/",
            mount(endpoints.RunDecisions),
            name="run-decisions",
        ),
        path(
            "decisions/<uuid:decision>/receipt/",
            mount(endpoints.DecisionReceipt),
            name="decision-receipt",
        ),
        path("notices/", mount(notices.Notices), name="notices"),
        path("notices/read/", mount(notices.NoticesRead), name="notices-read"),
        path("webhooks/", mount(webhooks.Webhooks), name="webhooks"),
        path("webhooks/<uuid:webhook>/", mount(webhooks.OneWebhook), name="webhook"),
        path(
            "webhooks/<uuid:webhook>/deliveries/",
            mount(webhooks.Deliveries),
            name="webhook-deliveries",
        ),
        path(
            "webhooks/<uuid:webhook>/deliveries/<uuid:delivery>/send/",
            mount(webhooks.SendAgain),
            name="webhook-send",
        ),
    ]
