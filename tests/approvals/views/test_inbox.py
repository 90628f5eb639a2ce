"""The inbox page shows what concerns a person, and only of runs that he may see."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from checkpoints.ledger.pending_writes import Base
from tests.support.cast import People
from tests.support.rows import a_decision, a_request, a_run, a_write

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("folder", "status"), [("signed", "open"), ("decided", "applied")])
def test_what_one_signed_leaves_the_folders_with_the_right_to_see_its_run(
    people: People, browse: Callable[[User], Client], folder: str, status: str
) -> None:
    people.reviewer.groups.add(claims := Group.objects.create(name="claims"))
    run = a_run(label="Payout of Nora Field")
    request = a_request(run, "group:claims", status=status)
    write = a_write(request, 0, channel="payout", value=1, base=Base("", {}, bound=True))
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    client = browse(people.reviewer)
    assert b"Payout of Nora Field" in client.get(reverse("inbox"), {"folder": folder}).content
    people.reviewer.groups.remove(claims)
    page = client.get(reverse("inbox"), {"folder": folder})
    assert b"Payout of Nora Field" not in page.content
    assert [one["count"] for one in page.context["folders"] if one["name"] == "signed"] == [0]
