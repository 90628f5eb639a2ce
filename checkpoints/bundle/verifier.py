"""Verifies offline that a bundle is what its house signed.

    python verifier.py FILE --key HEX

It needs this one file, the standard library and `cryptography`. `docs/bundles.md`
describes the format. From top to bottom this is the order in which one would check a
bundle by hand: first the chain of its lines up to the signature, without reading any of
them as JSON, then what the lines hold, each compared with those before it.
"""

import argparse
import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

Row = dict[str, Any]
Numbered = dict[int, Any]
End = tuple[str, int]  # the hash that is signed, and the number of all lines

FORMAT = "countersign-bundle-1"
LONGEST_LINE = 256 * 1024 * 1024
LONGEST_SIGNATURE = 1000

# A line. Its hash is over the hash of the line before and its own body.
HEAD = b'{"hash":"'
MIDDLE = b'","body":'
TAIL = b"}\n"
LINE = HEAD + rb"(.{64})" + MIDDLE + rb"(.*)" + TAIL
BEGIN = "0" * 64
SIGNATURE = (
    r'{"kind":"signature","lines":(\d+),"last":"(.{64})",'
    r'"key":"([0-9a-f]{64})","signature":"([0-9a-f]{128})"}'
)
# The points of small order of the curve: with one as a public key anybody can sign.
PRIME = 2**255 - 19
EIGHTH = 0x5FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
SMALL = {0, 1, PRIME - 1, EIGHTH, PRIME - EIGHTH}

# The kinds of lines in their order, and which of them hold rows.
ORDER = (
    "manifest run event line checkpoint write result late_result landing memory_record"
    " metadata figure request receipt decision comment seals counts signature"
)
KINDS = tuple(ORDER.split())
ROWS = KINDS[1:-3]
ONCE = ("manifest", "run", "counts", "signature")
# Events that record a decision, and whether nobody was asked for it.
DECISIONS = {"decision_signed": False, "approval_not_needed": True}
# Verdicts that let nothing happen.
WITHOUT_FINAL = ("reject", "skip", "veto", "no_auto")
VETO_ANSWERS = ("veto", "no_veto")
# How the names begin under which policies sign; a person's decision has a receipt.
POLICIES = ("the policy of ", "policy ")
# Events whose facts are compared with other rows.
READABLE = ("run_started", "checkpoint_noted", "erased")

# The values that the hash of a row covers, in order; the payloads as bytes.
EVENT = "before run seq type at node task actor payload"
CHECKPOINT = (
    "parent_hash run line seq superstep source fingerprint format committed"
    " event_seq event_hash change_hash"
)
WRITE = "run line task position revision channel value bound_hash policy_hash shown"
PAYLOADS = ("payload", "value", "shown")

# How Python says that JSON is not of the form that it must have.
NONSENSE = (TypeError, LookupError, AttributeError, RecursionError)

# What a passkey signs is the hash of a document of this type.
DOCUMENT = "countersign-passkey-1"
# The place of the flags in an authenticator's data, after the hash of the site.
FLAGS_AT = 32
PRESENT = 0x01
VERIFIED = 0x04


