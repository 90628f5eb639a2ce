"""Stores of checkpoints: `CheckpointStore` over rows and a payload backend,
`MemoryStore` without Django, and the conformance suite that both pass. Importing this
loads no Django; using `CheckpointStore` does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from checkpoints.core.memory_store import MemoryStore
from checkpoints.core.records import Snapshot, Stored

if TYPE_CHECKING:
    from checkpoints import conformance
    from checkpoints.store.rows import CheckpointStore

__all__ = ["CheckpointStore", "MemoryStore", "Snapshot", "Stored", "conformance"]


def __getattr__(name: str) -> Any:
    # Both load Django, so they are imported when they are first used.
    if name == "CheckpointStore":
        return import_module("checkpoints.store.rows").CheckpointStore
    if name == "conformance":
        return import_module("checkpoints.conformance")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
