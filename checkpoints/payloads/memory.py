"""A backend in this process's memory, for tests and for `MemoryStore`. Its payloads are
gone when the process ends.
"""

import threading
from collections.abc import Iterable
from datetime import UTC, datetime

from checkpoints.payloads.base import check_name
from orchestrator.engine.errors import PayloadLost, PayloadTaken


class MemoryPayloads:
    """A backend that stores payloads in a dictionary behind a lock."""

    in_row = False

    def __init__(self) -> None:
        self._payloads: dict[str, tuple[bytes, datetime]] = {}
        self._lock = threading.Lock()

    def put(self, name: str, data: bytes) -> bytes:
        with self._lock:
            stored, _ = self._payloads.setdefault(
                check_name(name), (bytes(data), datetime.now(UTC))
            )
        if stored != data:
            raise PayloadTaken(f"other bytes are kept as {name}", name=name)
        # The name alone finds the bytes, so the row needs no record of them.
        return b""

    def get(self, name: str, kept: bytes) -> bytes:
        try:
            return self._payloads[name][0]
        except KeyError:
            raise PayloadLost(f"payload {name} is not there", name=name) from None

    def delete(self, name: str, kept: bytes) -> None:
        self._payloads.pop(name, None)

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        prefix = ""
        if folder:
            prefix = f"{folder}/"
        names = []
        # Copied, because another thread may put a payload in the meantime.
        for name, (_, at) in list(self._payloads.items()):
            if at < before and name.startswith(prefix):
                names.append(name)
        return names