class Fields(Row):
    """A JSON object whose values are read by their names: `row.seq`."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


class Verdict(NamedTuple):
    """The first bad line, counted from 1, is 0 if there is none, or none can be read."""

    ok: bool
    bad_line: int
    reason: str


class Bad(Exception):
    """A line is not as it was written: its number, and why."""


def verify(file: Any, public_key: Any) -> Verdict:
    """Return the verdict on a bundle: a path, or a binary file that can be read twice.
    The key is 32 bytes, and never taken from the bundle. Never raises.
    """
    try:
        is_open = hasattr(file, "readline")
        with nullcontext(file) if is_open else Path(file).open("rb") as opened:
            begin = opened.tell()
            signed = require_signed(opened, public_key)
            opened.seek(begin)
            Contents().read(opened, signed)
            return Verdict(True, 0, "")
    except Bad as bad:
        bad_line, reason = bad.args
    except Exception as error:
        bad_line = 0
        reason = f"it cannot be read: {type(error).__name__}: {error}"
    # A reason may quote the file, whose text must not control a terminal.
    return Verdict(False, bad_line, reason.encode("unicode_escape").decode())


def require_signed(file: BinaryIO, public_key: bytes) -> End:
    """Raise `Bad` unless the chain holds and this key signed its end."""
    if not isinstance(public_key, bytes) or len(public_key) != 32:
        raise Bad(0, "the public key must be 32 bytes")
    # The top bit is a sign; a number beyond the field is the same point again.
    if int.from_bytes(public_key, "little") % 2**255 % PRIME in SMALL:
        raise Bad(0, "anybody can sign with this public key")
    number = 0
    body = b""
    last_hash = signed_hash = BEGIN
    for number, body, hash_ in chained(file):  # noqa: B007
        signed_hash = last_hash
        last_hash = hash_
    if len(body) > LONGEST_SIGNATURE or not body.startswith(b'{"kind":"signature"'):
        raise Bad(number + 1, "truncated: the signature is missing")
    _require_signature(body, number, signed_hash, public_key)
    return signed_hash, number


def chained(
    file: BinaryIO, signed: End | None = None
) -> Iterator[tuple[int, bytes, str]]:
    """Yield (number, body, hash) of each line while the chain holds. It must end where
    it was `signed`. Raises `Bad`.
    """
    number = 0
    before = BEGIN
    while True:
        line = file.readline(LONGEST_LINE + 1)
        if not line:
            break
        number += 1
        if signed and number >= signed[1] and (before, number) != signed:
            raise Bad(number, "the file was replaced while it was read")
        hash_, body = _parts_of_line(line, number)
        computed = hashlib.sha256(before.encode() + body).hexdigest()
        if hash_ != computed.encode():
            raise Bad(number, "the line is not chained to the one before it")
        yield number, body, computed
        before = computed
    if signed and number != signed[1]:
        raise Bad(number + 1, "the file was replaced while it was read")


def _parts_of_line(line: bytes, number: int) -> tuple[bytes, bytes]:
    """Return hash and body of a line. Raises `Bad` if it has another form."""
    # Another format is refused by its name, for its lines may have another form too.
    if number == 1:
        start = line[:LONGEST_SIGNATURE]
        name = re.search(rb'"format":"([A-Za-z0-9._ -]{1,80})"', start)
        if name and name[1] != FORMAT.encode():
            advice = f"this verifier knows {FORMAT}"
            raise Bad(1, f"format {name[1].decode()} is not known here; {advice}")
    if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
        raise Bad(number, "the line is too long")
    if not line.endswith(b"\n"):
        raise Bad(number, "truncated: the line has no end")
    parts = re.fullmatch(LINE, line, re.DOTALL)
    if not parts:
        raise Bad(number, "the line has not the form of one")
    return parts[1], parts[2]


def _require_signature(body: bytes, number: int, hash_: str, public_key: bytes) -> None:
    key = public_key.hex()
    lines = number - 1
    # One character for each byte, so that nothing else can be read as the same text.
    claim = re.fullmatch(SIGNATURE, body.decode("latin-1"))
    if claim and claim[3] != key:
        raise Bad(number, f"it is signed with another key: {claim[3]}")
    if not claim or claim.group(1, 2) != (str(lines), hash_):
        reason = "the signature is of other lines, or not written as it must be"
        raise Bad(number, reason)
    try:
        signature = bytes.fromhex(claim[4])
        text = signed_text(key, lines, hash_)
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise Bad(number, "the signature is not of this key") from None


def signed_text(key: str, lines: int, last: str) -> bytes:
    """Return the signed document: `lines` is the number of lines before the signature,
    `last` their hash.
    """
    return f"{FORMAT}\n{key}\n{lines}\n{last}\n".encode()


class Contents:
    """Compares the lines of a bundle with each other as they come. Keeps their numbers
    and hashes, never a payload.
    """

    run = ""
    encrypted = False
    as_is = ""  # the first fault of a run that was exported despite it
    kind = -1  # the index in KINDS of the line before
    erased: frozenset[str] = frozenset()  # erased columns of the row at hand
    checkpoint = ""  # the id of the last checkpoint
    metadata_erased = False

    def __init__(self) -> None:
        self.run_row = Fields()
        self.body = Fields()  # the line at hand
        self.counts = dict.fromkeys(ROWS, 0)
        # Number and hash of the last row of each chain.
        self.ends = {"events": (0, ""), "checkpoints": (-1, "")}
        # First number of a removed stretch -> last number, hash before it, last hash.
        self.removed: dict[str, Numbered] = {"events": {}, "checkpoints": {}}
        self.departures: Row = {}  # checkpoint that a line departs from -> its hash
        self.erasures: Row = {}  # record in the manifest -> hash of its rows
        self.logged_erasures: set[str] = set()
        self.decided: Numbered = {}  # event of a decision -> whether nobody was asked
        self.requests: dict[str, bool] = {}  # -> whether each decision needs a passkey
        self.unanswered: set[str] = set()  # hashes of revisions without an answer
        self.skippable: set[str] = set()  # requests whose gates let people skip
        # Request -> the seconds before which no policy signs a revision in it.
        self.windows: Row = {}
        # Requests that were applied as approved, and that a veto had to let pass.
        self.let_pass: set[str] = set()
        # Write -> the last answer of a veto: number, verdict, request.
        self.vetoes: Row = {}
        self.staged: dict[str, Numbered] = {}  # write -> revision -> when staged
        # Receipt that a passkey signed -> the document, and why it does not hold.
        self.assertions: dict[str, tuple[Row, str]] = {}
        # Write -> hash of a revision -> number of the revision, hash of its value.
        self.revisions: dict[str, Row] = {}
        # By checkpoint: the notes of the log (metadata hash, totals), and of the rows.
        self.noted: Numbered = {}
        self.metadata: Numbered = {}
        self.figures: Numbered = {}

    def read(self, file: BinaryIO, signed: End) -> None:
        """Raise `Bad` for the first line that does not fit, or was not `signed`."""
        for number, body, _ in chained(file, signed):
            try:
                self.take(parsed(body, number), number)
            except ValueError as error:
                raise Bad(number, str(error)) from None
            except NONSENSE as error:
                reason = f"it does not say what it must: {error!r}"
                raise Bad(number, reason[:200]) from None
        if self.as_is:
            reason = f"exported as it is, for the run did not verify: {self.as_is}"
            raise Bad(1, reason)

    def take(self, body: Row, number: int) -> None:
        """Raise `ValueError` unless the next line fits those before it."""
        name = body["kind"]
        kind = KINDS.index(name)
        in_order = kind > self.kind or (kind == self.kind and name not in ONCE)
        must(in_order, "the lines are not in their order")
        must(number > 2 or kind == number - 1, "manifest and run come first")
        has_counts = name != "signature" or self.kind == kind - 1
        must(has_counts, "the counts of the rows are missing")
        self.kind = kind
        self.body = content = Fields(**body)
        if name in ROWS:
            self.counts[name] += 1
            content = Fields(**body["row"])
            run = content.id if name == "run" else content.run
            must(run == self.run, "the row is of another run")
            # A row from which nothing was erased has no such note.
            note = body.get("erased", {"record": "", "columns": {}})
            self.erased = self._erased_columns(content, **note)
        # The other kinds have nothing that could be compared.
        if hasattr(self, f"check_{name}"):
            getattr(self, f"check_{name}")(content)

    def _erased_columns(self, row: Row, record: str, columns: Row) -> frozenset[str]:
        """Return the columns that were erased, once their new hashes are as noted."""
        is_known = record in self.erasures or not (record or columns)
        must(is_known, "it names an erasure that the manifest does not")
        for name, hash_ in columns.items():
            fits = self.encrypted or digest(row[name]) == hash_
            must(fits, "what stands in the place of what was erased has another hash")
        return frozenset(columns)

    def check_manifest(self, body: Fields) -> None:
        must(body.format == FORMAT, "the format is not known here")
        self.run = body.run
        self.encrypted = body.encrypted is True
        fits = bool(body.faults) == body.as_is
        must(fits, "faults and as_is do not fit each other")
        must(all(body.faults), "a fault without a text")
        if body.as_is:
            self.as_is = str(body.faults[0])[:300]
        self.erasures = {row["id"]: row["rows_hash"] for row in body.erasures}
        for part, stretches in self.removed.items():
            for first, last, before, after in body.removed[part]:
                fits = type(first) is type(last) is int and first <= last
                must(fits, "a removed stretch ends before it begins")
                stretches[first] = (last, before, after)

    def check_run(self, row: Fields) -> None:
        self.run_row = row
        fits = self.encrypted == row.encrypted
        must(fits, "run and manifest differ in whether it is encrypted")
        self._require_digest(row, "input")

    def check_event(self, row: Fields) -> None:
        number = row.seq
        last, before = self._end_before("events", number)
        must(number == last + 1, f"line {last + 1} of the log is missing")
        computed = row_hash(row, EVENT, before=before)
        what = f"line {number} of the log"
        self._require_hash(computed, row.hash, what, "payload")
        self.ends["events"] = (number, row.hash)
        if row.type in DECISIONS:
            self.decided[number] = DECISIONS[row.type]
        if row.type in READABLE and not self.encrypted:
            self._read_facts(row.type, json.loads(row.payload))

    def _read_facts(self, type_: str, facts: Row) -> None:
        if type_ == "erased":
            fits = self.erasures.get(facts["record"]) == facts["rows_hash"]
            must(fits, "the manifest lacks this erasure")
            self.logged_erasures.add(facts["record"])
            return
        metadata_hash = facts.get("metadata", "")
        totals = facts.get("figures", {})
        if metadata_hash or totals:
            self.noted[facts.get("seq", -1)] = (metadata_hash, totals)

    def _end_before(self, part: str, next_: int) -> tuple[int, str]:
        """Return (number, hash) of the row before row `next_` of a chain: that of the
        last removed stretch that begins exactly where the chain stands, if any.
        """
        number, hash_ = self.ends[part]
        while True:
            stretch = self.removed[part].get(number + 1)
            if not stretch or stretch[1] != hash_ or stretch[0] >= next_:
                return number, hash_
            number, _, hash_ = stretch

    def check_line(self, row: Fields) -> None:
        self.departures[row.departure] = row.departure_hash

    def check_checkpoint(self, row: Fields) -> None:
        number = row.seq
        parent_hash = self._parent_hash(row)
        fits = self.body.parent_hash == parent_hash
        must(fits, f"checkpoint {number} does not follow its parent")
        self._require_digest(row, "change")
        # A checkpoint without a snapshot has an empty hash of it.
        snapshot = row.snapshot
        if snapshot:
            snapshot = digest(snapshot)
        self._require_hash(snapshot, row.snapshot_hash, "the snapshot", "snapshot")
        derived = {"parent_hash": parent_hash, "committed": int(row.committed)}
        computed = row_hash(row, CHECKPOINT, **derived)
        self._require_hash(computed, row.content_hash, f"checkpoint {number}")
        departure_hash = self.departures.get(row.id, row.content_hash)
        must(departure_hash == row.content_hash, "a line departs otherwise")
        self.ends["checkpoints"] = (number, row.content_hash)
        self.checkpoint = row.id

    def _parent_hash(self, row: Fields) -> Any:
        last, last_hash = self.ends["checkpoints"]
        number, before = self._end_before("checkpoints", row.seq)
        must(row.seq == number + 1, f"checkpoint {number + 1} is missing")
        if not row.parent:
            return ""
        if row.parent == self.checkpoint:
            return last_hash
        if row.parent in self.departures:
            return self.departures[row.parent]
        # After a removed stretch, the parent is the last row of that stretch.
        if number != last:
            return before
        # The first one of a fork that a store made may follow any other.
        if row.seq == 0:
            return self.body.parent_hash
        return "missing"

    def check_write(self, row: Fields) -> None:
        base = digest(self.body.get("binding", ""))
        self._require_hash(base, row.bound_hash, "the base", "base")
        task = f"{row.node}:{row.visit}:{row.index}"
        computed = row_hash(row, WRITE, task=task)
        what = "this revision of a write"
        self._require_hash(computed, row.hash, what, "value", "shown")
        value_hash = ""
        if not self.encrypted and "value" not in self.erased:
            value_hash = digest(row.value)
        revisions = self.revisions.setdefault(row.write, {})
        revisions[row.hash] = (row.revision, value_hash)
        self.staged.setdefault(row.write, {})[row.revision] = row.staged_at
        if not self.encrypted and "shown" not in self.erased:
            self._note_question(row)

    def _note_question(self, row: Fields) -> None:
        """Note a revision about which people are asked, and that nobody has answered."""
        shown = json.loads(row.shown)
        question = shown.get("ask")
        if question and not question["answered"]:
            self.unanswered.add(row.hash)

    def check_metadata(self, row: Fields) -> None:
        if self.erased:
            self.metadata_erased = True
        self.metadata.setdefault(row.seq, {})[row.name] = row.value

    def check_figure(self, row: Fields) -> None:
        sums = self.figures.setdefault(row.seq, {})
        sums[row.name] = sums.get(row.name, 0) + row.millionths

    def check_request(self, row: Fields) -> None:
        policy = row.policy
        is_signed_under = digest(canonical_json(policy)) == row.policy_hash
        must(is_signed_under, "the policy is not the one that was signed under")
        # Where an amount decides, only its installation can say.
        is_needed = policy.get("confirm") == "passkey" and "confirm_above" not in policy
        self.requests[row.id] = is_needed
        if policy.get("skip"):
            self.skippable.add(row.id)
        if "auto_after" in policy:
            self.windows[row.id] = policy["auto_after"]
        if row.status != "applied" or row.outcome != "approved":
            return
        # Nothing of a patch is applied that another of its gates rejected.
        if "veto" in policy and row.node != "$patch":
            self.let_pass.add(row.id)

    def check_receipt(self, row: Fields) -> None:
        assertion = row.get("assertion")
        if assertion is not None:
            # A fault is named with the decision that it is about.
            document = assertion["document"]
            self.assertions[row.id] = (document, fault_of_assertion(assertion))

    def check_decision(self, row: Fields) -> None:
        number = row.event_seq
        nobody_asked = row.verdict == "not_needed"
        if number in self.decided:
            fits = self.decided[number] == nobody_asked
        else:
            stretches = self.removed["events"].items()
            fits = any(first <= number <= stretch[0] for first, stretch in stretches)
        must(fits, "the log does not speak of this decision")
        if not nobody_asked:
            self._require_decided_revision(row)
            self._require_passkey(row)
            self._require_window(row)
            self._note_veto(row)

    def _require_window(self, row: Fields) -> None:
        """Require that a policy signed only after the window of the revision."""
        window = self.windows.get(row.request)
        if window is None or row.verdict != "approve":
            return
        # Nobody has to wait but policies.
        if row.receipt:
            return
        if not row.by_name.startswith(POLICIES):
            return
        staged_at = self.staged[row.write][row.revision]
        waited = seconds_between(staged_at, row.at)
        is_over = waited >= window
        must(is_over, "a policy signed it before its window was over")

    def _note_veto(self, row: Fields) -> None:
        if row.verdict not in VETO_ANSWERS:
            return
        answer = (row.event_seq, row.verdict, row.request)
        before = self.vetoes.get(row.write, answer)
        self.vetoes[row.write] = max(answer, before)

    def _require_decided_revision(self, row: Fields) -> None:
        must(row.request in self.requests, "the request of this decision is missing")
        revisions = self.revisions.get(row.write, {})
        number, seen_hash = revisions.get(row.seen_hash, (row.revision + 1, ""))
        must(number <= row.revision, "what was seen is no revision of the write")
        decided_hash = dict(revisions.values()).get(row.revision)
        must(decided_hash is not None, "the revision that was decided is missing")
        if row.verdict not in WITHOUT_FINAL:
            self._require_final_value(row, decided_hash)
        elif not self.encrypted:
            must(not row.final_value, f"a decision to {row.verdict} has a final value")
        is_skippable = row.request in self.skippable
        must(row.verdict != "skip" or is_skippable, "its gate lets nobody skip")
        # Only an edit may decide another value than the one that was seen.
        if row.verdict == "approve":
            is_answered = row.seen_hash not in self.unanswered
            must(is_answered, "it approves what nobody has answered")
            self._require_final_value(row, seen_hash)

    def _require_final_value(self, row: Fields, value_hash: Any) -> None:
        # The hash is empty if the value cannot be read.
        if not value_hash:
            return
        computed = digest(row.final_value)
        what = "the value that was signed"
        self._require_hash(computed, value_hash, what, "final_value")

    def _require_passkey(self, row: Fields) -> None:
        """Require that a passkey signed this decision where it says so, or its gate asks
        every person for one.
        """
        document, fault = self.assertions.get(row.receipt, (None, ""))
        what = f"decision {row.id}"
        if row.get("confirmed_by") != "passkey":
            must(document is None, f"{what} denies the passkey that signed it")
            is_missing = self.requests[row.request] and row.receipt is not None
            must(not is_missing, f"{what} lacks the passkey that its gate asks for")
            return
        must(document is not None, f"the signature of the passkey of {what} is missing")
        must(not fault, f"the passkey's signature of {what} does not hold: {fault}")
        revision, _ = self.revisions[row.write][row.seen_hash]
        decided = {
            "run": row.run,
            "by": row.by_name,
            "request": row.request,
            "write": row.write,
            "revision": revision,
            "hash": row.seen_hash,
            "verdict": row.verdict,
            "for": row.get("delegator_name") or "",
        }
        line = signed_line(document or {}, decided)
        must(line is not None, f"the passkey of {what} signed something else")
        if row.verdict == "edit":
            self._require_signed(row, "final_value", line.get("value_hash", ""))
        if row.reason or "reason_hash" in line:
            self._require_signed(row, "reason", line.get("reason_hash", ""))

    def _require_signed(self, row: Fields, column: str, hash_: str) -> None:
        what = f"what the passkey of decision {row.id} signed as {column}"
        self._require_hash(digest(row[column]), hash_, what, column)

    def check_comment(self, row: Fields) -> None:
        must(row.request in self.requests, "the request of this comment is missing")

    def check_counts(self, body: Fields) -> None:
        run = self.run_row
        # Bundles of earlier versions leave out the kinds that these did not have.
        counts = {**dict.fromkeys(ROWS, 0), **body.counts}
        must(counts == self.counts, "the rows are not as many as were written")
        if not self.encrypted:
            self._require_notes()
        end = self._end_before("events", run.event_seq + 1)
        fits = end == (run.event_seq, run.event_hash)
        must(fits, "the log does not end where the run says")
        last = (*self.ends["checkpoints"], self.checkpoint)
        fits = last == (run.head_seq, run.head_hash, run.head)
        must(fits, "the head is not the last checkpoint")
        for _, answer, request in self.vetoes.values():
            is_kept_open = answer == "veto" and request in self.let_pass
            must(not is_kept_open, "what its veto kept open was applied")
        fits = self.counts["decision"] == run.decisions
        must(fits, "the run counts other decisions")
        if not self.encrypted:
            fits = self.logged_erasures == {*self.erasures}
            must(fits, "the log does not tell of each erasure")

    def _require_notes(self) -> None:
        """Require that metadata and figures have the hashes and totals of the log."""
        for seq, (metadata_hash, totals) in self.noted.items():
            sums = self.figures.pop(seq, {})
            must(sums == totals, "the log says other totals of the figures")
            values = self.metadata.pop(seq, {})
            computed = ""
            if values:
                names = sorted(values)
                entries = [f"{json.dumps(name)}:{values[name]}" for name in names]
                computed = digest("{" + ",".join(entries) + "}")
            fits = computed == metadata_hash or self.metadata_erased
            must(fits, "the log says another hash of the metadata")
        # The event of what is over may be in a removed stretch.
        fits = bool(self.removed["events"]) or not (self.metadata or self.figures)
        must(fits, "the log does not speak of these notes")

    def _require_hash(self, computed: str, hash_: str, what: str, *over: str) -> None:
        # Hashes of encrypted runs are keyed; one over an erased column is of its past.
        is_comparable = not self.encrypted and not self.erased & {*over}
        must(not is_comparable or computed == hash_, f"{what} has another hash")

    def _require_digest(self, row: Fields, column: str) -> None:
        hash_ = row[f"{column}_hash"]
        self._require_hash(digest(row[column]), hash_, f"the {column}", column)


def must(fits: bool, reason: str) -> None:
    if not fits:
        raise ValueError(reason)


def parsed(body: bytes, number: int) -> Row:
    """Return the JSON object of a line. Raises `Bad` if it is not one."""
    try:
        # Python would accept NaN, which JSON does not have.
        no_nan = partial(must, False)
        text = body.decode()
        value = json.loads(text, object_pairs_hook=_object, parse_constant=no_nan)
    except (ValueError, RecursionError) as error:
        reason = f"the line is not valid JSON, or is nested too deeply: {error}"
        raise Bad(number, reason[:200]) from None
    if not isinstance(value, dict):
        raise Bad(number, "the line is no object")
    return value


def _object(pairs: list[tuple[str, Any]]) -> Row:
    value = dict(pairs)
    must(len(value) == len(pairs), "a key is given more than once")
    return value


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds from one moment to another, both as rows have them."""
    begin = datetime.fromisoformat(earlier)
    end = datetime.fromisoformat(later)
    waited = end - begin
    return waited.total_seconds()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def row_hash(row: Fields, columns: str, **derived: Any) -> str:
    """Return the hash over these columns of a row, and what is derived from it."""
    values = {**row, **derived}
    parts = []
    for name in columns.split():
        value = values[name]
        if name in PAYLOADS:
            value = value.encode()
        parts.append(value)
    return framed_hash(*parts)


