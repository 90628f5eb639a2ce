"""Whether an error says that the database or the disk cannot serve now, rather than that what was asked is wrong."""

import errno

from django.db import Error, InterfaceError, OperationalError

RETRY_SECONDS = 5
"""After how long whoever was told of an outage may ask again."""

_SQLITE = frozenset({5, 6, 7, 8, 10, 13, 14, 15})
"""Primary result codes: BUSY, LOCKED, NOMEM, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL."""
_POSTGRESQL = ("08", "25006", "40001", "40P01", "53", "55P03", "57014", "57P", "58030")
"""SQLSTATE: no connection, read only, a deadlock, out of disk, memory or connections, a lock or a statement that took
too long, a server that stops or starts, an I/O error.
"""
_DISK = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS})


def is_outage(error: BaseException | None) -> bool:
    """True for a database that is locked, full, gone or read-only, and for a full disk; False for a defect of ours."""
    if isinstance(error, OSError):
        return error.errno in _DISK
    if not isinstance(error, Error):
        return False
    cause = error.__cause__ or error
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    if code is not None:
        return code & 0xFF in _SQLITE
    if state is not None:
        return str(state).startswith(_POSTGRESQL)
    # Without a code nobody answered: the connection is gone, or was never made.
    return isinstance(error, OperationalError | InterfaceError)
