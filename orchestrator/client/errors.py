"""The refusals of the API, as types of a program that calls it. Each names the call, what
was refused and the cure.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class ApiError(Exception):
    """The API did not do what a call asks. `status` is that of HTTP, `code` is for
    programs, `message` for people; `facts` are the further members of the problem.
    """

    cure: ClassVar[str] = "Check the address: this is no answer of Countersign's API."

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        call: str = "",
        facts: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.call = call
        self.facts: Mapping[str, Any] = facts or {}
        self.retry_after = retry_after

    def __str__(self) -> str:
        place = f"{self.call}: " if self.call else ""
        return f"{place}{self.message} ({self.status} {self.code}). {self.cure}"


class NotAuthenticated(ApiError):
    """The token does not count."""

    cure = (
        "Make a token with `manage.py create_token`: this one may be mistyped, "
        "revoked, past its end, or of another installation."
    )


class NotAllowed(ApiError):
    """The token or its user lacks a right."""

    cure = "Use a token with the scope, or give its user the right, that is named."


class NotFound(ApiError):
    """There is no such thing, or the token's user may not see it."""

    cure = "Check the id or key, and whether the token's user may see it."


class Conflict(ApiError):
    """The state of the thing does not allow this."""

    cure = "Read the thing again; its state says what can be done next."


class KeyConflict(Conflict):
    """The key is in use for something else."""

    cure = "Choose another key, or repeat the first call exactly."


class InvalidBody(ApiError):
    """A value that was sent does not fit."""

    cure = "Correct what is named and call again."


class Erased(ApiError):
    """The values that were asked for have been erased."""

    cure = "Ask anew; the record of the run says by whom they were erased, and why."


class Throttled(ApiError):
    """Too many calls; `retry_after` says after how many seconds to try again."""

    cure = "Call again after `retry_after` seconds."


class ServerFailed(ApiError):
    """The server answered that it could not do it."""

    cure = "Whether it was done cannot be told: look, or send it again with its key."


class ForeignAnswer(ServerFailed):
    """A success that is no JSON, such as the page of a proxy."""

    cure = (
        "Check the address, and the proxy before it: something else answered in the "
        "place of Countersign. Whether a POST was done cannot be told: look, or send it "
        "again with its key."
    )


class Unreachable(ApiError):
    """No answer came."""

    cure = (
        "Check the address and whether the server runs. Whether a POST was done cannot "
        "be told: look, or send it again with its key."
    )

    def __init__(self, message: str, *, call: str = "") -> None:
        super().__init__(0, "unreachable", message, call=call)


_OF_CODE: Mapping[str, type[ApiError]] = {
    "key_conflict": KeyConflict,
    "idempotency_key_reused": KeyConflict,
}
_OF_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidBody,
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    410: Erased,
    413: InvalidBody,
    422: InvalidBody,
    429: Throttled,
}


def error_type(status: int, code: str) -> type[ApiError]:
    """Return the type of the error for a problem with this status and code."""
    if code in _OF_CODE:
        return _OF_CODE[code]
    if status >= 500:
        return ServerFailed
    return _OF_STATUS.get(status, ApiError)
