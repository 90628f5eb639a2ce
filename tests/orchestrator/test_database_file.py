"""What the product writes to the disk is for its own user alone."""

import stat
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.mail import EmailMessage

from checkpoints import uploads
from checkpoints.models import Upload
from checkpoints.payloads import local_files
from orchestrator import database_file
from orchestrator.demo.claims.mail import EmailBackend


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_file_of_a_database_is_taken_from_others(tmp_path: Path) -> None:
    file = tmp_path / "some.sqlite3"
    file.touch(mode=0o644)
    file.chmod(0o644)
    database_file.keep_private(
        None, SimpleNamespace(vendor="sqlite", settings_dict={"NAME": file})
    )
    assert _mode(file) == 0o600
    database_file.keep_private(
        None, SimpleNamespace(vendor="sqlite", settings_dict={"NAME": ":memory:"})
    )


def test_payload_files_and_their_folders_are_private(tmp_path: Path) -> None:
    local_files.write_file(tmp_path / "run" / "one", b"1", leftover=".{}")
    assert _mode(tmp_path / "run") == 0o700
    assert _mode(tmp_path / "run" / "one") == 0o600


def test_letters_are_private(tmp_path: Path, settings: Any) -> None:
    settings.EMAIL_FILE_PATH = tmp_path / "letters"
    EmailBackend().send_messages(
        [EmailMessage("Hello", "Dear Marta", "a@example.com", ["b@example.com"])]
    )
    (letter,) = settings.EMAIL_FILE_PATH.iterdir()
    assert _mode(settings.EMAIL_FILE_PATH) == 0o700
    assert _mode(letter) == 0o600


@pytest.mark.django_db
def test_uploads_are_private(tmp_path: Path, settings: Any) -> None:
    settings.MEDIA_ROOT = tmp_path / "files"
    ref = uploads.save_upload(BytesIO(b"1"), name="rows.csv", by=None)
    file = settings.MEDIA_ROOT / Upload.objects.get(id=ref["file"]).stored_as
    assert _mode(file) == 0o600
    assert _mode(file.parent) == 0o700
