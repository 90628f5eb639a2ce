"""Verifies offline that a receipt is what its house signed, and that its values are
those that were signed.

`docs/bundles.md` describes the file. The public key is given, never taken from it.
"""

import base64
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from checkpoints.bundle.envelope import authenticated_bytes
from checkpoints.bundle.passkey_assertion import (
    BadAssertion,
    fingerprint_of,
    verify_assertion,
)
from checkpoints.bundle.verifier import Bad, Verdict, framed_hash
from checkpoints.core.strict_json import parse_strict
from checkpoints.core.tombstone import TEXT, holds_tombstone
from orchestrator.engine.graphs.confirmation import PASSKEY, confirmation_needed
from orchestrator.engine.values import canonical

TYPE = "countersign-receipt-1"
PAYLOAD_TYPE = "application/vnd.countersign.receipt+json"
ERASED = "what was erased in it cannot be compared with its hash"
NO_PASSKEY = "the gate asked for a passkey, and there is none in this receipt"
UNKNOWN_AMOUNT = (
    "no passkey signed it, and without its amount nobody can say whether the gate asked"
    " for one"
)
NOBODY = ("", "the deadline")
"""Who decided where no person did."""
_VALUES = ("old_value", "proposed_value", "final_value")


def verify_receipt(
    file: bytes | str | Path, public_key: bytes, *, passkey: str = ""
) -> Verdict:
    """Return the verdict on a receipt, its bytes or a path. Never raises. `passkey` is
    the fingerprint of the key that its person must have signed with; without it a
    passkey's signature must hold where the receipt has one.
    """
    try:
        data = file if isinstance(file, bytes) else Path(file).read_bytes()
        receipt = _opened(data, public_key)
        _require_values(receipt)
        _require_passkey(receipt, passkey)
        reservation = _missing_passkey(receipt)
    except Bad as error:
        return Verdict(False, 0, error.args[1])
    except Exception as error:
        reason = f"it does not say what it must: {type(error).__name__}: {error}"[:200]
        # A reason may quote the file, and no terminal is to obey what is in there.
        return Verdict(False, 0, reason.encode("unicode_escape").decode())
    # Of a reason a part of the text may have been erased.
    reason = receipt["decision"]["reason"] or ""
    if holds_tombstone(receipt["write"]) or TEXT in reason:
        reservation = f"{ERASED}; {reservation}" if reservation else ERASED
    return Verdict(True, 0, reservation)


def _opened(data: bytes, public_key: bytes) -> dict[str, Any]:
    """Return the receipt in an envelope that this key signed. Raises `Bad`."""
    envelope = parse_strict(data)
    _require(envelope["payloadType"] == PAYLOAD_TYPE, "it is no receipt")
    payload = base64.b64decode(envelope["payload"], validate=True)
    [signature] = envelope["signatures"]
    try:
        signed = authenticated_bytes(PAYLOAD_TYPE, payload)
        key = Ed25519PublicKey.from_public_bytes(public_key)
        key.verify(base64.b64decode(signature["sig"], validate=True), signed)
    except (InvalidSignature, ValueError):
        raise Bad(0, "the signature is not of this key") from None

    # Nothing of the payload is read before its signature holds.
    receipt: dict[str, Any] = parse_strict(payload)
    is_known = receipt["type"] == TYPE
    _require(is_known, "it is a receipt of a type that is not known here")
    return receipt


def _require_values(receipt: dict[str, Any]) -> None:
    """Raise `Bad` if a value is not the one that the decision was bound to."""
    write = receipt["write"]
    decision = receipt["decision"]
    # Read before anything else, so that a receipt without them is refused.
    verdict = decision["verdict"]
    values = [write[name] for name in _VALUES]

    # Without values, or where no person decided, there is nothing to compare.
    if receipt["hidden"]:
        shows_none = values == [None] * len(values)
        _require(shows_none, "it shows values, though it says that it hides them")
        return
    if receipt["request"] is None:
        is_unasked = verdict == "not_needed"
        _require(is_unasked, "the request that was decided is missing")
        return

    seen = write["seen"]
    signed = write["signed"]
    _require_hash(receipt, seen, decision["seen_hash"], "what was seen")
    _require_hash(receipt, signed, signed["hash"], "what was signed")
    is_decided_one = signed["revision"] == decision["revision"]
    _require(is_decided_one, "what was signed is another revision")
    _require_same(
        write["proposed_value"],
        seen["value"],
        "the proposed value is not the one that was seen",
    )
    _require_final(verdict, write)


