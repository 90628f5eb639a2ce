"""The contract of a payload backend: put, get, delete under insert-only names."""

from typing import Protocol


class PayloadBackend(Protocol):
    """Keeps bytes under names that are never used twice; a name holds the checkpoint's id.

    `put` must be durable when it returns, or be part of the caller's transaction. What `put` returns is kept in the
    checkpoint's row and handed back to `get` and `delete`: all of the bytes, or as little as the backend needs to find
    them.
    """

    def put(self, name: str, data: bytes) -> bytes: ...

    def get(self, name: str, kept: bytes) -> bytes: ...

    def delete(self, name: str, kept: bytes) -> None: ...
