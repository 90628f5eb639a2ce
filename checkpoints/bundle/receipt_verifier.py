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
from checkpoints.bundle.verifier import (
    POLICIES,
    WITHOUT_FINAL,
    Bad,
    Verdict,
    fault_of_assertion,
    framed_hash,
    seconds_between,
    signed_line,
)
from checkpoints.core.strict_json import parse_strict
from checkpoints.core.tombstone import TEXT, holds_tombstone
from checkpoints.core.visible_text import LONGEST_LABEL
from orchestrator.engine.graphs.confirmation import PASSKEY, confirmation_needed
from orchestrator.engine.graphs.standing_policy import reason_against
from orchestrator.engine.values import canonical

TYPE = "countersign-receipt-1"
PAYLOAD_TYPE = "application/vnd.countersign.receipt+json"
ERASED = "what was erased in it cannot be compared with its hash"
HIDDEN = "it hides its values, so none of them was compared with its hash"
UNASKED = "nobody was asked, so no hash covers its values"
UNCOVERED = "the hash of what was signed does not cover"
NO_PASSKEY = "the gate asked for a passkey, and there is none in this receipt"
UNKNOWN_AMOUNT = (
    "no passkey signed it, and without its amount nobody can say whether the gate asked"
    " for one"
)
UNKNOWN_WINDOW = "it does not say when the window began before which no policy signs"
NOBODY = ("", "the deadline", "the veto")
"""The deciders that are not people."""
_VALUES = ("old_value", "proposed_value", "final_value")
_SIDES = ("seen", "signed")


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
        reservations = [*_uncompared(receipt), _missing_passkey(receipt)]
        reservations.append(_uncompared_window(receipt))
    except Bad as error:
        return Verdict(False, 0, error.args[1])
    except Exception as error:
        reason = f"it does not say what it must: {type(error).__name__}: {error}"[:200]
        # A reason may quote the file, whose control characters must not reach a
        # terminal.
        return Verdict(False, 0, reason.encode("unicode_escape").decode())
    return Verdict(True, 0, "; ".join(filter(None, reservations)))


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
        _require_policy(receipt)
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
    _require_limits(receipt)
    _require_policy(receipt)
    _require_label(write["label"], seen)


def _require_limits(receipt: dict[str, Any]) -> None:
    """Raise `Bad` if a standing policy signed what is not within its limits."""
    standing = receipt["decision"].get("standing")
    final = receipt["write"]["final_value"]
    if not standing or receipt["hidden"] or holds_tombstone(final):
        return
    why = reason_against(standing["limits"], receipt["write"]["channel"], final)
    _require(not why, f"it is not within the limits of its policy: {why}")


def _require_policy(receipt: dict[str, Any]) -> None:
    """Raise `Bad` if the policy is not the one under which the write was decided."""
    request = receipt["request"]
    if request is None:
        return
    hash_ = canonical.digest(canonical.dumps(request["policy"]))
    write = receipt["write"]
    hashes = {request["policy_hash"], *(write[name]["policy_hash"] for name in _SIDES)}
    _require(hashes == {hash_}, "the policy is not the one that was signed under")
    is_skipped = receipt["decision"]["verdict"] == "skip"
    is_skippable = request["policy"].get("skip") is True
    _require(not is_skipped or is_skippable, "its gate lets nobody skip")


def _require_label(label: Any, seen: dict[str, Any]) -> None:
    """Raise `Bad` if a label is not the one that was shown, as far as that is proven."""
    if _is_hashed(seen) and "label" in seen["shown"]:
        # A column holds the beginning of a long one.
        is_shown = str(seen["shown"]["label"])[:LONGEST_LABEL] == label
        _require(is_shown, "the label is not the one that was seen")


def _is_hashed(revision: dict[str, Any]) -> bool:
    """Return whether the hash of a revision can be computed: nothing of it was erased."""
    return not holds_tombstone([revision["value"], revision["shown"]])


def _uncompared(receipt: dict[str, Any]) -> list[str]:
    """Return sentences on what stands in a receipt and could not be compared with what
    was signed.
    """
    if receipt["hidden"]:
        return [HIDDEN]
    if receipt["request"] is None:
        return [UNASKED]
    sentences: list[str] = []
    for sentence, names in (
        (ERASED, _erased(receipt)),
        (UNCOVERED, _uncovered(receipt)),
    ):
        if names:
            sentences.append(f"{sentence}: {', '.join(names)}")
    return sentences


