"""Examines whether decisions were confirmed as their gates ask, and whether the passkeys
that are said to have signed them did. Part of the examination of a run; reads only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints.bundle.verifier import fault_of_assertion, signed_line
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import Fault, Subject
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.graphs.confirmation import (
    PASSKEY,
    confirmation_needed,
    satisfies,
)


def unconfirmed(subject: Subject, decisions: Sequence[Decision]) -> Iterator[Fault]:
    """Yield a fault for each of these decisions that was not confirmed as its gate asks,
    or that its passkey did not sign. Their seals hold. Two queries.
    """
    signed = [row for row in decisions if row.receipt_id is not None]
    policies = _policies(signed)
    assertions = _assertions(signed)
    for row in signed:
        policy = policies.get(row.request_id, {})
        assertion = assertions.get(row.receipt_id)
        try:
            reason = _reason_against(subject, row, policy, assertion)
        except CountersignError as error:
            yield subject.refused(row, error)
            continue
        if reason:
            yield subject.fault(row, reason)


def _policies(decisions: Sequence[Decision]) -> dict[Any, dict[str, Any]]:
    """Return the policies under which a person had to confirm, by request."""
    ids = {row.request_id for row in decisions if row.request_id}
    requests = ApprovalRequest.objects.filter(id__in=ids, policy__has_key="confirm")
    return dict(requests.order_by().values_list("id", "policy"))


def _assertions(decisions: Sequence[Decision]) -> dict[Any, Any]:
    """Return what passkeys signed, by receipt."""
    ids = {row.receipt_id for row in decisions if row.receipt_id}
    receipts = Receipt.objects.filter(id__in=ids, assertion__isnull=False)
    return dict(receipts.order_by().values_list("id", "assertion"))


def _reason_against(
    subject: Subject,
    row: Decision,
    policy: Mapping[str, Any],
    assertion: Mapping[str, Any] | None,
) -> str:
    """Return what is wrong with how a decision was confirmed; empty if nothing is."""
    if not _is_confirmed(subject, row, policy):
        return f"was not confirmed by {policy['confirm']}, as its gate asks"
    if assertion is None:
        is_missing = row.confirmed_by == PASSKEY
        return "lacks the signature of its passkey" if is_missing else ""
    if row.confirmed_by != PASSKEY:
        return "denies the passkey that signed it"
    fault = fault_of_assertion(dict(assertion))
    if fault:
        return f"has a passkey's signature that does not hold: {fault}"
    if not _is_signed(subject, row, assertion["document"]):
        return "is another decision than its passkey signed"
    return ""


def _is_confirmed(subject: Subject, row: Decision, policy: Mapping[str, Any]) -> bool:
    """Return whether a decision was confirmed as its policy asks, as far as can be said
    where its amount was erased.
    """
    if not policy or satisfies(row.confirmed_by, policy["confirm"]):
        return True
    names = ["proposed_value"]
    if row.verdict == "edit":
        names.append("final_value")
    erasure = subject.erased.said_of(row)
    is_erased = erasure is not None and not erasure.contents.keys().isdisjoint(names)
    if is_erased and "confirm_above" in policy:
        return True
    values = [read_value(row, name) for name in names]
    needed = confirmation_needed(policy, row.channel, values)
    return satisfies(row.confirmed_by, needed)


def _is_signed(subject: Subject, row: Decision, document: dict[str, Any]) -> bool:
    """Return whether a document is about exactly this decision."""
    decided = {
        "run": str(row.run),
        "by": row.by_name,
        "request": str(row.request_id),
        "write": str(row.write),
        # It is over the revision too.
        "hash": row.seen_hash,
        "verdict": row.verdict,
        "for": row.delegator_name,
    }
    line = signed_line(document, decided)
    if line is None:
        return False
    if row.verdict == "edit":
        value = subject.payload(row, "final_value")
        value_hash = line.get("value_hash", "")
        if not subject.is_hashed(row, "final_value", value, value_hash):
            return False
    reason = subject.payload(row, "reason")
    if not reason and "reason_hash" not in line:
        return True
    return subject.is_hashed(row, "reason", reason, line.get("reason_hash", ""))
