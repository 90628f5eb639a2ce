"""Files of a folder on this machine that are written once: whole or not at all, and on
the disk when the write returns.

`FilePayloads` uses it for storages that are folders. It knows only paths, no names of
payloads.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

# Payloads hold the states of runs, which other users of the machine must not read.
FILE_MODE = 0o600
FOLDER_MODE = 0o700
_TRIES = 3


def write_file(path: Path, data: bytes, *, leftover: str) -> None:
    """Write a new file. Raises `FileExistsError` if the path is taken, `OSError` if it
    cannot be written.

    `leftover` with a `{}` is the name under which the file is first written; a file
    that a crash leaves behind has that name.
    """
    for _ in range(_TRIES):
        _make(path.parent)
        try:
            _write(path, data, path.with_name(leftover.format(uuid4().hex)))
        except FileNotFoundError:
            # Another process removed the folder while it was empty.
            continue
        return
    raise FileNotFoundError(path.parent)


def _write(path: Path, data: bytes, first: Path) -> None:
    handle = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            # Before it has its name, which must never stand for bytes that a power cut
            # took.
            os.fsync(file.fileno())
        # Unlike a rename, a link never replaces an existing file.
        os.link(first, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(first)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Return when the folder's entries are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_file(path: Path) -> None:
    """Remove a file, and its folder if that is empty then. A missing file is no
    error.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)
    # The folder stays while it holds other payloads of the run.
    with suppress(OSError):
        os.rmdir(path.parent)


def older_files(
    root: Path, *, than: float, folder: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield folder and name of each file one level below `root` that was written before
    `than` (seconds since the epoch); with `folder` of that one alone.
    """
    folders = [folder] if folder else _folders(root)
    for name in folders:
        for entry in _entries(root / name):
            # Another process may remove it in the meantime.
            with suppress(FileNotFoundError):
                if _is_older_file(entry, than):
                    yield name, entry.name


def _folders(root: Path) -> list[str]:
    return [
        entry.name for entry in _entries(root) if entry.is_dir(follow_symlinks=False)
    ]


def _is_older_file(entry: "os.DirEntry[str]", than: float) -> bool:
    if not entry.is_file(follow_symlinks=False):
        return False
    return entry.stat(follow_symlinks=False).st_mtime < than


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _make(folder: Path) -> None:
    """Make the folder and what is missing above it, each on the disk before the
    next.
    """
    if folder.is_dir():
        return
    _make(folder.parent)
    with suppress(FileExistsError):
        os.mkdir(folder, FOLDER_MODE)
    sync_folder(folder.parent)
