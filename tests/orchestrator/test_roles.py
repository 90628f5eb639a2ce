"""The four roles exist after migrate, with the rights that the console's table gives
them.
"""

import pytest
from django.contrib.auth.models import Group, Permission

from approvals.permissions import RIGHTS, may
from orchestrator.roles import ROLES, make_roles
from tests.support.cast import People

pytestmark = pytest.mark.django_db

TABLE = {
    "starter": {"view_run", "start_run", "steer_run", "settle_task"},
    "reviewer": set(),
    "steward": {
        "view_run",
        "start_run",
        "steer_run",
        "settle_task",
        "import_run",
        "manage_retention",
        "reassign",
        "view_audit",
        "manage_webhooks",
        "manage_doors",
    },
    "auditor": {"view_run", "export_run", "view_audit"},
    "nobody": set(),
}


@pytest.mark.parametrize("who", TABLE)
def test_each_role_may_what_the_table_says_and_no_more(
    people: People, who: str
) -> None:
    assert {right for right in RIGHTS if may(getattr(people, who), right)} == TABLE[who]


def test_every_right_is_a_permission_that_exists() -> None:
    existing = {
        f"{p.content_type.app_label}.{p.codename}"
        for p in Permission.objects.select_related("content_type")
    }
    assert set(RIGHTS.values()) <= existing
    assert {name for granted in ROLES.values() for name in granted} <= existing


def test_making_the_roles_again_changes_nothing_and_gives_back_what_was_taken() -> None:
    operators = Group.objects.get(name="operator")
    before = set(operators.permissions.all())
    operators.permissions.remove(*before)
    extra = Permission.objects.get(codename="view_audit")
    operators.permissions.add(extra)
    make_roles()
    make_roles()
    assert set(operators.permissions.all()) == before | {extra}
    assert Group.objects.filter(name__in=ROLES).count() == len(ROLES)
