"""What is remembered can be looked up in the Django admin, and forgotten by whoever
may.
"""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from checkpoints.core.status import Status
from checkpoints.memory.shelf import delete_trace
from checkpoints.models import AuditLine, MemoryTrace
from tests.support.cast import People
from tests.support.memory_graphs import chain, gone, memory, remember, versions

pytestmark = pytest.mark.django_db(transaction=True)
LIST = reverse("admin:checkpoints_memorytrace_changelist")


def _staff(client: Client, user: User, *codenames: str) -> Client:
    user.is_staff = True
    user.save()
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client.force_login(user)
    return client


def test_traces_are_found_by_namespace_and_key_and_show_their_content(
    client: Client, people: People
) -> None:
    remember("sky", {"colour": "<blue>"})
    remember("rule", 1, "rules")
    steward = _staff(client, people.steward)
    assert b"sky" in steward.get(LIST).content
    assert b">sky<" not in steward.get(LIST, {"q": "rules"}).content
    assert b">rule<" in steward.get(LIST, {"q": "rules"}).content
    row = MemoryTrace.objects.get(key="sky")
    page = steward.get(
        reverse("admin:checkpoints_memorytrace_change", args=[row.pk])
    ).content.decode()
    assert "&lt;blue&gt;" in page


def test_a_trace_is_forgotten_with_an_audit_line_and_its_version_stays(
    client: Client, people: People
) -> None:
    remember("sky", "blue")
    remember("sea", "green")
    row = MemoryTrace.objects.get(key="sky")
    steward = _staff(client, people.steward)
    steward.post(
        reverse("admin:checkpoints_memorytrace_delete", args=[row.pk]), {"post": "yes"}
    )
    assert memory() == {"facts/sea": "green"}
    assert versions() == {"facts/sky": 2, "facts/sea": 1}
    line = AuditLine.objects.get(kind="memory_forgotten")
    assert line.actor_name == people.steward.username
    assert "green" not in str(line.facts)
    row.refresh_from_db()
    assert bytes(row.content) == b""
    assert row.text == ""
    assert row.node == ""


def test_several_are_forgotten_at_once(client: Client, people: People) -> None:
    for key in ("sky", "sea"):
        remember(key, "blue")
    chosen = {
        "action": "delete_selected",
        "_selected_action": list(MemoryTrace.objects.values_list("pk", flat=True)),
    }
    _staff(client, people.steward).post(LIST, {**chosen, "post": "yes"})
    assert memory() == {}
    assert AuditLine.objects.filter(kind="memory_forgotten").count() == 2


def test_who_may_only_look_forgets_nothing(client: Client, people: People) -> None:
    remember("sky", "blue")
    row = MemoryTrace.objects.get(key="sky")
    auditor = _staff(client, people.auditor)
    assert auditor.get(LIST).status_code == 200
    address = reverse("admin:checkpoints_memorytrace_delete", args=[row.pk])
    assert auditor.post(address, {"post": "yes"}).status_code == 403
    assert memory() == {"facts/sky": "blue"}


def test_nobody_changes_a_trace_there(client: Client, people: People) -> None:
    remember("sky", "blue")
    row = MemoryTrace.objects.get(key="sky")
    steward = _staff(client, people.steward, "change_memorytrace", "add_memorytrace")
    assert (
        steward.post(
            reverse("admin:checkpoints_memorytrace_change", args=[row.pk]), {}
        ).status_code
        == 403
    )
    assert steward.get(reverse("admin:checkpoints_memorytrace_add")).status_code == 403


def test_a_task_that_read_what_a_person_had_forgotten_meanwhile_runs_again(
    people: People,
) -> None:
    remember("sky", "blue")
    seen: list[Any] = []

    def put(state: Any, ctx: Any) -> None:
        trace = ctx.memory.get("sky", "facts")
        seen.append(trace and trace.content)
        if trace:
            delete_trace(MemoryTrace.objects.get(key="sky"), by=people.steward)
        ctx.memory.put("sky", "grey", "facts")

    assert gone(chain("forgotten", put)).status == Status.COMPLETED
    assert seen == ["blue", None]
    assert memory() == {"facts/sky": "grey"}
    assert versions() == {"facts/sky": 3}
