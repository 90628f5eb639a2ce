"""The rows of policies: written here only, each sealed, each with a line of the audit log."""

from typing import Any

from django.db import transaction

from checkpoints import audit_log
from checkpoints.models import RetentionPolicy
from checkpoints.retention.rights import require_manager
from checkpoints.sealing import sealed_rows
from checkpoints.verification.kept_by_people import ADDED_POLICY_FIELDS, POLICY_FIELDS, policy_fault
from orchestrator.engine.errors import TamperedRow


def save_policy(policy: RetentionPolicy, *, by: Any) -> RetentionPolicy:
    """Store a policy as it stands now; `by` None is the system. Raises `Forbidden` for whoever may not manage
    retention.
    """
    require_manager(by)
    with transaction.atomic():
        _tell_renamed(policy, by)
        sealed_rows.seal(policy, sealed_rows.PLAIN)
        policy.save()
        _tell("retention_policy_saved", policy, by)
    return policy


def delete_policy(policy: RetentionPolicy, *, by: Any) -> None:
    """Delete a stored policy. Raises `Forbidden` for whoever may not manage retention."""
    require_manager(by)
    with transaction.atomic():
        _tell("retention_policy_deleted", policy, by)
        policy.delete()


def require_sound(graph: str) -> None:
    """Raise `TamperedRow` or `WrongKey` where the stored policy of a graph is not the one that somebody saved. Two
    queries.
    """
    fault = policy_fault(graph)
    if fault is not None:
        message = f"{fault.reason}; save the policy of {graph} anew, and nothing is removed before"
        raise TamperedRow(message, row=fault.what)


def _tell_renamed(policy: RetentionPolicy, by: Any) -> None:
    """Say that another graph has no policy any more, where a stored one is given to this graph."""
    before = RetentionPolicy.objects.filter(pk=policy.pk).exclude(graph=policy.graph).first() if policy.pk else None
    if before is not None:
        _tell("retention_policy_deleted", before, by)


def _tell(kind: str, policy: RetentionPolicy, by: Any) -> None:
    names = (*POLICY_FIELDS, *ADDED_POLICY_FIELDS)
    audit_log.record(kind, actor=by, graph=policy.graph, **{name: getattr(policy, name) for name in names})
