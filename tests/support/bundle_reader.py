"""A second verifier of bundles, written from docs/bundles.md alone: it shares no code
with the product.
"""

import base64
import hashlib
import json
import re
from datetime import datetime, timedelta
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

_LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})","body":(\{.*\})\}\n', re.DOTALL)
_ONE = ["manifest", "run", "counts", "signature"]
_ORDER = [
    "manifest",
    "run",
    "event",
    "line",
    "checkpoint",
    "write",
    "result",
    "late_result",
    "landing",
    "memory_record",
    "request",
    "receipt",
    "decision",
    "seals",
    "counts",
    "signature",
]


class Wrong(Exception):
    """The number of a line, and what is wrong with it."""


def first_bad_line(data: bytes, public_key: bytes) -> int:
    """0 where all fits, else the number of the first bad line."""
    try:
        bodies = _bodies(data)
        _signed(bodies, data[data.rfind(b"\n", 0, -1) + 1 :][82:-2], public_key)
        _fits([body for body, _ in bodies])
    except Wrong as wrong:
        return wrong.args[0]
    return 0


def _bodies(data: bytes) -> list[tuple[dict[str, Any], str]]:
    collected = []
    before = "0" * 64
    for number, line in enumerate(_split(data), start=1):
        match = _LINE.fullmatch(line)
        if (
            match is None
            or hashlib.sha256(before.encode() + match[2]).hexdigest()
            != match[1].decode()
        ):
            raise Wrong(number)
        before = match[1].decode()
        collected.append((match[2], before))
    return [
        (_object(body, n), hash_) for n, (body, hash_) in enumerate(collected, start=1)
    ]


