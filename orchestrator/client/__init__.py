"""The client of the API for programs elsewhere: it loads no Django.

`Client` and `AsyncClient` need the extra `client`; the rest needs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from orchestrator.client.approval import Approval, Item
from orchestrator.client.decision_set import DecisionSet
from orchestrator.client.errors import (
    ApiError,
    Conflict,
    Erased,
    ForeignAnswer,
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
    from orchestrator.client import calls
    from orchestrator.client.clients import AsyncClient, Client

__all__ = [
    "ApiError",
    "Approval",
    "AsyncClient",
    "Client",
    "Conflict",
    "DecisionSet",
    "Erased",
    "ForeignAnswer",
    "InvalidBody",
    "Item",
    "KeyConflict",
    "NotAllowed",
    "NotAuthenticated",
    "NotFound",
    "ServerFailed",
    "Throttled",
    "Unreachable",
    "calls",
]


def __getattr__(name: str) -> Any:
    # Whoever only builds a `DecisionSet` needs no httpx.
    if name in ("AsyncClient", "Client"):
        clients = import_module("orchestrator.client.clients")
        return getattr(clients, name)
    if name == "calls":
        return import_module("orchestrator.client.calls")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