def framed_hash(*parts: Any) -> str:
    """Hash a JSON list in which [n] stands for a part of n bytes, then those bytes."""
    frame: list[Any] = []
    payloads = b""
    for part in parts:
        if isinstance(part, bytes):
            frame.append([len(part)])
            payloads += part
        else:
            frame.append(part)
    text = json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()
    return hashlib.sha256(text + payloads).hexdigest()


# What a passkey signed.


def fault_of_assertion(assertion: Row) -> str:
    """Return why an assertion does not prove that its key signed its document, its
    person present and verified; empty if it does.

    `assertion`: {document, public_key, fingerprint, client_data, authenticator_data,
    signature}, the key (SubjectPublicKeyInfo, DER) and the last three in base64.
    """
    try:
        _require_assertion(assertion)
    except InvalidSignature:
        return "its signature is not of its key"
    except ValueError as error:
        return str(error)
    except (*NONSENSE, UnsupportedAlgorithm) as error:
        return f"it does not say what it must: {error!r}"[:200]
    return ""


def _require_assertion(assertion: Row) -> None:
    document = assertion["document"]
    must(document["type"] == DOCUMENT, "its document is of an unknown type")
    public_key = _bytes(assertion, "public_key")
    is_of_key = fingerprint_of(public_key) == assertion["fingerprint"]
    must(is_of_key, "its key has another fingerprint")

    client_data = _bytes(assertion, "client_data")
    client = json.loads(client_data, object_pairs_hook=_object)
    must(client["type"] == "webauthn.get", "it is no assertion")
    is_of_origin = client["origin"] == document["origin"]
    must(is_of_origin, "it was made on a page of another origin")
    challenge = base64.urlsafe_b64encode(challenge_of(document)).decode().rstrip("=")
    must(client["challenge"] == challenge, "it is over something else")

    data = _bytes(assertion, "authenticator_data")
    site_hash = hashlib.sha256(document["rp_id"].encode()).digest()
    must(data[:FLAGS_AT] == site_hash, "it was made for another site")
    must(bool(data[FLAGS_AT] & PRESENT), "nobody was present")
    must(bool(data[FLAGS_AT] & VERIFIED), "its person was not verified")

    # This is what WebAuthn signs.
    signed = data + hashlib.sha256(client_data).digest()
    _require_signed_by(public_key, _bytes(assertion, "signature"), signed)


