"""A backend in this process's memory: for tests and for `MemoryStore`. It forgets everything when the process ends."""

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

from checkpoints.payloads.base import check_name
from orchestrator.engine.errors import PayloadLost, PayloadTaken


class MemoryPayloads:
    """A dictionary behind a lock."""

    in_row = False

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, datetime]] = {}
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> bytes:
        with self._lock:
            there, _ = self._kept.setdefault(check_name(name), (bytes(data), datetime.now(UTC)))
        if there != data:
            raise PayloadTaken(f"other bytes are kept as {name}", name=name)
        return b""

    def get(self, name: str, kept: bytes) -> bytes:
        try:
            return self._kept[name][0]
        except KeyError:
            raise PayloadLost(f"payload {name} is not there", name=name) from None

    def delete(self, name: str, kept: bytes) -> None:
        self._kept.pop(name, None)

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        first = f"{folder}/" if folder else ""
        return [name for name, (_, at) in list(self._kept.items()) if at < before and name.startswith(first)]
