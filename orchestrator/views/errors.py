"""The error pages, in the console's look. They say what happened, what is safe, and where to go."""

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
    text = "This page was too old to send from. Nothing was changed: go back, reload it, and send again."
    return error_page(request, "Not sent", text, status=403)


def server_error(request: HttpRequest) -> HttpResponse:
    """Django calls it while the exception is handled that no view and no middleware has answered. Who asked the API is
    given a problem.
    """
    if (page := unavailable(request, sys.exc_info()[1])) is not None:
        return page
    done = "Nothing was changed." if request.method in SAFE else "What you sent may have been done or not: look first."
    text = f"{done} If it happens again, give this reference to whoever runs Countersign."
    if request.resolver_match is not None and "api" in request.resolver_match.namespaces:
        reference = _reference("server_error", request)
        return _problem_500(f"something broke on our side. {done}", reference=reference)
    return _page(request, "Something broke on our side", text, status=500)


def unavailable(request: HttpRequest, error: BaseException | None) -> HttpResponse | None:
    """The page where the database, a disk or the place of payloads does not serve now; None for any other error."""
    if not (is_outage(error) or isinstance(error, AWAY)):
        return None
    text = (
        "The database or the place where data is kept does not answer now. What you sent may have been done or not: "
        "wait a moment, look, and send again only what is missing. If it goes on, give this reference to whoever runs "
        "Countersign."
    )
    answer = _page(request, "Not available at the moment", text, status=503, reason=str(error))
    answer.headers["Retry-After"] = str(RETRY_SECONDS)
    return answer


def _page(request: HttpRequest, title: str, text: str, *, status: int, reason: str = "") -> HttpResponse:
    """Without the request in its context: whatever broke, perhaps the database, must not break this page too."""
    reference = _reference("unavailable" if reason else "server_error", request, reason=reason)
    facts: dict[str, Any] = {"base": FRAME, "title": title, "text": text, "reference": reference}
    answer = HttpResponse(render_to_string("orchestrator/error.html", facts), status=status)
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _reference(event: str, request: HttpRequest, *, reason: str = "") -> str:
    """What the log has this error under."""
    reference = f"err_{secrets.token_hex(6)}"
    log.error(event, reference=reference, path=request.path, reason=reason)
    return reference


def _problem_500(detail: str, **facts: Any) -> HttpResponse:
    """A problem of the API for a defect; without what serves the API, which may be what broke."""
    told = {"type": "urn:countersign:problem:server_error", "title": "Server error", "status": 500}
    told |= {"code": "server_error", "detail": detail}
    answer = JsonResponse(told | facts, status=500, content_type="application/problem+json")
    answer.headers["Cache-Control"] = "no-store"
    return answer
