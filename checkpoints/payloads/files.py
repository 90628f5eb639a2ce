"""Payloads as files of a folder, or as objects of whatever Django's storage API reaches."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, Storage, storages
from django.utils import timezone

from checkpoints.payloads import local_files
from checkpoints.payloads.base import check_name
from checkpoints.payloads.digest import checked, digest_record
from orchestrator.engine.errors import PayloadLost, PayloadsUnavailable, PayloadTaken

_END = "payload"


class FilePayloads:
    """Keeps each payload in a file of its own; the row keeps its size and SHA-256.

    `storage` is an alias of Django's STORAGES, or a storage; `location` is a folder and takes its place. All files lie
    below `prefix`. In a folder they are written whole or not at all and are on the disk when `put` returns; with other
    storages that is the storage's promise.
    """

    in_row = False

    def __init__(
        self, storage: str | Storage = "default", *, location: str | Path | None = None, prefix: str = "payloads"
    ) -> None:
        self._prefix = check_name(prefix)
        self._given: str | Storage = FileSystemStorage(location=str(location)) if location is not None else storage

    @property
    def _storage(self) -> Storage:
        return storages[self._given] if isinstance(self._given, str) else self._given

    def put(self, name: str, data: bytes) -> bytes:
        storage, path = self._storage, self._path(name)
        try:
            if isinstance(storage, FileSystemStorage):
                file = Path(storage.path(path))
                local_files.write_file(file, data, leftover=f"{file.name.removesuffix(_END)}new-{{}}.{_END}")
            else:
                _save(storage, path, data)
        except FileExistsError:
            self._must_hold(name, data)
        return digest_record(data)

    def get(self, name: str, kept: bytes) -> bytes:
        return checked(name, self._read(name), kept)

    def delete(self, name: str, kept: bytes) -> None:
        storage, path = self._storage, self._path(name)
        if isinstance(storage, FileSystemStorage):
            local_files.remove_file(Path(storage.path(path)))
        else:
            storage.delete(path)

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        storage = self._storage
        if isinstance(storage, FileSystemStorage):
            files = local_files.older_files(Path(storage.path(self._prefix)), than=before.timestamp(), folder=folder)
        else:
            files = _older(storage, self._prefix, than=before, folder=folder)
        return ("/".join([folder, *file.split(".")[:-1]]) for folder, file in files if file.endswith(_END))

    def _path(self, name: str) -> str:
        """One folder a run. No part of a name holds a dot, so dots can stand for what is no folder."""
        first, *rest = check_name(name).split("/")
        return f"{self._prefix}/{first}/{'.'.join([*rest, _END])}"

    def _read(self, name: str) -> bytes:
        try:
            with self._storage.open(self._path(name), "rb") as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise PayloadLost(f"payload {name} is not there", name=name) from None
        except OSError as error:
            raise PayloadsUnavailable(f"payload {name} cannot be read: {error}", name=name) from error

    def _must_hold(self, name: str, data: bytes) -> None:
        """The name is taken: by the same bytes where an earlier put was not acknowledged."""
        if self._read(name) != data:
            raise PayloadTaken(f"other bytes are kept as {name}", name=name)
        if isinstance(self._storage, FileSystemStorage):
            local_files.sync_folder(Path(self._storage.path(self._path(name))).parent)


def _save(storage: Storage, path: str, data: bytes) -> None:
    """Raises `FileExistsError` where the path is taken. A storage that cannot refuse one saves under another name."""
    if storage.exists(path):
        raise FileExistsError(path)
    saved = storage.save(path, ContentFile(data))
    if saved != path:
        storage.delete(saved)
        raise FileExistsError(path)


def _older(storage: Storage, root: str, *, than: datetime, folder: str) -> Iterator[tuple[str, str]]:
    for one in [folder] if folder else _listed(storage, root)[0]:
        for file in _listed(storage, f"{root}/{one}")[1]:
            at = storage.get_modified_time(f"{root}/{one}/{file}")
            if (timezone.make_aware(at, UTC) if timezone.is_naive(at) else at) < than:
                yield one, file


def _listed(storage: Storage, path: str) -> tuple[list[str], list[str]]:
    """The folders and the files there; none where nothing is there."""
    try:
        return storage.listdir(path)
    except FileNotFoundError:
        return [], []
