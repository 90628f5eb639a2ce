"""Writing the lines of a bundle: each chained to the one before, the last signed."""

import hashlib
from typing import Any, BinaryIO

import orjson
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from checkpoints.bundle import verifier
from orchestrator.engine.errors import PayloadTooLarge


class LineWriter:
    """Writes lines to a file. `lines` and `last` are the number of lines so far, and
    the hash of the last of them.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.lines = 0
        self.last = verifier.BEGIN

    def write(self, kind: str, **content: Any) -> None:
        """Write the next line. Raises `PayloadTooLarge` for one that no verifier would
        read.
        """
        body = orjson.dumps({"kind": kind, **content})
        self.last = hashlib.sha256(self.last.encode() + body).hexdigest()
        # Joined by hand, so that the hash is over exactly the bytes of the body.
        line = b"".join(
            (verifier.HEAD, self.last.encode(), verifier.MIDDLE, body, verifier.TAIL)
        )
        if len(line) > verifier.LONGEST_LINE:
            raise PayloadTooLarge(
                f"a {kind} is longer than {verifier.LONGEST_LINE:,} bytes", kind=kind
            )
        self._file.write(line)
        self.lines += 1

    def sign(self, key: Ed25519PrivateKey, public: bytes) -> None:
        """Write the last line, the signature over the lines so far."""
        text = verifier.signed_text(public.hex(), self.lines, self.last)
        self.write(
            "signature",
            lines=self.lines,
            last=self.last,
            key=public.hex(),
            signature=key.sign(text).hex(),
        )
