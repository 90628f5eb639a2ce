"""The database that tests find: one process of a run of tests migrates, each other
copies what that one left.
"""

import fcntl
import shutil
from pathlib import Path

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection

TEMPLATE = "countersign_template"


def prepare(folder: Path) -> None:
    """Give this process its database, of the name that it has in a run of tests.
    `folder` is one to all processes of the run, and goes with the run; so does the
    database.
    """
    with (folder / f"{TEMPLATE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = folder / f"{TEMPLATE}.made"
        name = str(connection.creation._get_test_db_name())
        if made.exists():
            _copy(folder / TEMPLATE, TEMPLATE, Path(name), name)
            settings.DATABASES[DEFAULT_DB_ALIAS]["NAME"] = connection.settings_dict[
                "NAME"
            ] = name
        else:
            connection.creation.create_test_db(
                verbosity=0, autoclobber=True, serialize=False
            )
            connection.close()
            _copy(Path(name), name, folder / TEMPLATE, TEMPLATE)
            made.touch()


def _copy(file: Path, name: str, other_file: Path, other: str) -> None:
    """A database that nobody is connected to, under another name: a file on SQLite."""
    if connection.vendor == "sqlite":
        shutil.copyfile(file, other_file)
    else:
        quote = connection.ops.quote_name
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {quote(other)} TEMPLATE {quote(name)}")
