"""The error pages, in the console's look: what happened, what is safe, and where to go
next.
"""

import secrets
import sys
from typing import Any

import structlog
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from approvals.views.page import FRAME, error_page
from checkpoints.db.outage import RETRY_SECONDS, is_outage
from orchestrator.engine.errors import AWAY

log = structlog.get_logger(__name__)

SAFE = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing."""


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
    text = (
        "This page was too old to send from. Nothing was changed: "
        "go back, reload it, and send again."
    )
    return error_page(request, "Not sent", text, status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the page for an exception that no view and no middleware answered; Django
    calls this while it is handled. A caller of the API gets a problem.
    """
    page = unavailable(request, sys.exc_info()[1])
    if page is not None:
        return page
    outcome = "What you sent may have been done or not: look first."
    if request.method in SAFE:
        outcome = "Nothing was changed."
    # The caller of the API reads JSON, whatever broke.
    if _is_for_api(request):
        reference = _reference("server_error", request)
        detail = f"something broke on our side. {outcome}"
        return _problem_500(detail, reference=reference)
    text = (
        f"{outcome} If it happens again, "
        "give this reference to whoever runs Countersign."
    )
    return _page(request, "Something broke on our side", text, status=500)


def _is_for_api(request: HttpRequest) -> bool:
    match = request.resolver_match
    return match is not None and "api" in match.namespaces


def unavailable(
    request: HttpRequest, error: BaseException | None
) -> HttpResponse | None:
    """Return the page for an error because the database, a disk or the place of
    payloads does not serve now; None for any other error.
    """
    if not is_outage(error) and not isinstance(error, AWAY):
        return None
    text = (
        "The database or the place where data is kept does not answer now. "
        "What you sent may have been done or not: wait a moment, look, "
        "and send again only what is missing. "
        "If it goes on, give this reference to whoever runs Countersign."
    )
    answer = _page(
        request, "Not available at the moment", text, status=503, reason=str(error)
    )
    answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def _page(
    request: HttpRequest,
    title: str,
    text: str,
    *,
    status: int,
    reason: str = "",
) -> HttpResponse:
    """Return an error page without the request in its context: whatever broke, perhaps
    the database, must not break this page too.
    """
    # The log of a defect has its traceback. The text of an outage's error may be empty.
    event = "unavailable" if status == 503 else "server_error"
    facts: dict[str, Any] = {
        "base": FRAME,
        "title": title,
        "text": text,
        "reference": _reference(event, request, reason=reason),
    }
    html = render_to_string("orchestrator/error.html", facts)
    answer = HttpResponse(html, status=status)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _reference(event: str, request: HttpRequest, *, reason: str = "") -> str:
    """Log the error and return the reference under which the log has it."""
    reference = f"err_{secrets.token_hex(6)}"
    log.error(event, reference=reference, path=request.path, reason=reason)
    return reference


def _problem_500(detail: str, **facts: Any) -> HttpResponse:
    """Return a problem of the API for a defect, without the code that serves the API:
    that may be what broke.
    """
    body: dict[str, Any] = {
        "type": "urn:countersign:problem:server_error",
        "title": "Server error",
        "status": 500,
        "code": "server_error",
        "detail": detail,
        **facts,
    }
    answer = JsonResponse(body, status=500, content_type="application/problem+json")
    answer.headers["Cache-Control"] = "no-store"
    return answer
