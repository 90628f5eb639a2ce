"""Addresses of the approvals part of the API. `orchestrator.urls_api` mounts them under /api/v1/."""

from collections.abc import Callable
from typing import Any

from django.urls import URLPattern, path
from rest_framework.views import APIView

from approvals.api import endpoints as api

Mount = Callable[[type[APIView]], Callable[..., Any]]


def patterns(mount: Mount) -> list[URLPattern]:
    """The addresses, each view put on the common part of the API by `mount`."""
    return [
        path("requests/", mount(api.Requests), name="requests"),
        path("requests/<uuid:request_id>/", mount(api.OneRequest), name="request"),
        path("requests/<uuid:request_id>/decisions/", mount(api.RequestDecisions), name="request-decisions"),
        path("runs/<str:run>/signatures/", mount(api.Signatures), name="signatures"),
        path("runs/<str:run>/decisions/", mount(api.RunDecisions), name="run-decisions"),
    ]
