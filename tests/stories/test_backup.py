"""The steps of docs/backup.md: a backup, effects after it, the copy put back, and
nothing is repeated in silence.
"""

import io
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from checkpoints.models import Run
from orchestrator import runs
from tests.support import cast, paid_claims, run_actions
from tests.support.small_graphs import advanced

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor != "sqlite", reason="the command copies the file of SQLite"
    ),
]


@pytest.fixture(autouse=True)
def _nothing_paid() -> Iterator[None]:
    paid_claims.PAID.clear()
    yield
    paid_claims.PAID.clear()


def _backup(file: Path) -> str:
    out = io.StringIO()
    call_command("backup", str(file), stdout=out)
    return out.getvalue()


def _put_back(file: Path) -> None:
    connection.ensure_connection()
    with closing(sqlite3.connect(file)) as copy:
        copy.backup(connection.connection)


def test_nothing_is_repeated_in_silence_after_a_copy_was_put_back(
    tmp_path: Path, people: cast.People
) -> None:
    run = advanced(paid_claims.claim("backed-up"))
    signer = run_actions.reviewer(people.reviewer)
    run_actions.sign(run, signer, ["approve"])
    _backup(tmp_path / "copy.sqlite3")
    runs.advance(run.id)
    assert len(paid_claims.PAID) == 1
    _put_back(tmp_path / "copy.sqlite3")
    assert Run.objects.get(id=run.id).status == "queued"
    call_command("restored", "--reason", "the disk broke", stdout=io.StringIO())
    runs.advance(run.id)
    assert len(paid_claims.PAID) == 1
    assert Run.objects.get(id=run.id).error_code == "database_restored"
    call_command("verify_runs", stdout=io.StringIO())


def test_a_copy_without_restored_would_pay_again(
    tmp_path: Path, people: cast.People
) -> None:
    """Otherwise the test above could not fail."""
    run = advanced(paid_claims.claim("backed-up"))
    run_actions.sign(run, run_actions.reviewer(people.reviewer), ["approve"])
    _backup(tmp_path / "copy.sqlite3")
    runs.advance(run.id)
    _put_back(tmp_path / "copy.sqlite3")
    runs.advance(run.id)
    assert len(paid_claims.PAID) == 2


def test_a_copy_holds_what_was_committed_and_is_one_private_file(
    tmp_path: Path,
) -> None:
    run = advanced(paid_claims.claim("backed-up"))
    _backup(tmp_path / "copy.sqlite3")
    with closing(sqlite3.connect(tmp_path / "copy.sqlite3")) as copy:
        ((key,),) = copy.execute("SELECT key FROM checkpoints_run").fetchall()
    assert key == run.key
    assert [file.name for file in tmp_path.iterdir()] == ["copy.sqlite3"]
    assert stat.S_IMODE((tmp_path / "copy.sqlite3").stat().st_mode) == 0o600


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "copy.sqlite3"
    file.write_text("precious")
    with pytest.raises(CommandError, match="exists"):
        _backup(file)
    assert file.read_text() == "precious"


def test_where_no_copy_can_be_written_it_is_said_and_nothing_is_left(
    tmp_path: Path,
) -> None:
    with pytest.raises(CommandError, match="no copy was made"):
        _backup(tmp_path / "nowhere" / "copy.sqlite3")
    assert list(tmp_path.iterdir()) == []


def test_it_names_what_else_belongs_to_a_backup(tmp_path: Path, settings: Any) -> None:
    settings.MEDIA_ROOT = tmp_path / "files"
    text = _backup(tmp_path / "copy.sqlite3")
    assert str(tmp_path / "files") in text
    assert "SECRET_KEY" in text
    assert "manage.py restored" in text
