"""Lines of a bundle as they are written: each chained to the one before, the last one signed."""

import hashlib
from typing import Any, BinaryIO

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from checkpoints.bundle import verifier
from orchestrator.engine.errors import PayloadTooLarge


class LineWriter:
    """Writes lines to a file. `lines` and `last` are the number of lines so far, and the hash of the last of them."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.lines, self.last = 0, verifier.BEGIN

    def write(self, kind: str, **content: Any) -> None:
        """The next line. Raises `PayloadTooLarge` for one that no verifier would read."""
        body = orjson.dumps({"kind": kind, **content})
        self.last = hashlib.sha256(self.last.encode() + body).hexdigest()
        line = b"".join((verifier.HEAD, self.last.encode(), verifier.MIDDLE, body, verifier.TAIL))
        if len(line) > verifier.LONGEST_LINE:
            raise PayloadTooLarge(f"a {kind} is longer than {verifier.LONGEST_LINE:,} bytes", kind=kind)
        self._file.write(line)
        self.lines += 1

    def sign(self, key: Ed25519PrivateKey, public: bytes) -> None:
        """The last line."""
        signature = key.sign(verifier.signed_text(public.hex(), self.lines, self.last)).hex()
        self.write("signature", lines=self.lines, last=self.last, key=public.hex(), signature=signature)
