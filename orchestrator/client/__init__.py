"""The client of the API for programs elsewhere: it loads no Django.

`Client` and `AsyncClient` need the extra `client`; the rest needs nothing.
"""

from typing import TYPE_CHECKING, Any

from orchestrator.client.approval import Approval, Item
from orchestrator.client.decision_set import DecisionSet
from orchestrator.client.errors import (
    ApiError,
    Conflict,
    Erased,
    InvalidBody,
    KeyConflict,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    ServerFailed,
    Throttled,
    Unreachable,
)

if TYPE_CHECKING:
    from orchestrator.client.clients import AsyncClient, Client

__all__ = [
    "ApiError",
    "Approval",
    "AsyncClient",
    "Client",
    "Conflict",
    "DecisionSet",
    "Erased",
    "InvalidBody",
    "Item",
    "KeyConflict",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "ServerFailed",
    "Throttled",
    "Unreachable",
]


def __getattr__(name: str) -> Any:
    # Who only builds a `DecisionSet` needs no httpx.
    if name in ("AsyncClient", "Client"):
        from orchestrator.client import clients

        return getattr(clients, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
