"""What a row's column keeps of a payload. The ledger, the store and the rotation of keys go through here; rows
themselves are not known: callers give names and columns.

A backend in the row gives all of the column. For others it is what they gave, behind the last part of the name: bytes
that are encrypted anew get a new name, for a name is never used for other bytes.
"""

from uuid import UUID

from checkpoints.payloads.registry import backend
from orchestrator.engine.errors import PayloadLost

_ELSEWHERE = b"\x04"


def name_of(run: UUID, checkpoint: UUID, column: str) -> str:
    """The name of a checkpoint's payload, as far as its column says no other."""
    return f"{run}/{checkpoint}/{column}"


def put_payload(backend_name: str, name: str, data: bytes, *, under: str = "") -> bytes:
    """Put the bytes, under `name` or under a part of its own below it. Gives the column. Raises what backends raise."""
    one = backend(backend_name)
    if one.in_row:
        return one.put(name, data)
    return _ELSEWHERE + bytes([len(under)]) + under.encode("ascii") + one.put(_below(name, under), data)


def get_payload(backend_name: str, name: str, column: bytes) -> bytes:
    """The bytes that a column stands for. Raises `PayloadLost`, `PayloadsUnavailable`, `UnknownBackend`."""
    one = backend(backend_name)
    return one.get(name, column) if one.in_row else one.get(*where(name, column))


def delete_payload(backend_name: str, name: str, column: bytes = b"") -> None:
    """Delete the bytes that a column stood for; without it, those under the name itself. They may be gone already."""
    one = backend(backend_name)
    if not one.in_row:
        one.delete(*(where(name, column) if column else (name, b"")))


def where(name: str, column: bytes) -> tuple[str, bytes]:
    """Of a column of a backend outside the row: the name that the bytes have now, and what the backend gave."""
    end = 2 + column[1] if len(column) > 1 and column[:1] == _ELSEWHERE else 0
    if not 2 <= end <= len(column):
        raise PayloadLost(f"the row's record of payload {name} is damaged", name=name)
    return _below(name, column[2:end].decode("ascii", "replace")), column[end:]


def _below(name: str, under: str) -> str:
    return f"{name}/{under}" if under else name
