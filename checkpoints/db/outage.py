"""The distinction between an outage of the database or the disk and an error in a
request.
"""

import errno

from django.db import Error, InterfaceError, OperationalError

RETRY_SECONDS = 5
"""The seconds after which a client may try again."""

_SQLITE = frozenset(
    {5, 6, 7, 8, 10, 13, 14, 15},
)
"""Primary result codes: BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL.
"""
_POSTGRESQL = ("08", "25006", "40001", "40P01", "53", "55P03", "57014", "57P", "58030")
"""SQLSTATE: no connection, read only, a deadlock, out of disk, memory or connections, a
lock or a statement that took too long, a server that stops or starts, an I/O error.
"""
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})


def is_outage(error: BaseException | None) -> bool:
    """Return whether an error is an outage: a database that is locked, full, gone or
    read-only, or a full disk. Any other error is a defect of this product.
    """
    if isinstance(error, OSError):
        return error.errno in _DISK
    if not isinstance(error, Error):
        return False
    # Django's error wraps that of the driver, which has the code.
    cause = error.__cause__ or error
    code = getattr(cause, "sqlite_errorcode", None)
    if code is not None:
        # An extended result code has the primary one in its lowest byte.
        primary_code = code & 0xFF
        return primary_code in _SQLITE
    state = getattr(cause, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_POSTGRESQL)
    # Without a code there was no answer: the connection is gone, or was never made.
    return isinstance(error, OperationalError | InterfaceError)
