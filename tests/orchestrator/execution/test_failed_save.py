"""Which errors of a save say that the storage refused, so that nothing was written, and
which say nothing of that.
"""

import sqlite3

import pytest
from django.db import DataError, Error, IntegrityError, InterfaceError, OperationalError

from orchestrator.engine.errors import SaveFailed
from orchestrator.execution.failed_save import is_refusal


def caused(
    *, sqlite: int | None = None, postgresql: str | None = None
) -> OperationalError:
    """An error of Django's, as it comes from one of a driver."""
    driver = sqlite3.OperationalError("of the driver")
    if sqlite is not None:
        driver.sqlite_errorcode = sqlite
    if postgresql is not None:
        driver.sqlstate = postgresql  # type: ignore[attr-defined]
    error = OperationalError("of Django")
    error.__cause__ = driver
    return error


@pytest.mark.parametrize(
    "error",
    [SaveFailed("full"), DataError("too long"), IntegrityError("taken")],
    ids=repr,
)
def test_a_value_or_row_that_is_not_taken_is_refused(error: BaseException) -> None:
    assert is_refusal(error)


@pytest.mark.parametrize(
    "code",
    [
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_READONLY_DBMOVED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_TOOBIG,
    ],
)
def test_sqlite_refuses_where_its_disk_is_full_broken_or_read_only_however_closely_it_says_so(
    code: int,
) -> None:
    assert is_refusal(caused(sqlite=code))


@pytest.mark.parametrize("state", ["25006", "53100", "53200", "54000", "58030"])
def test_postgresql_refuses_where_it_is_read_only_out_of_room_or_cannot_write(
    state: str,
) -> None:
    assert is_refusal(caused(postgresql=state))


@pytest.mark.parametrize(
    "error",
    [
        caused(sqlite=sqlite3.SQLITE_BUSY),
        caused(sqlite=sqlite3.SQLITE_BUSY_SNAPSHOT),
        caused(sqlite=sqlite3.SQLITE_CORRUPT),
        caused(postgresql="08006"),
        caused(postgresql="40001"),
        caused(postgresql="53300"),
        caused(postgresql="57P01"),
        caused(),
        OperationalError("the server closed the connection"),
        InterfaceError("the connection is closed"),
    ],
    ids=lambda error: (
        f"{error.__cause__!r} {vars(error.__cause__) if error.__cause__ else error}"
    ),
)
def test_a_commit_that_may_have_happened_or_may_be_tried_again_is_no_refusal(
    error: Error,
) -> None:
    assert not is_refusal(error)
