"""The content of a row's column for a payload. The ledger, the store and the rotation
of keys use this module, which does not know rows: callers pass names and columns.

A backend in the row determines the whole column. For others the column holds the result
of the backend, preceded by the last part of the name: bytes that are encrypted again
get a new name, because a name is never used for other bytes.
"""

from uuid import UUID

from checkpoints.payloads.base import check_name
from checkpoints.payloads.registry import backend
from orchestrator.engine.errors import InvalidValue, PayloadLost

# Stored payloads begin with the bytes 1 to 3 (`codec`, `keyring`), so none is taken for
# a record.
_ELSEWHERE = b"\x04"


def name_of(
    run: UUID,
    checkpoint: UUID,
    column: str,
) -> str:
    """Return the name of a checkpoint's payload, unless its column has another."""
    return f"{run}/{checkpoint}/{column}"


def put_payload(
    backend_name: str,
    name: str,
    data: bytes,
    *,
    under: str = "",
) -> bytes:
    """Put the bytes, under `name` or under the part `under` below it, and return the
    column. Raises what backends raise.
    """
    store = backend(backend_name)
    if store.in_row:
        return store.put(name, data)
    # The column begins with the part of the name that the row does not determine.
    part = under.encode("ascii")
    result = store.put(_below(name, under), data)
    return _ELSEWHERE + bytes([len(part)]) + part + result


def get_payload(
    backend_name: str,
    name: str,
    column: bytes,
) -> bytes:
    """Return the bytes that a column refers to. Raises `PayloadLost`,
    `PayloadsUnavailable`, `UnknownBackend`.
    """
    store = backend(backend_name)
    if store.in_row:
        return store.get(name, column)
    return store.get(*where(name, column))


def delete_payload(backend_name: str, name: str, column: bytes = b"") -> None:
    """Delete the bytes that a column stood for; without it, those under the name
    itself. They may be gone already.
    """
    store = backend(backend_name)
    # Bytes in the row go with the row.
    if store.in_row:
        return
    if column:
        store.delete(*where(name, column))
    else:
        store.delete(name, b"")


def where(name: str, column: bytes) -> tuple[str, bytes]:
    """Return, for the column of a backend outside the row, the name that the bytes have
    now, and the result of the backend. Raises `PayloadLost` if it is damaged.
    """
    if len(column) < 2 or column[:1] != _ELSEWHERE:
        raise _damaged(name)
    end = 2 + column[1]
    if end > len(column):
        raise _damaged(name)
    under = column[2:end].decode("ascii", "replace")
    try:
        return check_name(_below(name, under)), column[end:]
    except InvalidValue:
        raise _damaged(name) from None


def _damaged(name: str) -> PayloadLost:
    return PayloadLost(f"the row's record of payload {name} is damaged", name=name)


def _below(name: str, under: str) -> str:
    if not under:
        return name
    return f"{name}/{under}"
