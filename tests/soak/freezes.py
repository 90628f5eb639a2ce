"""Freezes inside transactions: whoever soaks asks for one, and the next process of a
cluster that has done a statement in a transaction stops itself there (SIGSTOP), with
its locks in its hands. Whoever asked wakes it up.
"""

import os
import signal
from pathlib import Path
from typing import Any

from django.db.backends.utils import CursorWrapper

from checkpoints.db.drivers import sqlite

FOLDER = "COUNTERSIGN_SOAK_FREEZES"
"""The variable that names the folder in which it is asked for."""
_ASKED = "asked"
_FROZEN = "frozen-"


def arm(folder: Path) -> None:
    """Let this process, and those forked from it, freeze where it is asked for. What is
    one statement is not watched: it holds no lock while its process stands still.
    """
    run = CursorWrapper._execute_with_wrappers
    do = sqlite._do

    def statement(cursor: Any, *arguments: Any, **named: Any) -> Any:
        result = run(cursor, *arguments, **named)
        if cursor.db.in_atomic_block:
            _freeze(folder)
        return result

    def doing(link: Any, sql: str, params: Any = ()) -> Any:
        result = do(link, sql, params)
        if sql not in ("COMMIT", "ROLLBACK"):
            _freeze(folder)
        return result

    CursorWrapper._execute_with_wrappers = statement
    sqlite._do = doing


def _freeze(folder: Path) -> None:
    try:
        # Of all that are asked one has it.
        (folder / _ASKED).rename(folder / f"{_FROZEN}{os.getpid()}")
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGSTOP)


def ask(folder: Path) -> None:
    """Ask the process that is next in a transaction to freeze there."""
    (folder / _ASKED).touch()


def take_back(folder: Path) -> None:
    """Nobody is asked any more."""
    (folder / _ASKED).unlink(missing_ok=True)


def taken(folder: Path) -> list[int]:
    """The processes that have frozen since this was last asked."""
    ordered = list(folder.glob(f"{_FROZEN}*"))
    for file in ordered:
        file.unlink()
    return [int(file.name.removeprefix(_FROZEN)) for file in ordered]
