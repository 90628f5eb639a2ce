"""The error pages, in the console's look. They say what happened, what is safe, and where to go."""

import secrets
from typing import Any

import structlog
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from approvals.views.page import FRAME, error_page

log = structlog.get_logger(__name__)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    text = "There is nothing at this address, or nothing that you may see."
    return error_page(request, "Not found", text, status=404)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    text = str(exception) or "You may not do this. Nothing was changed."
    return error_page(request, "Not allowed", text, status=403)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    text = "This request could not be read. Nothing was changed."
    return error_page(request, "Not understood", text, status=400)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    text = "This page was too old to send from. Nothing was changed: go back, reload it, and send again."
    return error_page(request, "Not sent", text, status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """Without the request in its context: whatever broke, perhaps the database, must not break this page too."""
    reference = f"err_{secrets.token_hex(6)}"
    log.error("server_error", reference=reference, path=request.path)
    facts: dict[str, Any] = {
        "base": FRAME,
        "title": "Something broke on our side",
        "text": "Nothing was changed. Try again; if it happens again, give this reference to whoever runs Countersign.",
        "reference": reference,
    }
    return HttpResponse(render_to_string("orchestrator/error.html", facts), status=500)
