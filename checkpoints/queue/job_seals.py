"""Seals of jobs: that what a job is for, and the place from which it goes on, were written by this product. Whoever has
the database alone can put in no job that removes by rules of its own, and can move none past what it must look at.

A job without facts, or without a place, needs no seal for it: it does what its kind always does, from the beginning.
"""

import hmac
import json
from typing import Any
from uuid import UUID

from checkpoints.conf import keyring
from checkpoints.sealing import sealed_rows
from orchestrator.engine import canonical
from orchestrator.engine.errors import TamperedRow


def facts_seal(job: UUID, kind: str, name: str | None, run: UUID | None, facts: Any) -> str:
    """Return the seal of what a job is for: the id of its key, a colon, 64 hexadecimal digits. Empty for no facts."""
    if not facts:
        return ""
    return _sealed(_facts_data(job, kind, name, run, facts))


def place_seal(job: UUID, kind: str, place: Any) -> str:
    """Return the seal of the place from which a job goes on. Empty for none."""
    if place is None:
        return ""
    return _sealed(_place_data(job, kind, place))


def require_sound(job: Any) -> None:
    """Raise `TamperedRow` where a job's facts or its place are not as they were sealed, and `WrongKey`. `job` has the
    fields of the row that its lease holds.
    """
    what = f"checkpoints_job {job.id}"
    place = job.progress.get("place")
    if job.facts:
        data = _facts_data(job.id, job.kind, job.name, job.run, job.facts)
        _require(job.facts_seal, data, f"what {what} is for")
    if place is not None:
        _require(job.place_seal, _place_data(job.id, job.kind, place), f"the place of {what}")


def _facts_data(job: UUID, kind: str, name: str | None, run: UUID | None, facts: Any) -> bytes:
    return canonical.framed("countersign job 1", job, kind, name, run, _text(facts))


def _place_data(job: UUID, kind: str, place: Any) -> bytes:
    return canonical.framed("countersign job place 1", job, kind, _text(place))


def _text(value: Any) -> str:
    """Return a JSON value as both databases give it back: PostgreSQL writes 1e16 as a whole number."""
    kept = json.loads(json.dumps(value), parse_float=_number)
    return json.dumps(kept, sort_keys=True)


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def _sealed(data: bytes) -> str:
    ring = keyring()
    return f"{ring.signer}:{ring.mac(ring.signer, data).hex()}"


def _require(seal: str, data: bytes, what: str) -> None:
    key_id, _, digits = seal.rpartition(":")
    if not key_id:
        raise TamperedRow(f"{what} has no seal", row=what)
    mac = sealed_rows.mac_of(key_id, data, lambda: what).hex()
    if not hmac.compare_digest(mac.encode(), digits.encode()):
        raise TamperedRow(f"{what} is not as it was sealed", row=what)
    sealed_rows.refuse_compromised(key_id, None, what)
