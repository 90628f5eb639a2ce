"""The exception handler of the views: errors as problem details (RFC 9457), {type,
title, status, code, detail, ...facts}, with their statuses in one table.

An exception without an answer is not caught: it is a defect and must be seen as one.
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
    errors.ConfirmationRequired: 403,
    errors.Forbidden: 403,
    errors.UnknownThing: 404,
    errors.Erased: 410,
    errors.WrongStatus: 409,
    errors.StaleLease: 409,
    errors.StaleProposal: 409,
    errors.AlreadyDecided: 409,
    errors.AlreadyReported: 409,
    errors.Claimed: 409,
    errors.DeadlinePassed: 409,
    errors.AuthorityLost: 409,
    errors.KeyConflict: 409,
    errors.NotConsidered: 409,
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
"""A class that is not named here has the status of its nearest named base class; the
base of all has 409.
"""

MEDIA_TYPE = "application/problem+json"
OUTAGE = (
    "the database or the disk does not serve now; whether this was done cannot be "
    "told: look first, or send it again under the same key or Idempotency-Key"
)
_MEMBERS = frozenset({"type", "title", "status", "code", "detail"})


def answer(error: Exception, context: dict[str, Any] | None = None) -> Response | None:
    """Return the problem that answers this exception; None for a defect."""
    if isinstance(error, errors.CountersignError):
        status = status_of(type(error))
        return _problem(status, error.code, error.message, facts=error.facts)
    if is_outage(error):
        return _problem(503, "unavailable", OUTAGE, facts={})
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied()
    if isinstance(error, exceptions.APIException):
        return _problem_of_framework(error)
    return None


def status_of(kind: type[errors.CountersignError]) -> int:
    """Return the HTTP status of an error class."""
    for base in kind.__mro__:
        if base in STATUS:
            return STATUS[base]
    return 409


def _problem(status: int, code: str, detail: str, *, facts: dict[str, Any]) -> Response:
    problem = {
        "type": f"urn:countersign:problem:{code}",
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "code": code,
        "detail": detail,
    }
    for name, fact in facts.items():
        # A fact may have the name of a member of the problem, as the run's status does;
        # it must not replace that member.
        member = f"actual_{name}" if name in _MEMBERS else name
        problem[member] = fact
    headers = {"Retry-After": str(RETRY_SECONDS)} if status == 503 else None
    return Response(problem, status=status, headers=headers, content_type=MEDIA_TYPE)


def _problem_of_framework(error: exceptions.APIException) -> Response:
    facts: dict[str, Any] = {}
    if isinstance(error, exceptions.ValidationError):
        code = "invalid_body"
        facts["errors"] = list(_flat_errors(error.detail, ""))
        detail = "; ".join(_error_text(refusal) for refusal in facts["errors"])
    else:
        code = str(error.default_code)
        detail = str(error.detail)
    response = _problem(error.status_code, code, detail, facts=facts)

    header = getattr(error, "auth_header", None)
    if header:
        response["WWW-Authenticate"] = header
    # A wait of 0 seconds is sent too.
    wait = getattr(error, "wait", None)
    if wait is not None:
        response["Retry-After"] = str(int(wait))
    return response


def _error_text(error: dict[str, str]) -> str:
    if error["path"]:
        return f"{error['path']}: {error['message']}"
    return error["message"]


def _flat_errors(detail: Any, path: str) -> Iterator[dict[str, str]]:
    """Yield DRF's nested errors as {path, message} each; a path is like
    `decisions[2].hash`.
    """
    if isinstance(detail, dict):
        for name, inner in detail.items():
            yield from _flat_errors(inner, _path_of_field(path, name))
    elif isinstance(detail, list):
        for index, inner in enumerate(detail):
            # The errors of one field are a list of texts, which have no places.
            is_nested = isinstance(inner, dict | list) and bool(inner)
            inner_path = f"{path}[{index}]" if is_nested else path
            yield from _flat_errors(inner, inner_path)
    else:
        yield {"path": path, "message": str(detail)}


def _path_of_field(path: str, name: Any) -> str:
    # DRF numbers the elements of a list that has errors.
    if isinstance(name, int):
        return f"{path}[{name}]"
    if name == "non_field_errors":
        return path
    if path:
        return f"{path}.{name}"
    return str(name)
