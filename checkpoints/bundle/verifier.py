"""Whether a bundle is what its house signed, offline: this one file, the standard library and `cryptography`.

    python verifier.py FILE --key HEX

`docs/bundles.md` describes the format. The public key is given, never taken from the bundle. A first pass follows the
chain of lines up to its signature and reads none of them as JSON; a second one compares what they say of each other.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT = "countersign-bundle-1"
LONGEST_LINE, LONGEST_SIGNATURE = 256 * 1024 * 1024, 1000
HEAD, MIDDLE, TAIL = b'{"hash":"', b'","body":', b"}\n"
BODY, BEGIN = len(HEAD) + 64 + len(MIDDLE), "0" * 64
SIGNED = rb'{"kind":"signature","lines":(\d+),"last":"(.{64})","key":"([0-9a-f]{64})","signature":"([0-9a-f]{128})"}'
PRIME, EIGHTH = 2**255 - 19, 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL = {0, 1, PRIME - 1, EIGHTH, PRIME - EIGHTH}  # where points of small order lie: with one as a key anybody signs
ROWS = ("run", "event", "line", "checkpoint", "write", "result", "late_result", "landing", "memory_record", "metadata",
        "figure", "request", "receipt", "decision")  # fmt: skip
KINDS, ONCE = ("manifest", *ROWS, "seals", "counts", "signature"), ("manifest", "run", "counts", "signature")
DECIDED = {"decision_signed": False, "approval_not_needed": True}  # whether nobody was asked


class Verdict(NamedTuple):
    """`bad_line` is the first bad line, counted from 1; 0 where no line is, or the file or the key cannot be read."""

    ok: bool
    bad_line: int
    reason: str


class Bad(Exception):
    """A line is not as it was written: its number, and why."""


def verify(file: Any, public_key: Any) -> Verdict:
    """The verdict on a bundle, a path or a binary file that can be read twice. The key is 32 bytes. Never raises."""
    try:
        with nullcontext(file) if hasattr(file, "readline") else Path(file).open("rb") as opened:
            begin = opened.tell()
            signed = require_signed(opened, public_key)
            opened.seek(begin)
            Contents().read(opened, signed)
    except Exception as error:
        named = error.args if isinstance(error, Bad) else (0, f"it cannot be read: {type(error).__name__}: {error}")
        return Verdict(False, named[0], named[1].encode("unicode_escape").decode())
    return Verdict(True, 0, "")


def chained(file: BinaryIO, signed: tuple[str, int] | None = None) -> Iterator[tuple[int, bytes, str]]:
    """(number, body, hash) of each line, the chain followed up to the end that is `signed`. Raises `Bad`."""
    number, before = 0, BEGIN
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if signed and number >= signed[1] and (before, number) != signed:
            raise Bad(number, "the file was replaced while it was read")
        said = re.search(rb'"format":"([A-Za-z0-9._ -]{1,80})"', line[:LONGEST_SIGNATURE]) if number == 1 else None
        if said and said[1].decode() != FORMAT:
            raise Bad(1, f"format {said[1].decode()} is not known here; this verifier knows {FORMAT}")
        if not line.endswith(b"\n"):
            raise Bad(number, "truncated: the line has no end" if len(line) <= LONGEST_LINE else "the line is too long")
        if not (line.startswith(HEAD) and line[BODY - len(MIDDLE) : BODY] == MIDDLE and line.endswith(TAIL)):
            raise Bad(number, "the line has not the form of one")
        body, given = line[BODY : -len(TAIL)], line[len(HEAD) : len(HEAD) + 64]
        now = hashlib.sha256(before.encode() + body).hexdigest()
        if given != now.encode():
            raise Bad(number, "the line is not chained to the one before it")
        yield number, body, now
        before = now
    if signed and number != signed[1]:
        raise Bad(number + 1, "the file was replaced while it was read")


def require_signed(file: BinaryIO, public_key: bytes) -> tuple[str, int]:
    """The hash that is signed, and all lines. Raises `Bad` where the chain breaks, or another key signed its end."""
    if not isinstance(public_key, bytes) or len(public_key) != 32:
        raise Bad(0, "the public key must be 32 bytes")
    if int.from_bytes(public_key, "little") % 2**255 % PRIME in SMALL:
        raise Bad(0, "anybody can sign with this public key")
    last, found = BEGIN, (0, b"", BEGIN)
    for line in chained(file):
        last, found = found[2], line
    number, body, _ = found
    if len(body) > LONGEST_SIGNATURE or not body.startswith(b'{"kind":"signature"'):
        raise Bad(number + 1, "truncated: the signature is missing")
    said, key, lines = re.fullmatch(SIGNED, body), public_key.hex(), number - 1
    if said and said[3].decode() != key:
        raise Bad(number, f"it is signed with another key: {said[3].decode()}")
    if not said or said.group(1, 2) != (b"%d" % lines, last.encode()):
        raise Bad(number, "the signature is of other lines, or not written as it must be")
    try:
        signed = signed_text(key, lines, last)
        Ed25519PublicKey.from_public_bytes(public_key).verify(bytes.fromhex(said[4].decode()), signed)
    except (InvalidSignature, ValueError):
        raise Bad(number, "the signature is not of this key") from None
    return last, number


def signed_text(key: str, lines: int, last: str) -> bytes:
    """What the signature is over: format, public key, number of lines before it, hash of the last of them."""
    return f"{FORMAT}\n{key}\n{lines}\n{last}\n".encode()


def parsed(body: bytes, number: int) -> dict[str, Any]:
    """The JSON object of a line. Raises `Bad` for what is none, says a thing twice, or is nested too deeply."""
    try:
        found = json.loads(body.decode(), object_pairs_hook=_object, parse_constant=lambda one: _require(False, one))
    except (ValueError, RecursionError) as error:
        raise Bad(number, f"the line is no JSON, or is nested too deeply: {error}"[:200]) from None
    if not isinstance(found, dict):
        raise Bad(number, "the line is no object")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _require(len(found := dict(pairs)) == len(pairs), "a key is given more than once")
    return found


def framed_hash(*parts: Any) -> str:
    """SHA-256 over the framed parts: a JSON list in which [n] stands for a part of n bytes, then those bytes."""
    head = [[len(part)] if isinstance(part, bytes) else part for part in parts]
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    return hashlib.sha256(text + b"".join(part for part in parts if isinstance(part, bytes))).hexdigest()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Contents:
    """What the lines of a bundle say of each other. It keeps numbers and hashes, never a payload."""

    def __init__(self) -> None:
        self.run, self.encrypted, self.as_is, self.kind = "", False, "", -1
        self.row, self.counts = dict[str, Any](), dict.fromkeys(ROWS, 0)
        self.removed: dict[str, dict[int, tuple[int, str, str]]] = {"events": {}, "checkpoints": {}}
        self.event, self.point = (0, ""), (-1, "", "")
        self.departures, self.erasures, self.decided = dict[str, str](), dict[str, str](), dict[int, bool]()
        self.revisions: dict[str, dict[str, tuple[int, str]]] = {}
        self.requests, self.told, self.erased = set[str](), set[str](), frozenset[str]()
        self.noted: dict[int, tuple[str, dict[str, int]]] = {}
        self.metadata, self.figures = dict[int, dict[str, str]](), dict[int, dict[str, int]]()
        self.notes_erased = False

    def read(self, file: BinaryIO, signed: tuple[str, int]) -> None:
        """Raises `Bad` for the first line that does not fit, or is not of what was `signed`."""
        for number, body, _ in chained(file, signed):
            try:
                self.take(parsed(body, number), number)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                fits = isinstance(error, ValueError)
                raise Bad(number, str(error) if fits else f"it does not say what it must: {error!r}"[:200]) from None
        if self.as_is:
            raise Bad(1, f"exported as it is, for the run did not verify: {self.as_is}")

    def take(self, body: dict[str, Any], number: int) -> None:
        """The next line. Raises `ValueError` where it does not fit those before it."""
        kind, name = KINDS.index(body["kind"]), body["kind"]
        _require(kind > self.kind or (kind == self.kind and name not in ONCE), "the lines are not in their order")
        _require((kind == 0) == (number == 1) and (kind == 1) == (number == 2), "manifest and run come first")
        _require(name != "signature" or self.kind == kind - 1, "the counts of the rows are missing")
        self.kind = kind
        if name in ROWS:
            self.counts[name] += 1
            _require(body["row"]["id" if name == "run" else "run"] == self.run, "the row is of another run")
            self.erased = self._erased(body["row"], **body.get("erased", {"record": "", "columns": {}}))
        getattr(self, f"on_{name}", lambda _: None)(body)

    def _erased(self, row: dict[str, Any], record: str, columns: dict[str, str]) -> frozenset[str]:
        """The columns of a row of which something was erased; what stands there now has the hash that its note says."""
        _require(record in self.erasures or not (record or columns), "it names an erasure that the manifest does not")
        fits = self.encrypted or all(digest(row[name]) == hash_ for name, hash_ in columns.items())
        _require(fits, "what stands in the place of what was erased has another hash")
        return frozenset(columns)

    def _require_hash(self, now: str, hash_: str, what: str, *columns: str) -> None:
        _require(self.encrypted or now == hash_ or bool(self.erased & {*columns}), f"{what} has another hash")

    def on_manifest(self, body: dict[str, Any]) -> None:
        _require(body["format"] == FORMAT, "the format is not known here")
        self.run, self.encrypted = body["run"], body["encrypted"] is True
        _require(bool(body["faults"]) == body["as_is"], "faults and as_is do not fit each other")
        self.as_is = str(body["faults"][0])[:300] if body["as_is"] else ""
        self.erasures = {one["id"]: one["rows_hash"] for one in body["erasures"]}
        for part in ("events", "checkpoints"):
            for first, last, before, after in body["removed"][part]:
                _require(type(first) is type(last) is int and first <= last, "a removed stretch ends before it begins")
                self.removed[part][first] = (last, before, after)

    def on_run(self, body: dict[str, Any]) -> None:
        self.row = body["row"]
        _require(self.encrypted == self.row["encrypted"], "run and manifest differ in whether it is encrypted")
        self._require_hash(digest(self.row["input"]), self.row["input_hash"], "the input", "input")

    def on_event(self, body: dict[str, Any]) -> None:
        row = body["row"]
        seq, before = self._follow("events", *self.event, row["seq"])
        _require(row["seq"] == seq + 1, f"line {seq + 1} of the log is missing")
        parts = [row[name] for name in ("run", "seq", "type", "at", "node", "task", "actor")]
        now = framed_hash(before, *parts, row["payload"].encode())
        self._require_hash(now, row["hash"], f"line {row['seq']} of the log", "payload")
        self.event = (row["seq"], row["hash"])
        if row["type"] in DECIDED:
            self.decided[row["seq"]] = DECIDED[row["type"]]
        if row["type"] in ("run_started", "checkpoint_noted") and not self.encrypted:
            said = json.loads(row["payload"])
            if said.get("metadata") or said.get("figures"):
                self.noted[said.get("seq", -1)] = (said.get("metadata", ""), said.get("figures", {}))
        if row["type"] == "erased" and not self.encrypted:
            said = json.loads(row["payload"])
            _require(self.erasures.get(said["record"]) == said["rows_hash"], "the manifest lacks this erasure")
            self.told.add(said["record"])

    def _follow(self, part: str, number: int, hash_: str, seen: int) -> tuple[int, str]:
        """Where a chain stands before its row of number `seen`: behind the stretches that were removed there."""
        while (gone := self.removed[part].get(number + 1)) and gone[1] == hash_ and gone[0] < seen:
            number, hash_ = gone[0], gone[2]
        return number, hash_

    def on_line(self, body: dict[str, Any]) -> None:
        self.departures[body["row"]["departure"]] = body["row"]["departure_hash"]

    def on_checkpoint(self, body: dict[str, Any]) -> None:
        row, (last, hash_, one) = body["row"], self.point
        seq, before = self._follow("checkpoints", last, hash_, row["seq"])
        _require(row["seq"] == seq + 1, f"checkpoint {seq + 1} is missing")
        parent, follows = row["parent"] or "", {**self.departures, one: hash_, "": ""}
        # Behind a removed stretch the parent is the last row of it; of a fork that a store made it may be anything.
        unknown = before if seq != last else body["parent_hash"] if not row["seq"] else "missing"
        before = follows.get(parent, unknown)
        _require(body["parent_hash"] == before, f"checkpoint {row['seq']} does not follow its parent")
        self._require_hash(digest(row["change"]), row["change_hash"], "the change", "change")
        snapshot = row["snapshot"] and digest(row["snapshot"])
        self._require_hash(snapshot, row["snapshot_hash"], "the snapshot", "snapshot")
        header = [row[name] for name in ("run", "line", "seq", "superstep", "source", "fingerprint", "format")]
        end = (int(row["committed"]), row["event_seq"], row["event_hash"], row["change_hash"])
        self._require_hash(framed_hash(before, *header, *end), row["content_hash"], f"checkpoint {row['seq']}")
        _require(self.departures.get(row["id"], row["content_hash"]) == row["content_hash"], "a line departs otherwise")
        self.point = (row["seq"], row["content_hash"], row["id"])

    def on_write(self, body: dict[str, Any]) -> None:
        row = body["row"]
        self._require_hash(digest(body.get("binding", "")), row["bound_hash"], "the base", "base")
        task = f"{row['node']}:{row['visit']}:{row['index']}"
        parts = (row["run"], row["line"], task, row["position"], row["revision"], row["channel"])
        texts = (row["value"].encode(), row["bound_hash"], row["policy_hash"], row["shown"].encode())
        self._require_hash(framed_hash(*parts, *texts), row["hash"], "this revision of a write", "value", "shown")
        value = "" if self.encrypted or "value" in self.erased else digest(row["value"])
        self.revisions.setdefault(row["write"], {})[row["hash"]] = (row["revision"], value)

    def on_metadata(self, body: dict[str, Any]) -> None:
        row = body["row"]
        self.notes_erased = self.notes_erased or bool(self.erased)
        self.metadata.setdefault(row["seq"], {})[row["name"]] = row["value"]

    def on_figure(self, body: dict[str, Any]) -> None:
        row = body["row"]
        sums = self.figures.setdefault(row["seq"], {})
        sums[row["name"]] = sums.get(row["name"], 0) + row["millionths"]

    def _require_notes(self) -> None:
        """Metadata and figures are those whose hashes and totals the log says, where it can be read."""
        if self.encrypted:
            return
        for seq, (hash_, figures) in self.noted.items():
            _require(self.figures.pop(seq, {}) == figures, "the log says other totals of the figures")
            values = self.metadata.pop(seq, {})
            text = ",".join(f"{json.dumps(name)}:{values[name]}" for name in sorted(values))
            now = digest(f"{{{text}}}") if values else ""
            _require(now == hash_ or self.notes_erased, "the log says another hash of the metadata")
        events_removed = bool(self.removed["events"])
        _require(events_removed or not (self.metadata or self.figures), "the log does not speak of these notes")

    def on_request(self, body: dict[str, Any]) -> None:
        self.requests.add(body["row"]["id"])

    def on_decision(self, body: dict[str, Any]) -> None:
        row, unasked = body["row"], body["row"]["verdict"] == "not_needed"
        logged, removed = self.decided.get(row["event_seq"]), self.removed["events"].items()
        gone = any(first <= row["event_seq"] <= one[0] for first, one in removed)
        _require(logged == unasked or (logged is None and gone), "the log does not speak of this decision")
        if unasked:
            return
        _require(row["request"] in self.requests, "the request of this decision is missing")
        revisions = self.revisions.get(row["write"], {})
        number, seen = revisions.get(row["seen_hash"], (row["revision"] + 1, ""))
        _require(number <= row["revision"], "what was seen is no revision of the write")
        decided = dict(revisions.values()).get(row["revision"])
        _require(decided is not None, "the revision that was decided is missing")
        if row["verdict"] != "reject":
            self._require_signed(row, decided)
        if row["verdict"] == "approve":
            # Only who edits decides another value than was seen.
            self._require_signed(row, seen)

    def _require_signed(self, row: dict[str, Any], value_hash: str | None) -> None:
        """The final value of a decision has this hash, where it can be told."""
        if value_hash:
            self._require_hash(digest(row["final_value"]), value_hash, "the value that was signed", "final_value")

    def on_counts(self, body: dict[str, Any]) -> None:
        row, counts = self.row, self.counts
        # Bundles of earlier versions do not count what these did not know.
        _require({**dict.fromkeys(ROWS, 0), **body["counts"]} == counts, "the rows are not as many as were written")
        self._require_notes()
        end = self._follow("events", *self.event, row["event_seq"] + 1)
        _require(end == (row["event_seq"], row["event_hash"]), "the log does not end where the run says")
        _require(self.point == (row["head_seq"], row["head_hash"], row["head"]), "the head is not the last checkpoint")
        _require(counts["decision"] == row["decisions"], "the run counts other decisions")
        _require(self.encrypted or self.told == {*self.erasures}, "the log does not tell of each erasure")


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise ValueError(reason)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Verify a bundle of a run, offline.")
    parser.add_argument("file")
    parser.add_argument("--key", dest="public_key", required=True, type=bytes.fromhex, metavar="64_HEXADECIMAL_DIGITS")
    ok, bad_line, reason = verify(**vars(parser.parse_args(arguments)))
    sys.stdout.write("ok\n" if ok else f"line {bad_line}: {reason}\n".removeprefix("line 0: "))
    return int(not ok)


if __name__ == "__main__":
    sys.exit(main())
