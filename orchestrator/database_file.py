"""The file of a SQLite database is for the user of the process alone: others must ask permission for what is in it."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

MODE = 0o600


def keep_private(sender: Any, connection: Any, **_: Any) -> None:
    """Take from a database's file what it gives to others; SQLite gives its journals the same rights. A file of another
    user stays as it is.
    """
    if connection.vendor != "sqlite":
        return
    file = Path(str(connection.settings_dict["NAME"]))
    with suppress(OSError):
        if file.stat().st_mode & 0o077:
            os.chmod(file, MODE)