def _erased(receipt: dict[str, Any]) -> list[str]:
    """Return the names of what was erased, or is said to have been."""
    write = receipt["write"]
    values = {
        "old value": write["old_value"],
        "proposed value": write["proposed_value"],
        "final value": write["final_value"],
        "what was seen": [write["seen"]["value"], write["seen"]["shown"]],
        "what was signed": [write["signed"]["value"], write["signed"]["shown"]],
    }
    names = [name for name, value in values.items() if holds_tombstone(value)]
    # Part of a reason's text may have been erased.
    if TEXT in (receipt["decision"]["reason"] or ""):
        names.append("reason")
    return names


def _uncovered(receipt: dict[str, Any]) -> list[str]:
    """Return the names of the entries beside the values that the hash of what was seen
    or signed does not cover.
    """
    write = receipt["write"]
    proven = [write[side] for side in _SIDES if _is_hashed(write[side])]
    names: list[str] = []
    # Where more is bound than the old value, the hash of all of it is there alone.
    binding = canonical.dumps({"shows": {}, "value": write["old_value"]})
    if canonical.digest(binding) not in [side["bound_hash"] for side in proven]:
        names.append("old value")
    if not any("label" in side["shown"] for side in proven):
        names.append("label")
    for name in ("title", "facts"):
        shown = [canonical.dumps(side["shown"].get(name)) for side in proven]
        if canonical.dumps(receipt["request"][name]) not in shown:
            names.append(name)
    return names


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
    fault = fault_of_assertion(assertion)
    _require(not fault, f"the passkey's signature does not hold: {fault}")
    if fingerprint:
        is_expected = assertion["fingerprint"] == fingerprint.lower()
        _require(is_expected, "another passkey signed it")
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
    # A policy that leaves something to people signs nothing.
    if receipt["decision"]["verdict"] == "no_auto":
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


def _uncompared_window(receipt: dict[str, Any]) -> str:
    """Return what cannot be said about the window of what a policy signed, else empty.
    Raises `Bad` if it was signed before its window was over.
    """
    decision = receipt["decision"]
    request = receipt["request"]
    if request is None or decision["verdict"] != "approve":
        return ""
    window = request["policy"].get("auto_after")
    staged_at = receipt["write"]["signed"].get("staged_at")
    if window is None:
        return ""
    if staged_at is None:
        # It does not apply to people, who need not wait.
        return UNKNOWN_WINDOW if decision["by"].startswith(POLICIES) else ""
    is_over = seconds_between(staged_at, decision["at"]) >= window
    _require(is_over, "a policy signed it before its window was over")
    return ""


def _require_signed_line(receipt: dict[str, Any], document: dict[str, Any]) -> None:
    """Raise `Bad` if what a passkey signed is not this decision."""
    decision = receipt["decision"]
    write = receipt["write"]
    decided = {
        "run": receipt["run"]["id"],
        "by": decision["by"],
        "request": receipt["request"]["id"],
        "write": write["id"],
        "hash": decision["seen_hash"],
        "revision": write["seen"]["revision"],
        "verdict": decision["verdict"],
        "for": decision["delegator"],
    }
    line = signed_line(document, decided)
    if line is None:
        raise Bad(0, "its passkey signed another decision")
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
    if verdict in WITHOUT_FINAL:
        _require(final is None, f"a decision to {verdict} has a final value")
        return
    _require_same(
        final,
        write["signed"]["value"],
        "the final value is not the one that was signed",
    )
    # Only an edit decides another value than was seen.
    if verdict == "approve":
        question = write["seen"]["shown"].get("ask", {})
        is_empty = question.get("answered") is False
        _require(not is_empty, "it approves what nobody has answered")
        seen_value = write["seen"]["value"]
        _require_same(final, seen_value, "what was approved is not what was seen")


def _require_hash(
    receipt: dict[str, Any],
    revision: dict[str, Any],
    hash_: str,
    what: str,
) -> None:
    """Raise `Bad` if a revision does not have this hash. An erased value has none."""
    run = receipt["run"]
    write = receipt["write"]
    if not _is_hashed(revision):
        return
    computed = framed_hash(
        run["id"],
        run["line"],
        write["task"],
        write["position"],
        revision["revision"],
        write["channel"],
        canonical.dumps(revision["value"]),
        revision["bound_hash"],
        revision["policy_hash"],
        canonical.dumps(revision["shown"]),
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
