"""What changes who may do what is in the audit log, with who did it where a request is
being served.
"""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from checkpoints.models import AuditLine
from orchestrator import tokens
from orchestrator.account_changes import acting
from orchestrator.models import ApiToken
from tests.support.cast import PASSWORD, People, UserFactory


def lines() -> list[tuple[str, dict[str, Any]]]:
    return [(line.kind, line.facts) for line in AuditLine.objects.order_by("id")]


def test_members_of_groups_that_come_and_go_are_noted_from_both_sides(
    people: People,
) -> None:
    group = Group.objects.get(name="steward")
    user = people.nobody
    user.groups.add(group)
    group.user_set.remove(user)
    user.groups.set([group])
    user.groups.clear()
    subject = {"subject": "user:nobody"}
    assert lines() == [
        ("members_changed", {**subject, "added": ["group:steward"]}),
        ("members_changed", {"subject": "group:steward", "removed": ["user:nobody"]}),
        ("members_changed", {**subject, "added": ["group:steward"]}),
        ("members_changed", {**subject, "removed": ["group:steward"]}),
    ]


def test_what_changes_nothing_leaves_no_line(people: People) -> None:
    user = people.reviewer
    user.groups.add(Group.objects.get(name="reviewer"))
    user.groups.remove(Group.objects.get(name="steward"))
    user.first_name = "Rita"
    user.save()
    assert (
        Client()
        .post(reverse("login"), {"username": user.username, "password": PASSWORD})
        .status_code
        == 302
    )
    assert lines() == []


def test_permissions_of_people_and_groups_are_noted(people: People) -> None:
    right = Permission.objects.get(codename="view_audit")
    people.nobody.user_permissions.add(right)
    Group.objects.get(name="operator").permissions.add(right)
    Group.objects.get(name="operator").permissions.clear()
    Group.objects.get(name="operator").delete()
    named = ["perm:approvals.view_audit"]
    audit_lines = lines()
    assert audit_lines[:2] == [
        ("rights_changed", {"subject": "user:nobody", "added": named}),
        ("rights_changed", {"subject": "group:operator", "added": named}),
    ]
    assert audit_lines[2][0] == "rights_changed"
    assert "perm:approvals.view_audit" in audit_lines[2][1]["removed"]
    assert ("group_deleted", {"subject": "group:operator"}) in audit_lines


def test_an_account_that_may_more_or_less_or_has_another_password_is_noted(
    people: People,
) -> None:
    user = User.objects.get(pk=people.nobody.pk)
    user.is_staff = True
    user.save()
    user.is_active = False
    user.save(update_fields=["is_active"])
    user.set_password("another one")
    user.save()
    User.objects.create_superuser("root")
    UserFactory.create(username="plain")
    assert lines() == [
        ("account_changed", {"subject": "user:nobody", "changed": {"is_staff": True}}),
        (
            "account_changed",
            {"subject": "user:nobody", "changed": {"is_active": False}},
        ),
        (
            "account_changed",
            {"subject": "user:nobody", "changed": {"password": "another"}},
        ),
        (
            "account_changed",
            {
                "subject": "user:root",
                "changed": {"is_staff": True, "is_superuser": True},
            },
        ),
    ]
    assert "another one" not in str(lines())


def test_a_token_that_is_made_and_one_that_is_revoked_are_noted(people: People) -> None:
    with acting(people.steward):
        text = tokens.make_token(people.starter, scopes=["read"])
    row = ApiToken.objects.get()
    tokens.revoke_token(row)
    tokens.revoke_token(row)
    made, revoked = AuditLine.objects.order_by("id")
    assert made.kind == "token_made"
    assert made.actor == people.steward
    assert revoked.kind == "token_revoked"
    assert revoked.actor is None
    assert (
        made.facts
        == revoked.facts
        == {"token": text[:12], "subject": "user:olive", "scopes": ["read"]}
    )
    assert text not in str(lines())


@pytest.mark.django_db
def test_who_acts_in_the_admin_is_named(people: People) -> None:
    root = User.objects.create_superuser("root")
    client = Client()
    client.force_login(root)
    group = Group.objects.get(name="auditor")
    path = reverse("admin:auth_group_change", args=[group.pk])
    assert client.post(path, {"name": "auditor", "permissions": []}).status_code == 302
    line = AuditLine.objects.filter(kind="rights_changed").get()
    assert line.actor == root
    assert line.facts["subject"] == "group:auditor"
    assert AuditLine.objects.order_by("id").first().actor is None, (
        "root was made by nobody who was signed in"
    )  # type: ignore[union-attr]
