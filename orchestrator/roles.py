"""The four roles as groups of Django permissions, made after each migrate.
`OrchestratorConfig.ready` connects it.

A project that needs other roles makes further groups: what is taken from these four
comes back with the next migrate, what is added to them stays.
"""

from typing import Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.management import create_contenttypes
from django.db.models import Q

_ROWS = (
    "checkpoints.view_auditline",
    "checkpoints.view_bundleimport",
    "checkpoints.view_checkpoint",
    "checkpoints.view_erasedrow",
    "checkpoints.view_erasurerecord",
    "checkpoints.view_graphversion",
    "checkpoints.view_lateresult",
    "checkpoints.view_legalhold",
    "checkpoints.view_memorylanding",
    "checkpoints.view_memoryrecord",
    "checkpoints.view_memorytrace",
    "checkpoints.view_pendingwrite",
    "checkpoints.view_pin",
    "checkpoints.view_removedkey",
    "checkpoints.view_retentionpolicy",
    "checkpoints.view_runevent",
    "checkpoints.view_runline",
    "checkpoints.view_runmetadata",
    "checkpoints.view_taskfigure",
    "checkpoints.view_taskresult",
    "checkpoints.view_upload",
    "checkpoints.view_worker",
    "approvals.view_approvalrequest",
    "approvals.view_decision",
    "approvals.view_door",
    "approvals.view_doormessage",
    "approvals.view_passkey",
    "approvals.view_receipt",
)
_MOVING = (
    "checkpoints.view_run",
    "checkpoints.start_run",
    "checkpoints.steer_run",
    "checkpoints.settle_task",
)

ROLES: dict[str, tuple[str, ...]] = {
    "operator": _MOVING,
    "reviewer": ("approvals.decide",),
    "steward": (
        *_MOVING,
        "checkpoints.import_run",
        "checkpoints.manage_retention",
        "checkpoints.delete_memorytrace",
        "approvals.reassign",
        "approvals.manage_webhooks",
        "approvals.manage_doors",
        "approvals.view_audit",
        # To revoke the passkeys of others.
        "approvals.change_passkey",
        *_ROWS,
    ),
    "auditor": (
        "checkpoints.view_run",
        "checkpoints.export_run",
        "approvals.view_audit",
        *_ROWS,
    ),
}
"""Group -> its permissions. `_ROWS` open the read-only rows of the Django admin, for
those who are staff.
"""


def make_roles(*, using: str = "default", **_: Any) -> None:
    """Make the groups and give each what the table grants. A receiver of
    `post_migrate`; idempotent.
    """
    for label in ("checkpoints", "approvals"):
        # The permissions of an app appear in its own post_migrate, which may come after
        # ours.
        create_contenttypes(apps.get_app_config(label), using=using, verbosity=0)
        create_permissions(apps.get_app_config(label), using=using, verbosity=0)
    for name, granted in ROLES.items():
        group, _created = Group.objects.using(using).get_or_create(name=name)
        _grant(group, _permissions(granted, using), using)


def _grant(group: Group, permissions: list[Permission], using: str) -> None:
    """Add permissions to a group without sending signals: their receivers write to a
    table that may not exist yet while other migrations are to come.
    """
    through = Group.permissions.through
    rows = [
        through(group_id=group.pk, permission_id=permission.pk)
        for permission in permissions
    ]
    through._default_manager.using(using).bulk_create(rows, ignore_conflicts=True)


def _permissions(names: tuple[str, ...], using: str) -> list[Permission]:
    matching = Q()
    for name in names:
        label, codename = name.split(".")
        matching |= Q(content_type__app_label=label, codename=codename)
    return list(Permission.objects.using(using).filter(matching))
