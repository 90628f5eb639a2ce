"""Payloads as files of a folder, or as objects of any storage that Django's storage API
reaches.
"""

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
    """A backend that stores each payload in a separate file, and its size and SHA-256
    in the row.

    `storage` is an alias of Django's STORAGES, or a storage; `location` is a folder
    that is used instead. All files lie below `prefix`. In a folder they are written
    whole or not at all and are on the disk when `put` returns; with other storages this
    depends on the storage.
    """

    in_row = False

    def __init__(
        self,
        storage: str | Storage = "default",
        *,
        location: str | Path | None = None,
        prefix: str = "payloads",
    ) -> None:
        self._prefix = check_name(prefix)
        self._storage_or_alias: str | Storage = storage
        if location is not None:
            self._storage_or_alias = FileSystemStorage(location=str(location))

    @property
    def _storage(self) -> Storage:
        if isinstance(self._storage_or_alias, str):
            return storages[self._storage_or_alias]
        return self._storage_or_alias

    def put(self, name: str, data: bytes) -> bytes:
        storage = self._storage
        path = self._path(name)
        try:
            if isinstance(storage, FileSystemStorage):
                file = Path(storage.path(path))
                # This is the name of a payload below this one, so the sweep finds what
                # a crash left.
                leftover = f"{file.name.removesuffix(_END)}new-{{}}.{_END}"
                local_files.write_file(file, data, leftover=leftover)
            else:
                _save(storage, path, data)
        except FileExistsError:
            self._must_hold(name, data)
        return digest_record(data)

    def get(self, name: str, kept: bytes) -> bytes:
        return checked(name, self._read(name), kept)

    def delete(self, name: str, kept: bytes) -> None:
        storage = self._storage
        path = self._path(name)
        if isinstance(storage, FileSystemStorage):
            local_files.remove_file(Path(storage.path(path)))
        else:
            storage.delete(path)

    def names(self, *, before: datetime, folder: str = "") -> Iterable[str]:
        storage = self._storage
        if isinstance(storage, FileSystemStorage):
            files = local_files.older_files(
                Path(storage.path(self._prefix)), than=before.timestamp(), folder=folder
            )
        else:
            files = _older(storage, self._prefix, than=before, folder=folder)
        return _names_of(files)

    def _path(self, name: str) -> str:
        """Return the path of a payload's file, in one folder for each run. No part of a
        name holds a dot, so dots can separate the parts in the name of a file.
        """
        first, *rest = check_name(name).split("/")
        return f"{self._prefix}/{first}/{'.'.join([*rest, _END])}"

    def _read(self, name: str) -> bytes:
        try:
            with self._storage.open(self._path(name), "rb") as file:
                return bytes(file.read())
        except FileNotFoundError:
            raise PayloadLost(f"payload {name} is not there", name=name) from None
        except OSError as error:
            # That a file cannot be read now proves no loss: the run waits and tries
            # again.
            raise PayloadsUnavailable(
                f"payload {name} cannot be read: {error}", name=name
            ) from error

    def _must_hold(self, name: str, data: bytes) -> None:
        """Raise `PayloadTaken` unless the name, which is taken, holds the same bytes:
        then an earlier put was not acknowledged.
        """
        if self._read(name) != data:
            raise PayloadTaken(f"other bytes are kept as {name}", name=name)
        # The earlier put may have died before the folder's new entry was on the disk.
        if isinstance(self._storage, FileSystemStorage):
            local_files.sync_folder(Path(self._storage.path(self._path(name))).parent)


def _names_of(files: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the names of payloads from folder and name of each file."""
    for folder, file in files:
        # Other files in the folder are not ours.
        if file.endswith(_END):
            parts = file.split(".")[:-1]
            yield "/".join([folder, *parts])


def _save(
    storage: Storage,
    path: str,
    data: bytes,
) -> None:
    """Save a new file. Raises `FileExistsError` if the path is taken. A storage that
    cannot refuse a path saves under another name.
    """
    if storage.exists(path):
        raise FileExistsError(path)
    # Another process may take the path in the meantime; the storage then chooses
    # another one.
    saved = storage.save(path, ContentFile(data))
    if saved != path:
        storage.delete(saved)
        raise FileExistsError(path)


def _older(
    storage: Storage,
    root: str,
    *,
    than: datetime,
    folder: str,
) -> Iterator[tuple[str, str]]:
    """Yield folder and name of each file that was saved before a moment."""
    folders = [folder] if folder else _listed(storage, root)[0]
    for name in folders:
        for file in _listed(storage, f"{root}/{name}")[1]:
            at = storage.get_modified_time(f"{root}/{name}/{file}")
            if timezone.is_naive(at):
                at = timezone.make_aware(at, UTC)
            if at < than:
                yield name, file


def _listed(storage: Storage, path: str) -> tuple[list[str], list[str]]:
    """Return the folders and the files in a folder; none if it does not exist."""
    try:
        return storage.listdir(path)
    except FileNotFoundError:
        return [], []
