"""Keeps the file of a SQLite database readable for the user of the process alone:
everybody else reads its content through pages and API, which check permissions.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

MODE = 0o600


def keep_private(sender: Any, connection: Any, **_: Any) -> None:
    """Remove the rights of other users from a database's file; SQLite gives its
    journals the same rights. A file that belongs to another user stays as it is.
    """
    if connection.vendor != "sqlite":
        return
    file = Path(str(connection.settings_dict["NAME"]))
    # A database in memory has no file.
    with suppress(OSError):
        if file.stat().st_mode & 0o077:
            os.chmod(file, MODE)
