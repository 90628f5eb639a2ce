"""Doors are made, given other secrets and switched by those who manage them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, RequestFactory

from approvals.doors import verbs as doors
from approvals.models import Door, DoorMessage
from checkpoints.models import AuditLine
from checkpoints.sealing.sealed_rows import Protection, verify_row
from orchestrator.engine.errors import InvalidValue, TamperedRow, UnknownThing
from tests.support import cast
from tests.support.doors import (
    Sender,
    ask_only,
    came_of,
    service_account,
    waiting_run,
)
from tests.support.question_graphs import asking
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import registered
from tests.support.stewards import browser_of, text

pytestmark = pytest.mark.django_db

COLUMNS: dict[str, Any] = {"graph": "asking", "node": "ask", "key_pointer": "/order"}


@pytest.fixture(autouse=True)
def _graph() -> None:
    registered(asking(fn=ask_only))


def test_a_door_is_sealed_and_its_secret_encrypted(
    people: cast.People, configure: Any
) -> None:
    configure(**ONE_KEY)
    door, secret = doors.make_door(
        "bank", account=service_account(), **COLUMNS, by=people.steward
    )
    stored = Door.objects.get()
    verify_row(stored, Protection(encrypted=True))
    assert secret.encode() not in bytes(stored.secret)
    assert (stored.by, stored.enabled, door.id) == (people.steward, True, stored.id)
    line = AuditLine.objects.get(kind="door_made")
    assert (line.actor_name, line.facts) == (
        "stella",
        {"door": "bank", "account": "bank"},
    )


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("slug", {"slug": "The Bank"}),
        ("slug", {"slug": "x" * 61}),
        ("key_pointer", {"key_pointer": ""}),
        ("key_pointer", {"key_pointer": "order"}),
        ("answer_pointer", {"answer_pointer": "paid"}),
        ("graph", {"graph": ""}),
        ("graph", {"graph": "unknown"}),
        ("node", {"node": "unknown"}),
        ("node", {"node": "after"}),
        ("until", {"until": datetime(2020, 1, 1, tzinfo=UTC)}),
        ("secret", {"secret": "whsec_short"}),
    ],
)
def test_what_is_wrong_with_a_door_is_refused_by_name(
    path: str, columns: dict[str, Any]
) -> None:
    values = {"slug": "bank", **COLUMNS, **columns}
    with pytest.raises(InvalidValue) as refused:
        doors.make_door(**values, account=service_account(), by=None)
    assert refused.value.facts["path"] == path
    assert not Door.objects.exists()


def test_the_refusal_of_an_unknown_name_lists_those_that_there_are() -> None:
    account = service_account()
    for wrong, listed in (({"graph": "x"}, "asking"), ({"node": "after"}, ": ask")):
        with pytest.raises(InvalidValue) as refused:
            doors.make_door("bank", **{**COLUMNS, **wrong}, account=account, by=None)
        assert listed in refused.value.message


def test_a_name_is_taken_once() -> None:
    account = service_account()
    doors.make_door("bank", account=account, **COLUMNS, by=None)
    with pytest.raises(InvalidValue, match="there is a door of this name"):
        doors.make_door("bank", account=account, **COLUMNS, by=None)


@pytest.mark.parametrize(
    "mark",
    [
        {"last_login": datetime(2020, 1, 1, tzinfo=UTC)},
        {"is_superuser": True},
        {"is_staff": True},
        {"password": "of a person"},
    ],
)
def test_an_account_of_a_person_has_no_door(mark: dict[str, Any]) -> None:
    account = service_account()
    User.objects.filter(id=account.pk).update(**mark)
    account.refresh_from_db()
    with pytest.raises(InvalidValue, match="the account of a door"):
        doors.make_door("bank", account=account, **COLUMNS, by=None)


def test_for_everybody_else_there_are_no_doors(people: cast.People) -> None:
    sender = Sender()
    for person in (people.nobody, people.reviewer, people.starter, people.auditor):
        with pytest.raises(UnknownThing):
            doors.make_door("x", account=sender.account, **COLUMNS, by=person)
        with pytest.raises(UnknownThing):
            doors.rotate_secret(sender.door.id, by=person)
        with pytest.raises(UnknownThing):
            doors.switch_door(sender.door.id, enabled=False, by=person)
    assert Door.objects.get().enabled


def test_a_door_that_does_not_verify_is_sealed_no_second_time() -> None:
    sender = Sender()
    Door.objects.update(graph="other")
    with pytest.raises(TamperedRow):
        doors.rotate_secret(sender.door.id, by=None)
    with pytest.raises(TamperedRow):
        doors.switch_door(sender.door.id, enabled=False, by=None)


def form(**columns: Any) -> dict[str, Any]:
    return {"slug": "bank", "account": "bank", **COLUMNS, **columns}


def test_a_steward_makes_a_door_in_the_admin_and_reads_its_secret_once(
    people: cast.People,
) -> None:
    service_account()
    steward = browser_of(people.steward)
    html = text(steward.get("/admin/approvals/door/add/"))
    assert "Make a door" in html
    answer = steward.post("/admin/approvals/door/add/", form())
    assert "whsec_" in text(answer)
    assert "no-store" in answer.headers["Cache-Control"]
    door = Door.objects.get()
    for page in ("", f"{door.id}/change/"):
        html = text(steward.get(f"/admin/approvals/door/{page}"))
        assert "bank" in html
        assert "whsec_" not in html


@pytest.mark.parametrize(
    "wrong",
    [
        {"account": "nobody-here"},
        {"slug": "A b"},
        {"key_pointer": "x"},
        {"node": "after"},
    ],
)
def test_the_form_says_what_is_wrong(
    people: cast.People, wrong: dict[str, str]
) -> None:
    service_account()
    steward = browser_of(people.steward)
    html = text(steward.post("/admin/approvals/door/add/", form(**wrong)))
    assert "errorlist" in html
    assert "errorlist nonfield" not in html
    assert not Door.objects.exists()


def test_a_steward_switches_a_door_and_gives_it_another_secret(
    people: cast.People,
) -> None:
    sender = Sender()
    steward = browser_of(people.steward)
    chosen = {"_selected_action": str(sender.door.id)}
    steward.post("/admin/approvals/door/", {"action": "switch_off", **chosen})
    assert not Door.objects.get().enabled
    steward.post("/admin/approvals/door/", {"action": "switch_on", **chosen})
    assert Door.objects.get().enabled
    page = steward.post("/admin/approvals/door/", {"action": "rotate", **chosen})
    answer = steward.post(page.headers["Location"], {"secret": ""})
    assert "whsec_" in text(answer)
    assert sender.secret not in text(answer)
    kinds = AuditLine.objects.order_by("id").values_list("kind", flat=True)
    assert {"door_made", "door_switched", "door_rotated"} <= {*kinds}


def test_a_steward_delivers_again_in_the_admin_and_reads_no_body(
    people: cast.People,
) -> None:
    sender = Sender()
    waiting_run(reviewers=["group:others"])
    sender.send(paid=987_123)
    steward = browser_of(people.steward)
    html = text(steward.get("/admin/approvals/doormessage/"))
    assert "the account of the door is no reviewer of the gate" in html
    message = DoorMessage.objects.get()
    page = f"/admin/approvals/doormessage/{message.id}/change/"
    assert "987123" not in html + text(steward.get(page))
    chosen = {"action": "deliver_again", "_selected_action": str(message.id)}
    answer = steward.post("/admin/approvals/doormessage/", chosen, follow=True)
    assert list(map(str, answer.context["messages"])) == ["msg_1: not delivered."]
    assert came_of() == ("refused", "not_a_reviewer")


def test_who_manages_no_doors_may_look_and_change_nothing(people: cast.People) -> None:
    sender = Sender()
    auditor = browser_of(people.auditor)
    assert auditor.get("/admin/approvals/door/").status_code == 200
    assert auditor.get("/admin/approvals/doormessage/").status_code == 200
    secret_page = f"/admin/approvals/door/{sender.door.id}/secret/"
    for address in ("/admin/approvals/door/add/", secret_page):
        assert auditor.post(address, form()).status_code == 403
    chosen = {"action": "switch_off", "_selected_action": str(sender.door.id)}
    auditor.post("/admin/approvals/door/", chosen)
    assert Door.objects.get().enabled
    assert Client().get(secret_page).status_code == 302


@pytest.mark.skipif(connection.vendor != "sqlite", reason="its plans name indexes")
def test_the_list_of_messages_is_filtered_and_searched_by_indexes(
    rf: RequestFactory,
) -> None:
    page = admin.site._registry[DoorMessage]
    rows = DoorMessage.objects.order_by("-at", "-id")
    searched, _ = page.get_search_results(rf.get("/"), rows, "msg_1")
    for query in (searched, rows.filter(status="refused")):
        plan = query.explain()
        assert "USING INDEX door_message_" in plan
        assert "SCAN" not in plan