def _require_signed_by(public_key: bytes, signature: bytes, signed: bytes) -> None:
    key = load_der_public_key(public_key)
    if isinstance(key, EllipticCurvePublicKey):
        key.verify(signature, signed, ECDSA(SHA256()))
    elif isinstance(key, Ed25519PublicKey):
        key.verify(signature, signed)
    elif isinstance(key, RSAPublicKey):
        key.verify(signature, signed, PKCS1v15(), SHA256())
    else:
        raise ValueError("its key is of an unknown kind")


def _bytes(assertion: Row, name: str) -> bytes:
    return base64.b64decode(assertion[name], validate=True)


def challenge_of(document: Row) -> bytes:
    """Return the challenge for a document: the SHA-256 of its canonical JSON."""
    return bytes.fromhex(digest(canonical_json(document)))


def canonical_json(value: Row) -> str:
    """Return the canonical JSON of a value of texts, whole numbers, and short
    fractions.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint_of(public_key: bytes) -> str:
    """Return the fingerprint of a public key (SubjectPublicKeyInfo, DER), which people
    compare: its SHA-256 in hex.
    """
    return hashlib.sha256(public_key).hexdigest()


def signed_line(document: Row, decided: Row) -> Any:
    """Return what a document says of one decision; None unless it is this one: {run, by,
    request, write, revision, hash, verdict, for: whose right it used, if another's}.
    """
    of_write = []
    for line in document["decisions"]:
        if line["write"] == decided["write"]:
            of_write.append(line)
    if len(of_write) != 1:
        return None
    signed = {
        "for": "",
        **of_write[0],
        "run": document["run"],
        "by": document["by"],
    }
    for name, value in decided.items():
        if signed[name] != value:
            return None
    return of_write[0]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Verify a bundle of a run, offline.")
    parser.add_argument("file")
    digits = "64_HEXADECIMAL_DIGITS"
    parser.add_argument("--key", required=True, type=bytes.fromhex, metavar=digits)
    options = parser.parse_args(arguments)
    ok, bad_line, reason = verify(options.file, options.key)
    if ok:
        sys.stdout.write("ok\n")
        return 0
    sys.stdout.write(f"line {bad_line}: {reason}\n".removeprefix("line 0: "))
    return 1


if __name__ == "__main__":
    sys.exit(main())