def _split(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _object(body: bytes, number: int) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise Wrong(number)
        return dict(pairs)

    try:
        return json.loads(body, object_pairs_hook=once)
    except ValueError:
        raise Wrong(number) from None


def _signed(
    bodies: list[tuple[dict[str, Any], str]], line: bytes, public_key: bytes
) -> None:
    end = len(bodies)
    if not bodies or not line.startswith(b'{"kind":"signature"'):
        raise Wrong(end + 1)
    said = bodies[-1][0]
    last = bodies[-2][1] if end > 1 else "0" * 64
    written = [str(end - 1).encode(), last.encode(), public_key.hex().encode()]
    form = (
        b'{"kind":"signature","lines":%b,"last":"%b","key":"%b","signature":"([0-9a-f]{128})"}'
        % tuple(written)
    )
    if not re.fullmatch(form, line):
        raise Wrong(end)
    text = f"countersign-bundle-1\n{said['key']}\n{said['lines']}\n{said['last']}\n"
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(
            bytes.fromhex(said["signature"]), text.encode()
        )
    except (InvalidSignature, ValueError):
        raise Wrong(end) from None


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _framed(*parts: Any) -> str:
    """Parts of bytes are given as ("bytes", text)."""
    texts = [part[1].encode() for part in parts if isinstance(part, tuple)]
    head = [
        [len(part[1].encode())] if isinstance(part, tuple) else part for part in parts
    ]
    listed = json.dumps(head, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(listed.encode() + b"".join(texts)).hexdigest()


class _Progress:
    """What was read so far."""

    def __init__(self, manifest: dict[str, Any], run: dict[str, Any]) -> None:
        self.manifest = manifest
        self.run = run
        self.plain = not manifest["encrypted"]
        self.log: dict[int, tuple[str, str]] = {0: ("", "")}
        self.points: list[dict[str, Any]] = []
        self.departures: dict[str, str] = {}
        self.writes: dict[str, list[dict[str, Any]]] = {}
        self.requests: dict[str, dict[str, Any]] = {}
        self.receipts: dict[str, dict[str, Any]] = {}
        self.vetoed: dict[str, dict[str, tuple[int, str]] | None] = {}
        self.erasures = {
            erasure["id"]: erasure["rows_hash"] for erasure in manifest["erasures"]
        }
        self.ended: set[str] = set()
        for first, last, *_ in [
            *manifest["removed"]["events"],
            *manifest["removed"]["checkpoints"],
        ]:
            if (type(first), type(last)) != (int, int) or first > last:
                raise Wrong(1)

    def behind(self, part: str, number: int, hash_: str, seen: int) -> tuple[int, str]:
        """Return the number and hash of the row after which a chain continues, past
        stretches that were removed.
        """
        for first, last, before, after in sorted(self.manifest["removed"][part]):
            if (first, before) == (number + 1, hash_) and last < seen:
                number = last
                hash_ = after
        return number, hash_


def _in_order(kinds: list[Any]) -> None:
    for number, kind in enumerate(kinds, start=1):
        before = kinds[number - 2] if number > 1 else None
        late = before is not None and _ORDER.index(kind) < _ORDER.index(before)
        if kind not in _ORDER or late or (kind in _ONE and kind == before):
            raise Wrong(number)


def _fits(bodies: list[dict[str, Any]]) -> None:
    kinds = [body.get("kind") for body in bodies]
    _in_order(kinds)
    if (
        bodies[0]["kind"] != "manifest"
        or bodies[0]["format"] != "countersign-bundle-1"
        or bodies[0]["as_is"]
    ):
        raise Wrong(1)
    if bodies[1]["kind"] != "run" or bodies[1]["row"]["id"] != bodies[0]["run"]:
        raise Wrong(2)
    progress = _Progress(bodies[0], bodies[1]["row"])
    for number, body in enumerate(bodies, start=1):
        if number > 2 and "row" in body and body["row"]["run"] != progress.run["id"]:
            raise Wrong(number)
        if not _covered(progress, body):
            raise Wrong(number)
        check = globals().get(f"_{body['kind']}")
        if check is not None and not check(progress, body):
            raise Wrong(number)
    if kinds[-2] != "counts":
        raise Wrong(len(bodies))
    rows = {kind: kinds.count(kind) for kind in _ORDER[1:13]}
    if bodies[-2]["counts"] != rows:
        raise Wrong(len(bodies) - 1)


def _erased(body: dict[str, Any]) -> set[str]:
    return set(body.get("erased", {"columns": {}})["columns"])


def _covered(progress: _Progress, body: dict[str, Any]) -> bool:
    """Return whether the manifest names the erasure of a row, and what stands there now
    is what the note says.
    """
    if not _erased(body):
        return True
    note = body["erased"]
    row = body["row"]
    fits = all(_sha(row[column]) == hash_ for column, hash_ in note["columns"].items())
    return note["record"] in progress.erasures and (fits or not progress.plain)


def _run(progress: _Progress, body: dict[str, Any]) -> bool:
    row = body["row"]
    fits = "input" in _erased(body) or _sha(row["input"]) == row["input_hash"]
    return row["encrypted"] is not progress.plain and (not progress.plain or fits)


def _event(progress: _Progress, body: dict[str, Any]) -> bool:
    row = body["row"]
    last = max(progress.log)
    number, before = progress.behind("events", last, progress.log[last][0], row["seq"])
    names = ("run", "seq", "type", "at", "node", "task", "actor")
    made = (
        _framed(before, *(row[name] for name in names), ("bytes", row["payload"]))
        if progress.plain
        else row["hash"]
    )
    progress.log[row["seq"]] = (row["hash"], row["type"])
    if row["type"] == "erased" and progress.plain:
        document = json.loads(row["payload"])
        if progress.erasures.get(document["record"]) != document["rows_hash"]:
            return False
        progress.ended.add(document["record"])
    return row["seq"] == number + 1 and (
        made == row["hash"] or "payload" in _erased(body)
    )


def _line(progress: _Progress, body: dict[str, Any]) -> bool:
    progress.departures[body["row"]["departure"]] = body["row"]["departure_hash"]
    return True


def _checkpoint(progress: _Progress, body: dict[str, Any]) -> bool:
    row = body["row"]
    last = progress.points[-1] if progress.points else None
    at = (last["seq"], last["content_hash"]) if last else (-1, "")
    number, before = progress.behind("checkpoints", at[0], at[1], row["seq"])
    parent = row["parent"]
    if parent is None:
        expected = ""
    elif parent in progress.departures:
        expected = progress.departures[parent]
    elif last is not None and parent == last["id"]:
        expected = last["content_hash"]
    elif number != at[0]:
        expected = before
    else:
        expected = body["parent_hash"] if row["seq"] == 0 else None
    progress.points.append(row)
    fits = row["seq"] == number + 1 and body["parent_hash"] == expected
    if progress.plain and fits:
        names = ("run", "line", "seq", "superstep", "source", "fingerprint", "format")
        header = [*(row[name] for name in names), 1 if row["committed"] else 0]
        made = _framed(
            expected, *header, row["event_seq"], row["event_hash"], row["change_hash"]
        )
        snapshot = _sha(row["snapshot"]) if row["snapshot"] else ""
        now = {"change": _sha(row["change"]), "snapshot": snapshot}
        fits = all(now[name] == row[f"{name}_hash"] for name in {*now} - _erased(body))
        fits = fits and made == row["content_hash"]
    return (
        fits
        and progress.departures.get(row["id"], row["content_hash"])
        == row["content_hash"]
    )


def _write(progress: _Progress, body: dict[str, Any]) -> bool:
    row = body["row"]
    progress.writes.setdefault(row["write"], []).append(
        {**row, "erased": "value" in _erased(body)}
    )
    if not progress.plain:
        return True
    based = (
        "base" in _erased(body) or _sha(body.get("binding", "")) == row["bound_hash"]
    )
    task = "{node}:{visit}:{index}".format(**row)
    address = [
        row["run"],
        row["line"],
        task,
        row["position"],
        row["revision"],
        row["channel"],
    ]
    made = _framed(
        *address,
        ("bytes", row["value"]),
        row["bound_hash"],
        row["policy_hash"],
        ("bytes", row["shown"]),
    )
    return based and (made == row["hash"] or bool({"value", "shown"} & _erased(body)))


def _request(progress: _Progress, body: dict[str, Any]) -> bool:
    policy = body["row"]["policy"]
    row = body["row"]
    progress.requests[row["id"]] = policy
    if (row["status"], row["outcome"]) == ("applied", "approved") and "veto" in policy:
        progress.vetoed[row["id"]] = {} if row["node"] != "$patch" else None
    text = json.dumps(policy, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return _sha(text) == body["row"]["policy_hash"]


def _receipt(progress: _Progress, body: dict[str, Any]) -> bool:
    progress.receipts[body["row"]["id"]] = body["row"]
    return True


def _confirmed(
    progress: _Progress, body: dict[str, Any], seen: list[dict[str, Any]]
) -> bool:
    """Return whether a passkey signed a decision where it must have. Its keys are of
    P-256 here.
    """
    row = body["row"]
    signed = progress.receipts.get(row["receipt"], {}).get("assertion")
    if row["confirmed_by"] != "passkey":
        policy = progress.requests[row["request"]]
        asked = policy.get("confirm") == "passkey" and "confirm_above" not in policy
        return signed is None and not (asked and row["receipt"])
    if signed is None:
        return False
    document = signed["document"]
    names = ("client_data", "authenticator_data", "signature", "public_key")
    client, data, signature, key = (base64.b64decode(signed[name]) for name in names)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    challenge = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
    browser = json.loads(client)
    try:
        over = data + hashlib.sha256(client).digest()
        load_der_public_key(key).verify(signature, over, ECDSA(SHA256()))  # type: ignore
    except InvalidSignature:
        return False
    fits = (
        browser["type"] == "webauthn.get"
        and browser["origin"] == document["origin"]
        and browser["challenge"] == challenge.decode().rstrip("=")
        and document["type"] == "countersign-passkey-1"
        and data[:32] == hashlib.sha256(document["rp_id"].encode()).digest()
        and data[32] & 5 == 5
        and hashlib.sha256(key).hexdigest() == signed["fingerprint"]
        and (document["run"], document["by"]) == (row["run"], row["by_name"])
    )
    lines = [
        decision
        for decision in document["decisions"]
        if decision["write"] == row["write"]
    ]
    if not fits or len(lines) != 1:
        return False
    told_line = {
        "request": row["request"],
        "write": row["write"],
        "revision": seen[0]["revision"],
        "hash": row["seen_hash"],
        "verdict": row["verdict"],
    }
    if (
        progress.plain
        and row["verdict"] == "edit"
        and "final_value" not in _erased(body)
    ):
        told_line["value_hash"] = _sha(row["final_value"])
    if progress.plain and row["reason"] and "reason" not in _erased(body):
        told_line["reason_hash"] = _sha(row["reason"])
    if row.get("delegator_name"):
        told_line["for"] = row["delegator_name"]
    elif "for" in lines[0]:
        return False
    return {**lines[0], **told_line} == lines[0]


def _decision(progress: _Progress, body: dict[str, Any]) -> bool:
    row = body["row"]
    nobody = body["row"]["verdict"] == "not_needed"
    removed = any(
        first <= row["event_seq"] <= last
        for first, last, _, _ in progress.manifest["removed"]["events"]
    )
    said = progress.log.get(row["event_seq"], ("", "removed" if removed else ""))[1]
    if said not in ("removed", "approval_not_needed" if nobody else "decision_signed"):
        return False
    if nobody:
        return True
    revisions = progress.writes.get(row["write"], [])
    seen = [
        revision
        for revision in revisions
        if revision["hash"] == row["seen_hash"]
        and revision["revision"] <= row["revision"]
    ]
    own = [
        revision for revision in revisions if revision["revision"] == row["revision"]
    ]
    if not (seen and own and row["request"] in progress.requests):
        return False
    if not _confirmed(progress, body, seen):
        return False
    _note_veto(progress, row)
    if not _is_late_enough(progress, row, own[0]["staged_at"]):
        return False
    if row["verdict"] == "skip" and not progress.requests[row["request"]].get("skip"):
        return False
    if row["verdict"] == "approve" and any(map(_is_unanswered, seen)):
        return False
    if progress.plain and row["verdict"] in ("reject", "skip", "veto", "no_auto"):
        return not row["final_value"]
    if not progress.plain or "final_value" in _erased(body):
        return True
    signed = [*own, *seen] if row["verdict"] == "approve" else own
    return all(one["erased"] or one["value"] == row["final_value"] for one in signed)


def _note_veto(progress: _Progress, row: dict[str, Any]) -> None:
    answers = progress.vetoed.get(row["request"])
    if row["verdict"] in ("veto", "no_veto") and answers is not None:
        answer = (row["event_seq"], row["verdict"])
        answers[row["write"]] = max(answer, answers.get(row["write"], answer))


def _is_late_enough(progress: _Progress, row: dict[str, Any], staged_at: str) -> bool:
    """Return whether a policy signed only after the window of what it signed."""
    window = progress.requests[row["request"]].get("auto_after")
    is_of_policy = row["by_name"].startswith(("the policy of ", "policy "))
    if row["verdict"] != "approve" or not window or row["receipt"] or not is_of_policy:
        return True
    end = datetime.fromisoformat(staged_at) + timedelta(seconds=window)
    return datetime.fromisoformat(row["at"]) >= end


def _is_unanswered(revision: dict[str, Any]) -> bool:
    """Return whether this revision of a question has no answer, where that can be read."""
    try:
        question = json.loads(revision["shown"]).get("ask", {})
    except (ValueError, AttributeError):
        return False
    return question.get("answered") is False


def _counts(progress: _Progress, body: dict[str, Any]) -> bool:
    run = progress.run
    last = max(progress.log)
    end = progress.behind("events", last, progress.log[last][0], run["event_seq"] + 1)
    point = (
        progress.points[-1]
        if progress.points
        else {"seq": None, "content_hash": None, "id": None}
    )
    head = (point["seq"], point["content_hash"], point["id"])
    fits = end == (run["event_seq"], run["event_hash"]) and head == (
        run["head_seq"],
        run["head_hash"],
        run["head"],
    )
    fits = fits and (not progress.plain or progress.ended == {*progress.erasures})
    for answers in progress.vetoed.values():
        fits = fits and all(last != "veto" for _, last in (answers or {}).values())
    return fits and body["counts"]["decision"] == run["decisions"]
