"""Seals of jobs, which prove that a job's facts, and the place from which it goes on,
were written by this product. With access to the database alone nobody can insert a job
that removes by other rules, or move a job past what it must look at.

A job without facts, or without a place, needs no seal for these: it does what its kind
always does, from the beginning.
"""

import hmac
import json
from typing import Any
from uuid import UUID

from checkpoints.conf import keyring
from checkpoints.sealing import sealed_rows
from orchestrator.engine.errors import TamperedRow
from orchestrator.engine.values import canonical


def facts_seal(
    job: UUID,
    kind: str,
    name: str | None,
    run: UUID | None,
    facts: Any,
) -> str:
    """Return the seal of a job's facts: the id of its key, a colon, 64 hexadecimal
    digits. Empty for no facts.
    """
    if not facts:
        return ""
    return _sealed(_facts_data(job, kind, name, run, facts))


def place_seal(
    job: UUID,
    kind: str,
    place: Any,
) -> str:
    """Return the seal of the place from which a job goes on. Empty for none."""
    if place is None:
        return ""
    return _sealed(_place_data(job, kind, place))


def require_sound(job: Any) -> None:
    """Raise `TamperedRow` if a job's facts or its place do not match their seals, and
    `WrongKey`. `job` has the fields of the row that its lease holds.
    """
    name = f"checkpoints_job {job.id}"
    if job.facts:
        facts = _facts_data(job.id, job.kind, job.name, job.run, job.facts)
        _require(job.facts_seal, facts, f"what {name} is for")
    place = job.progress.get("place")
    if place is not None:
        data = _place_data(job.id, job.kind, place)
        _require(job.place_seal, data, f"the place of {name}")


def _facts_data(
    job: UUID,
    kind: str,
    name: str | None,
    run: UUID | None,
    facts: Any,
) -> bytes:
    text = _text(facts)
    return canonical.framed("countersign job 1", job, kind, name, run, text)


def _place_data(
    job: UUID,
    kind: str,
    place: Any,
) -> bytes:
    return canonical.framed("countersign job place 1", job, kind, _text(place))


def _text(value: Any) -> str:
    """Return a JSON value as text that is the same from both databases: PostgreSQL
    writes 1e16 as a whole number.
    """
    normalized = json.loads(json.dumps(value), parse_float=_number)
    return json.dumps(normalized, sort_keys=True)


def _number(text: str) -> float | int:
    number = float(text)
    if number.is_integer():
        return int(number)
    return number


def _sealed(data: bytes) -> str:
    ring = keyring()
    mac = ring.mac(ring.signer, data)
    return f"{ring.signer}:{mac.hex()}"


def _require(
    seal: str,
    data: bytes,
    what: str,
) -> None:
    key_id, _, digits = seal.rpartition(":")
    if not key_id:
        raise TamperedRow(f"{what} has no seal", row=what)
    mac = sealed_rows.mac_of(key_id, data, lambda: what).hex()
    # Encoded: `compare_digest` refuses text that is not ASCII, which a row may have.
    if not hmac.compare_digest(mac.encode(), digits.encode()):
        raise TamperedRow(f"{what} is not as it was sealed", row=what)
    # A job records no time of its seal, so its key must not be compromised at all.
    sealed_rows.refuse_compromised(key_id, None, what)
