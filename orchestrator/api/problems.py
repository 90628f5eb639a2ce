"""Errors as problem details (RFC 9457): {type, title, status, code, detail, ...facts}, their statuses in one table.

The views' exception handler. An exception that is no answer is not caught: it is a defect and must be seen as one.
"""

from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from checkpoints.db.outage import RETRY_SECONDS, is_outage
from orchestrator.engine import errors

STATUS: dict[type[errors.CountersignError], int] = {
    errors.NotAReviewer: 403,
    errors.Forbidden: 403,
    errors.UnknownThing: 404,
    errors.WrongStatus: 409,
    errors.StaleLease: 409,
    errors.StaleProposal: 409,
    errors.AlreadyDecided: 409,
    errors.KeyConflict: 409,
    errors.IncompatibleGraph: 409,
    errors.TamperedRow: 409,
    errors.WrongKey: 409,
    errors.MemoryConflict: 409,
    errors.OpenTransaction: 409,
    errors.PayloadTooLarge: 413,
    errors.InvalidBundle: 422,
    errors.InvalidValue: 422,
    errors.InvalidGraph: 422,
    errors.ConflictingWrites: 422,
    errors.PayloadTaken: 409,
    errors.PayloadsUnavailable: 503,
    errors.UnknownBackend: 503,
    errors.SaveFailed: 503,
    errors.MissingSecrets: 503,
}
"""A class that is not named here answers as the nearest class above it; the base itself as 409."""

MEDIA_TYPE = "application/problem+json"
OUTAGE = (
    "the database or the disk does not serve now; whether this was done cannot be told: look first, or send it again "
    "under the same key or Idempotency-Key"
)
_MEMBERS = frozenset({"type", "title", "status", "code", "detail"})


def answer(error: Exception, context: dict[str, Any] | None = None) -> Response | None:
    """The problem that answers this exception; None where it is a defect."""
    if isinstance(error, errors.CountersignError):
        return _problem(status_of(type(error)), error.code, error.message, facts=error.facts)
    if is_outage(error):
        return _problem(503, "unavailable", OUTAGE, facts={})
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    return _of_framework(error) if isinstance(error, exceptions.APIException) else None


def status_of(kind: type[errors.CountersignError]) -> int:
    """The HTTP status of an error class."""
    return next((STATUS[one] for one in kind.__mro__ if one in STATUS), 409)


def _problem(status: int, code: str, detail: str, *, facts: dict[str, Any]) -> Response:
    # A fact may have the name of a member of the problem, as the run's status does; it must not take its place.
    named = {f"actual_{name}" if name in _MEMBERS else name: fact for name, fact in facts.items()}
    problem = {
        "type": f"urn:countersign:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "code": code,
        "detail": detail,
    }
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
    return Response(problem | named, status=status, headers=headers, content_type=MEDIA_TYPE)


def _of_framework(error: exceptions.APIException) -> Response:
    facts: dict[str, Any] = {}
    if isinstance(error, exceptions.ValidationError):
        facts["errors"] = list(_flat(error.detail, ""))
        code = "invalid_body"
        detail = "; ".join(f"{e['path']}: {e['message']}" if e["path"] else e["message"] for e in facts["errors"])
    else:
        code, detail = str(error.default_code), str(error.detail)
    response = _problem(error.status_code, code, detail, facts=facts)
    if header := getattr(error, "auth_header", None):
        response["WWW-Authenticate"] = header
    if (wait := getattr(error, "wait", None)) is not None:
        response["Retry-After"] = str(int(wait))
    return response


def _flat(detail: Any, path: str) -> Iterator[dict[str, str]]:
    """DRF's nested errors as {path, message} each; `decisions[2].hash`."""
    if isinstance(detail, dict):
        for name, inner in detail.items():
            here = path if name == "non_field_errors" else f"{path}.{name}" if path else str(name)
            yield from _flat(inner, f"{path}[{name}]" if isinstance(name, int) else here)
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            yield from _flat(inner, f"{path}[{index}]" if isinstance(inner, dict | list) and inner else path)
    else:
        yield {"path": path, "message": str(detail)}
