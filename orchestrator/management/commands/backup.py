"""`manage.py backup FILE`: copy a SQLite database consistently while it is in use, and
check the copy.
"""

import os
import sqlite3
from argparse import ArgumentParser
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connection

from checkpoints.conf import conf
from orchestrator import database_file
from orchestrator.management import command_line


class Command(command_line.DatabaseCommand):
    """Ends with 1 if no copy was made; then there is no file."""

    help = (
        "Copy the SQLite database while it is in use, and check the copy. "
        "Names what else belongs to a backup."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", help="the copy; it must not exist")

    def handle(self, *args: Any, **options: Any) -> None:
        file = Path(options["file"])
        if connection.vendor != "sqlite":
            raise CommandError(_hint_for_a_server())
        if file.exists():
            raise CommandError(f"{file} exists; name a new file")
        # In the same folder, for a link cannot lead to another file system.
        part = file.with_name(f".{file.name}.part")
        try:
            _copy_to(part)
            tables = _check(part)
            # Unlike a rename, a link never replaces a file that was created in the
            # meantime.
            os.link(part, file)
        except (OSError, sqlite3.Error) as error:
            raise CommandError(f"no copy was made: {error}") from error
        finally:
            with suppress(OSError):
                part.unlink()
        self.stdout.write(f"{file}: {tables} tables, whole and readable.")
        for line in _other_parts_of_backup():
            self.stdout.write(line)


def _copy_to(part: Path) -> None:
    """Copy the database as it is at one moment. Writers are not blocked."""
    connection.ensure_connection()
    part.unlink(missing_ok=True)
    # SQLite would create it readable by others, who must ask to see values.
    part.touch(mode=database_file.MODE, exist_ok=False)
    with closing(sqlite3.connect(part)) as copy:
        connection.connection.backup(copy)
        # One file, without a journal beside it that would have to be copied too.
        copy.execute("PRAGMA journal_mode=DELETE")


def _check(part: Path) -> int:
    """Reopen the copy, and return how many tables it has. Raises `sqlite3.Error` if it
    is not whole.
    """
    with closing(sqlite3.connect(part)) as copy:
        (answer,) = copy.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != "ok":
            raise sqlite3.DatabaseError(f"the copy is not whole: {answer}")
        (tables,) = copy.execute(
            "SELECT count(*) FROM sqlite_master WHERE type = 'table'"
        ).fetchone()
    if not tables:
        raise sqlite3.DatabaseError("the copy is empty")
    return int(tables)


def _hint_for_a_server() -> str:
    name = connection.settings_dict["NAME"]
    lines = [
        "this command copies SQLite; the copy of a PostgreSQL database is made "
        "by its own program:",
        f"  pg_dump --format=custom --file=FILE {name}",
        *_other_parts_of_backup(),
    ]
    return "\n".join(lines)


def _other_parts_of_backup() -> list[str]:
    """Return the lines about what else belongs to a backup beside the database."""
    lines = [
        "Not in it, and needed with it; copy these after the database:",
        f"  uploads: {settings.MEDIA_ROOT}",
    ]
    for name in sorted(conf().payloads):
        lines.append(
            f"  payloads: what the backend {name!r} of COUNTERSIGN['PAYLOADS'] keeps"
        )
    if conf().audit_head_file:
        lines.append(
            f"  heads of the audit log: {conf().audit_head_file} "
            "(keep the newest; never put it back)"
        )
    lines.append(
        "  keys: SECRET_KEY and all keys of COUNTERSIGN, "
        "at another place than the copies"
    )
    lines.append(
        "When a copy was put back: manage.py restored --reason '...' "
        "before any worker starts."
    )
    return lines
