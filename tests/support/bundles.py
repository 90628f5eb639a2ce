"""Bundles for tests: a run that people signed, its lines, and bundles that were changed and signed again."""

import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from checkpoints.models import Run
from orchestrator import runs
from tests.support import cast
from tests.support import sealed_graphs as graphs
from tests.support.run_actions import reviewer, sign

FORMAT = "countersign-bundle-1"


def signed_run(folder: Path, people: cast.People, *, encrypted: bool = False) -> Run:
    """A run of the watched graph that two signatures let go on to its end; one of them changed the value."""
    run = graphs.started(folder, encrypted=encrypted)
    sign(run, reviewer(people.reviewer), [("edit", {"amount": "9"}), "approve"])
    run = runs.advance(run.id)
    assert run.status == "completed", run.status
    return run


def lines_of(data: bytes) -> list[dict[str, Any]]:
    """The bodies of the lines of a bundle."""
    return [json.loads(line)["body"] for line in data.splitlines()]


def written(bodies: list[dict[str, Any]], key: Ed25519PrivateKey) -> bytes:
    """A bundle of these bodies without the last, which is made anew: chained and signed with this key."""
    lines, last = [], "0" * 64
    public = key.public_key().public_bytes_raw().hex()
    for body in bodies[:-1]:
        last = _append(lines, last, body)
    text = f"{FORMAT}\n{public}\n{len(lines)}\n{last}\n".encode()
    signature = key.sign(text).hex()
    said = {"kind": "signature", "lines": len(lines), "last": last, "key": public, "signature": signature}
    _append(lines, last, said)
    return b"".join(lines)


def _append(lines: list[bytes], last: str, body: dict[str, Any]) -> str:
    data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    hash_ = hashlib.sha256(last.encode() + data).hexdigest()
    lines.append(b'{"hash":"' + hash_.encode() + b'","body":' + data + b"}\n")
    return hash_
