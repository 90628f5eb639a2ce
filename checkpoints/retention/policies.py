"""Stores the rows of policies. Nothing else writes them; each is sealed, and each has a
line of the audit log.
"""

from typing import Any

from django.db import transaction

from checkpoints.audit import lines as audit_log
from checkpoints.models import RetentionPolicy
from checkpoints.retention.rights import require_manager
from checkpoints.sealing import sealed_rows
from checkpoints.verification.kept_by_people import (
    ADDED_POLICY_FIELDS,
    POLICY_FIELDS,
    policy_fault,
)
from orchestrator.engine.errors import TamperedRow


def save_policy(policy: RetentionPolicy, *, by: Any) -> RetentionPolicy:
    """Store a policy as it stands now; `by` None is the system. Raises `Forbidden` for
    a person who may not manage retention.
    """
    require_manager(by)
    with transaction.atomic():
        # Before the row is saved, while the name that it had is still there.
        _record_renamed(policy, by)
        sealed_rows.seal(policy, sealed_rows.PLAIN)
        policy.save()
        _record("retention_policy_saved", policy, by)
    return policy


def delete_policy(policy: RetentionPolicy, *, by: Any) -> None:
    """Delete a stored policy. Raises `Forbidden` for a person who may not manage
    retention.
    """
    require_manager(by)
    with transaction.atomic():
        _record("retention_policy_deleted", policy, by)
        policy.delete()


def require_sound(graph: str) -> None:
    """Raise `TamperedRow` or `WrongKey` if the stored policy of a graph is not the one
    that was saved. Two queries.
    """
    # Rules that were changed by SQL would remove what nobody decided to remove.
    fault = policy_fault(graph)
    if fault is not None:
        message = (
            f"{fault.reason}; save the policy of {graph} anew, "
            "and nothing is removed before"
        )
        raise TamperedRow(message, row=fault.what)


def _record_renamed(policy: RetentionPolicy, by: Any) -> None:
    """Record that another graph no longer has a policy, where its stored one is given
    to this graph.
    """
    if not policy.pk:
        return
    stored = RetentionPolicy.objects.filter(pk=policy.pk)
    before = stored.exclude(graph=policy.graph).first()
    if before is not None:
        _record("retention_policy_deleted", before, by)


def _record(kind: str, policy: RetentionPolicy, by: Any) -> None:
    names = (*POLICY_FIELDS, *ADDED_POLICY_FIELDS)
    fields = {name: getattr(policy, name) for name in names}
    audit_log.record(kind, actor=by, graph=policy.graph, **fields)
