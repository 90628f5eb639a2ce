"""Bundles for tests: a run that people signed, its lines, and bundles that were changed
and signed again.
"""

import hashlib
import io
import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.db import connection

from approvals import append_only
from approvals.models import (
    RequestDrafter,
    RequestReviewer,
    RequestSigner,
    RequestViewer,
)
from checkpoints import bundle
from checkpoints.bundle.tables import TABLES
from checkpoints.bundle.verifier import framed_hash
from checkpoints.models import BundleImport, Run
from orchestrator import runs
from tests.support import cast
from tests.support import sealed_graphs as graphs
from tests.support.run_actions import reviewer, sign

FORMAT = "countersign-bundle-1"
KEY = Ed25519PrivateKey.from_private_bytes(b"another house, with its own key.")
PUBLIC = KEY.public_key().public_bytes_raw()


def signed_run(folder: Path, people: cast.People, *, encrypted: bool = False) -> Run:
    """Return a completed run of the watched graph with two signatures, of which the
    first changed the value.
    """
    run = graphs.started(folder, encrypted=encrypted)
    sign(run, reviewer(people.reviewer), [("edit", {"amount": "9"}), "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed", run.status
    return run


class ReplacedFile(io.BytesIO):
    """A file whose bytes are others with each reading from the start."""

    def __init__(self, *readings: bytes) -> None:
        super().__init__(readings[0])
        self._later = list(readings[1:])

    def seek(self, at: int, whence: int = 0) -> int:
        if (at, whence) == (0, 0) and self.tell() and self._later:
            super().seek(0)
            self.truncate()
            self.write(self._later.pop(0))
        return super().seek(at, whence)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """The bodies of the lines of a bundle."""
    return [json.loads(line)["body"] for line in data.splitlines()]


def written(bodies: list[dict[str, Any]], key: Ed25519PrivateKey) -> bytes:
    """A bundle of these bodies without the last, which is made anew: chained and signed
    with this key.
    """
    lines = []
    last = "0" * 64
    public = key.public_key().public_bytes_raw().hex()
    for body in bodies[:-1]:
        last = _append(lines, last, body)
    text = f"{FORMAT}\n{public}\n{len(lines)}\n{last}\n".encode()
    signature = key.sign(text).hex()
    statement = {
        "kind": "signature",
        "lines": len(lines),
        "last": last,
        "key": public,
        "signature": signature,
    }
    _append(lines, last, statement)
    return b"".join(lines)


def _append(lines: list[bytes], last: str, body: dict[str, Any]) -> str:
    data = json.dumps(body, separators=(",", ":")).encode()
    hash_ = hashlib.sha256(last.encode() + data).hexdigest()
    lines.append(b'{"hash":"' + hash_.encode() + b'","body":' + data + b"}\n")
    return hash_


def with_last_line(data: bytes, body: bytes) -> bytes:
    """A bundle with other bytes in its last line, chained to the one before: nobody
    signed how that line is written.
    """
    lines = data.splitlines(keepends=True)
    before = json.loads(lines[-2])["hash"].encode()
    hash_ = hashlib.sha256(before + body).hexdigest().encode()
    return b"".join([*lines[:-1], b'{"hash":"' + hash_ + b'","body":' + body + b"}\n"])


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails where the block takes longer, also where it would never end."""

    def late(*_: Any) -> None:
        pytest.fail(f"it was not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def hashed_anew(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the lines of a plain run with hashes that fit their present content, as
    another installation could make them.
    """
    events: dict[int, str] = {0: ""}
    points: dict[str, str] = {}
    for body in bodies[2:]:
        row = body.get("row", {})
        if body["kind"] == "event":
            parts = [
                row[name]
                for name in ("run", "seq", "type", "at", "node", "task", "actor")
            ]
            row["hash"] = events[row["seq"]] = framed_hash(
                events[row["seq"] - 1], *parts, row["payload"].encode()
            )
        elif body["kind"] == "checkpoint":
            body["parent_hash"] = points.get(row["parent"], body["parent_hash"])
            row["event_hash"] = events[row["event_seq"]]
            names = (
                "run",
                "line",
                "seq",
                "superstep",
                "source",
                "fingerprint",
                "format",
                "committed",
                "event_seq",
            )
            header = [
                int(row[name]) if name == "committed" else row[name] for name in names
            ]
            row["content_hash"] = framed_hash(
                body["parent_hash"], *header, row["event_hash"], row["change_hash"]
            )
            points[row["id"]] = row["content_hash"]
    run = bodies[1]["row"]
    run["event_hash"] = events[run["event_seq"]]
    run["head_hash"] = points[run["head"]]
    return bodies


OF_REQUESTS: tuple[Any, ...] = (
    RequestDrafter,
    RequestReviewer,
    RequestSigner,
    RequestViewer,
)
"""The tables that refer to a request."""


def forgotten(run: Run) -> None:
    """Take a run out of the database, past everything that watches over its rows."""
    models: list[Any] = [table.model for table in reversed(list(TABLES.values()))]
    with append_only.triggers_lifted(), connection.cursor() as cursor:
        for model in [*OF_REQUESTS, *models, BundleImport, Run]:
            table = model._meta.db_table
            where = "request_id IN (SELECT id FROM approvals_approvalrequest WHERE run_id = %s)"
            if model not in OF_REQUESTS:
                column = "id" if model is Run else model._meta.get_field("run").column
                where = f"{column} = %s"
            value = run.id.hex if connection.vendor == "sqlite" else run.id
            cursor.execute(f"DELETE FROM {table} WHERE {where}", [value])  # noqa: S608


def exported(run: Run, **options: Any) -> bytes:
    out = io.BytesIO()
    bundle.export(run.id, out, **options)
    return out.getvalue()


def foreign(run: Run) -> bytes:
    """The bundle of a run as another house would have signed it; the run is not here
    any more.
    """
    data = written(lines_of(exported(run)), KEY)
    forgotten(run)
    return data


def loaded(data: bytes, **options: Any) -> Run:
    return bundle.load(io.BytesIO(data), **options)
