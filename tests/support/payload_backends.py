"""Backends that do not keep their contract, each in one way: the suite must find every
one. And one on a disk that may be full.
"""

import errno
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from checkpoints.payloads import FilePayloads, MemoryPayloads
from orchestrator.engine.errors import PayloadLost, PayloadsUnavailable


class Overwrites(MemoryPayloads):
    def put(self, name: str, data: bytes) -> bytes:
        self.delete(name, b"")
        return super().put(name, data)


class IgnoresTheSecond(MemoryPayloads):
    """Keeps the first, and tells whoever comes second that his are kept."""

    def put(self, name: str, data: bytes) -> bytes:
        return b"" if name in self._payloads else super().put(name, data)


class RefusesToRepeat(MemoryPayloads):
    def put(self, name: str, data: bytes) -> bytes:
        if name in self._payloads:
            raise RuntimeError("taken")
        return super().put(name, data)


class CutsShort(MemoryPayloads):
    def get(self, name: str, kept: bytes) -> bytes:
        return super().get(name, kept)[:4096]


class LosesEmpty(MemoryPayloads):
    def get(self, name: str, kept: bytes) -> bytes:
        return super().get(name, kept) or None  # type: ignore[return-value]


class GivesNothingForLost(MemoryPayloads):
    def get(self, name: str, kept: bytes) -> bytes:
        try:
            return super().get(name, kept)
        except PayloadLost:
            return b""


class SaysKeyError(MemoryPayloads):
    def get(self, name: str, kept: bytes) -> bytes:
        return self._payloads[name][0]


class DeletesByPrefix(MemoryPayloads):
    def delete(self, name: str, kept: bytes) -> None:
        for stored in list(self._payloads):
            if stored.startswith(name):
                del self._payloads[stored]


class DeletesNothing(MemoryPayloads):
    def delete(self, name: str, kept: bytes) -> None: ...


class DeletesOnlyWithARow(MemoryPayloads):
    def put(self, name: str, data: bytes) -> bytes:
        super().put(name, data)
        return b"here"

    def delete(self, name: str, kept: bytes) -> None:
        if kept:
            super().delete(name, kept)


class MindsUnknown(MemoryPayloads):
    def delete(self, name: str, kept: bytes) -> None:
        del self._payloads[name]


class SameInAnyCase(MemoryPayloads):
    def put(self, name: str, data: bytes) -> bytes:
        return super().put(name.replace("_", "").replace("~", "-").lower(), data)


class ListsAll(MemoryPayloads):
    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        return super().names(before=datetime.max.replace(tzinfo=UTC), folder=folder)


class ListsOtherFolders(MemoryPayloads):
    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        return super().names(before=before)


class ListsNothing(MemoryPayloads):
    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        return ()


class TakesAnyName(MemoryPayloads):
    def put(self, name: str, data: bytes) -> bytes:
        self._payloads.setdefault(name, (data, datetime.now(UTC)))
        return (
            super().put(name, data)
            if name.isascii() and "." not in name and name.strip("/")
            else b""
        )


class OneDrawer(MemoryPayloads):
    """Keeps what was put last, in a place that all threads share."""

    drawer = b""

    def put(self, name: str, data: bytes) -> bytes:
        kept = super().put(name, data)
        self.drawer = data
        return kept

    def get(self, name: str, kept: bytes) -> bytes:
        super().get(name, kept)
        return self.drawer


class LooksFirst(FilePayloads):
    """Looks whether the name is free and writes then: of two at once both write."""

    def put(self, name: str, data: bytes) -> bytes:
        import time

        path = Path(self._storage.path(self._path(name)))
        if path.exists():
            return super().put(name, data)
        time.sleep(0.1)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        from checkpoints.payloads.digest import digest_record

        return digest_record(data)


BROKEN = [
    Overwrites,
    IgnoresTheSecond,
    RefusesToRepeat,
    CutsShort,
    LosesEmpty,
    GivesNothingForLost,
    SaysKeyError,
    DeletesByPrefix,
    DeletesNothing,
    DeletesOnlyWithARow,
    MindsUnknown,
    SameInAnyCase,
    ListsAll,
    ListsOtherFolders,
    ListsNothing,
    TakesAnyName,
    OneDrawer,
]


class Full(FilePayloads):
    """Files on a disk that is full while `full` says so, beginning with a put that the
    test chooses.
    """

    left: int | None = None
    """Puts that still succeed; None for no limit."""
    away = False

    def put(self, name: str, data: bytes) -> bytes:
        if Full.left is not None:
            if Full.left < 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            Full.left -= 1
        return super().put(name, data)

    def get(self, name: str, kept: bytes) -> bytes:
        if Full.away:
            raise PayloadsUnavailable("the cellar is closed")
        return super().get(name, kept)