def _require_passkey(receipt: dict[str, Any], fingerprint: str) -> None:
    """Raise `Bad` if a passkey did not sign this decision, though the receipt says so or
    its reader expects it.
    """
    decision = receipt["decision"]
    assertion = receipt.get("assertion")
    if decision.get("confirmed_by") != "passkey":
        _require(assertion is None, "it carries a passkey's signature and denies it")
        _require(not fingerprint, "no passkey signed it")
        return
    if assertion is None:
        raise Bad(0, "the signature of its passkey is missing")
    try:
        verify_assertion(assertion)
    except BadAssertion as error:
        raise Bad(0, f"the passkey's signature does not hold: {error}") from error
    own = fingerprint_of(base64.b64decode(assertion["public_key"], validate=True))
    _require(own == assertion["fingerprint"], "the passkey has another fingerprint")
    if fingerprint:
        _require(own == fingerprint.lower(), "another passkey signed it")
    _require_signed_line(receipt, assertion["document"])


def _missing_passkey(receipt: dict[str, Any]) -> str:
    """Return what cannot be said about a passkey that is not there, else empty. Raises
    `Bad` if the gate asked for it.
    """
    request = receipt["request"]
    if receipt.get("assertion") is not None or request is None:
        return ""
    policy = request["policy"]
    if policy.get("confirm") != PASSKEY or receipt["decision"]["by"] in NOBODY:
        return ""
    write = receipt["write"]
    values = [write["seen"]["value"], write["signed"]["value"]]
    # What is hidden or erased may have been an amount that asks for none.
    if policy.get("confirm_above") is not None and (
        receipt["hidden"] or holds_tombstone(values)
    ):
        return UNKNOWN_AMOUNT
    if confirmation_needed(policy, write["channel"], values):
        raise Bad(0, NO_PASSKEY)
    return ""


def _require_signed_line(receipt: dict[str, Any], document: dict[str, Any]) -> None:
    """Raise `Bad` if what a passkey signed is not this decision."""
    decision = receipt["decision"]
    write = receipt["write"]
    lines = [line for line in document["decisions"] if line["write"] == write["id"]]
    _require(len(lines) == 1, "its passkey signed something else")
    [line] = lines
    decided = [
        receipt["run"]["id"],
        decision["by"],
        receipt["request"]["id"],
        decision["seen_hash"],
        write["seen"]["revision"],
        decision["verdict"],
    ]
    names = ("request", "hash", "revision", "verdict")
    signed = [document["run"], document["by"], *(line[name] for name in names)]
    _require(signed == decided, "its passkey signed another decision")
    # Hashes of an encrypted run are keyed, and its values are hidden.
    if receipt["hidden"]:
        return
    if decision["verdict"] == "edit":
        _require_hashed(write["final_value"], line["value_hash"], "edited value")
    reason = decision["reason"] or ""
    if TEXT in reason:
        return
    if reason or "reason_hash" in line:
        _require_hashed(reason, line.get("reason_hash", ""), "reason")


def _require_hashed(value: Any, hash_: str, what: str) -> None:
    if holds_tombstone(value):
        return
    computed = canonical.digest(canonical.dumps(value))
    _require(computed == hash_, f"its passkey signed another {what}")


def _require_final(verdict: str, write: dict[str, Any]) -> None:
    """Raise `Bad` if the final value does not fit the verdict."""
    final = write["final_value"]
    if verdict == "reject":
        _require(final is None, "a rejection has a final value")
        return
    _require_same(
        final,
        write["signed"]["value"],
        "the final value is not the one that was signed",
    )
    # Only an edit decides another value than was seen.
    if verdict == "approve":
        seen_value = write["seen"]["value"]
        _require_same(final, seen_value, "what was approved is not what was seen")


def _require_hash(
    receipt: dict[str, Any],
    revision: dict[str, Any],
    hash_: str,
    what: str,
) -> None:
    """Raise `Bad` if a revision does not have this hash. What was erased has none any
    more.
    """
    run = receipt["run"]
    write = receipt["write"]
    value = revision["value"]
    shown = revision["shown"]
    if holds_tombstone(value) or holds_tombstone(shown):
        return
    computed = framed_hash(
        run["id"],
        run["line"],
        write["task"],
        write["position"],
        revision["revision"],
        write["channel"],
        canonical.dumps(value),
        revision["bound_hash"],
        revision["policy_hash"],
        canonical.dumps(shown),
    )
    _require(computed == hash_, f"{what} has another hash")


def _require_same(value: Any, other: Any, reason: str) -> None:
    """Raise `Bad` if two values differ. One that was erased cannot be compared."""
    if holds_tombstone(value) or holds_tombstone(other):
        return
    _require(canonical.dumps(value) == canonical.dumps(other), reason)


def _require(fits: bool, reason: str) -> None:
    if not fits:
        raise Bad(0, reason)
