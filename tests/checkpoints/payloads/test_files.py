"""Payloads in files: whole or not at all, on the disk when `put` returns, and known
again when they are read.
"""

import errno
import os
import resource
import stat
import subprocess
import sys
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import FileSystemStorage, InMemoryStorage

from checkpoints.payloads import FilePayloads
from orchestrator.engine.errors import PayloadLost, PayloadsUnavailable, TamperedRow

NAME = "0190/0191/change"


def _file(root: Path) -> Path:
    (file,) = [path for path in root.rglob("*") if path.is_file()]
    return file


def test_a_payload_that_was_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    files = FilePayloads(location=tmp_path)
    reference = files.put(NAME, b"0123456789")
    _file(tmp_path).write_bytes(b"01234")
    with pytest.raises(
        PayloadLost, match=f"payload {NAME} has 5 bytes, not the 10"
    ) as refused:
        files.get(NAME, reference)
    assert refused.value.facts == {"name": NAME}
    assert isinstance(refused.value, TamperedRow)


def test_a_payload_that_was_changed_is_refused_by_name(tmp_path: Path) -> None:
    files = FilePayloads(location=tmp_path)
    reference = files.put(NAME, b"0123456789")
    _file(tmp_path).write_bytes(b"0123456780")
    with pytest.raises(PayloadLost, match="holds other bytes"):
        files.get(NAME, reference)


def test_payloads_that_changed_places_are_refused(tmp_path: Path) -> None:
    files = FilePayloads(location=tmp_path)
    references = (
        files.put("0190/0191/change", b"mine"),
        files.put("0190/0192/change", b"your"),
    )
    left, right = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    left.rename(tmp_path / "aside")
    right.rename(left)
    (tmp_path / "aside").rename(right)
    for name, record in zip(
        ("0190/0191/change", "0190/0192/change"), references, strict=True
    ):
        with pytest.raises(PayloadLost):
            files.get(name, record)


@pytest.mark.parametrize("kept", [b"", b"\x01short", b"\x02" + bytes(40)])
def test_a_damaged_record_in_the_row_is_refused(tmp_path: Path, kept: bytes) -> None:
    files = FilePayloads(location=tmp_path)
    files.put(NAME, b"whole")
    with pytest.raises(PayloadLost, match="record"):
        files.get(NAME, kept)


def test_a_place_that_cannot_be_read_is_no_lost_payload(tmp_path: Path) -> None:
    files = FilePayloads(location=tmp_path)
    reference = files.put(NAME, b"whole")
    path = _file(tmp_path)
    path.unlink()
    path.mkdir()  # reading it is an OSError for root too
    with pytest.raises(PayloadsUnavailable, match=NAME):
        files.get(NAME, reference)


def test_files_lie_below_the_prefix_in_a_folder_for_each_run(tmp_path: Path) -> None:
    FilePayloads(location=tmp_path, prefix="kept").put(NAME, b"x")
    assert _file(tmp_path).relative_to(tmp_path).parts == (
        "kept",
        "0190",
        "0191.change.payload",
    )


def test_others_can_read_neither_files_nor_folders(tmp_path: Path) -> None:
    FilePayloads(location=tmp_path).put(NAME, b"x")
    path = _file(tmp_path)
    modes = [
        stat.S_IMODE(place.stat().st_mode)
        for place in (path, path.parent, path.parent.parent)
    ]
    assert [mode & 0o007 for mode in modes] == [0, 0, 0]


def test_file_and_folder_are_on_the_disk_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts: list[str] = []
    fsync = os.fsync
    link = os.link

    def synced(handle: int) -> None:
        acts.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def linked(*args: Any) -> None:
        acts.append("in place")
        link(*args)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "link", linked)
    files = FilePayloads(location=tmp_path)
    files.put(NAME, b"x")
    assert acts == [
        "folder",
        "folder",
        "file",
        "in place",
        "folder",
    ]  # two folders are new
    acts.clear()
    files.put("0190/0192/change", b"x")
    assert acts == ["file", "in place", "folder"]
    acts.clear()
    files.put("0190/0192/change", b"x")
    assert acts[-1] == "folder"  # the earlier put may have died before it got there


def test_a_full_disk_leaves_nothing_under_the_name(tmp_path: Path) -> None:
    """A real refusal of the kernel: a process that may write files of 4 KiB only."""
    files = FilePayloads(location=tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError, match="too large") as refused:
            files.put(NAME, bytes(10_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert refused.value.errno == errno.EFBIG
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert files.get(NAME, files.put(NAME, bytes(10_000))) == bytes(10_000)


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_under_the_name(
    tmp_path: Path,
) -> None:
    died = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path), NAME],
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -9, died.stderr
    files = FilePayloads(location=tmp_path)
    left = _file(tmp_path)
    later = datetime.now(UTC) + timedelta(hours=1)
    assert files.get(NAME, files.put(NAME, b"the next one")) == b"the next one"
    names = sorted(files.names(before=later))
    assert len(names) == 2
    assert names[0] == NAME
    assert names[1].startswith(f"{NAME}/new-")
    files.delete(names[1], b"")
    assert not left.exists()


_KILLED = textwrap.dedent("""
    import os, signal, sys
    from django.conf import settings
    settings.configure()
    from checkpoints.payloads.files import FilePayloads
    def kill_at_a_file(handle):
        if os.fstat(handle).st_size:
            os.kill(os.getpid(), signal.SIGKILL)
    os.fsync = kill_at_a_file
    # Folders have a size too on some file systems; only the payload's own file must be what kills.
    from checkpoints.payloads import local_files
    local_files.sync_folder = lambda folder: None
    FilePayloads(location=sys.argv[1]).put(sys.argv[2], b"half a payload")
""")


def test_the_last_payload_of_a_run_takes_its_folder_with_it(tmp_path: Path) -> None:
    files = FilePayloads(location=tmp_path)
    files.put("0190/0191/change", b"x")
    files.put("0190/0192/change", b"x")
    files.delete("0190/0191/change", b"")
    assert (tmp_path / "payloads" / "0190").is_dir()
    files.delete("0190/0192/change", b"")
    assert not (tmp_path / "payloads" / "0190").exists()


def test_files_of_others_in_the_folder_are_not_listed(tmp_path: Path) -> None:
    files = FilePayloads(location=tmp_path)
    files.put(NAME, b"x")
    (tmp_path / "payloads" / "0190" / "notes.txt").write_text("mine")
    (tmp_path / "payloads" / "readme").write_text("mine")
    (tmp_path / "payloads" / "0190" / "link.payload").symlink_to(_link(tmp_path))
    assert list(files.names(before=datetime.now(UTC) + timedelta(hours=1))) == [NAME]


def _link(tmp_path: Path) -> Path:
    target = tmp_path / "elsewhere"
    target.write_text("x")
    return target


def test_an_alias_of_djangos_storages_names_the_place(
    settings: Any, tmp_path: Path
) -> None:
    local = {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(tmp_path)},
    }
    settings.STORAGES = {**settings.STORAGES, "cellar": local}
    FilePayloads("cellar").put(NAME, b"x")
    assert _file(tmp_path).name == "0191.change.payload"


@pytest.mark.parametrize("storage", [FileSystemStorage, InMemoryStorage])
def test_a_storage_itself_can_be_given(
    storage: Any, tmp_path: Path, settings: Any
) -> None:
    settings.MEDIA_ROOT = str(tmp_path)
    files = FilePayloads(storage())
    reference = files.put(NAME, b"x")
    assert files.get(NAME, reference) == b"x"
