"""Messages at doors over HTTP: each is signed, and answers a waiting run once."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group

from approvals.doors import verbs as doors
from approvals.models import Decision, DoorMessage
from checkpoints.core.status import Status
from checkpoints.models import AuditLine, Job, Run
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.models import FailedAuthentication
from tests.support import dump
from tests.support.doors import (
    Sender,
    ask_only,
    came_of,
    service_account,
    waiting_run,
    work_off,
)
from tests.support.question_graphs import asking
from tests.support.run_actions import state
from tests.support.sealed_tables import ONE_KEY
from tests.support.small_graphs import registered

PAGE = Path(__file__).resolve().parents[3] / "docs" / "doors.md"
pytestmark = pytest.mark.django_db(transaction=True)


def nothing_came() -> bool:
    return not DoorMessage.objects.exists() and not Decision.objects.exists()


def test_a_message_answers_the_run_that_waits_for_it() -> None:
    sender = Sender()
    run = waiting_run()
    assert run.status == Status.PAUSED
    answer = sender.send(paid=40)
    assert (answer.status_code, answer.json()) == (200, {"status": "delivered"})
    run = runs.advance(run.id)
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["total 40"]
    [decision] = Decision.objects.all()
    assert (decision.by_name, decision.verdict) == ("bank", "edit")
    assert read_value(decision, "reason") == "Message msg_1 at the door bank"
    assert AuditLine.objects.get(kind="signed").actor_name == "bank"
    assert verify_run(run.id) == []
    assert bytes(DoorMessage.objects.get().body) == b""


def test_the_same_message_twice_takes_effect_once_and_is_answered_alike() -> None:
    sender = Sender()
    waiting_run()
    first = sender.send()
    second = sender.send()
    assert (second.status_code, second.json()) == (200, first.json())
    assert Decision.objects.count() == 1


def test_the_same_id_with_another_body_is_a_conflict() -> None:
    sender = Sender()
    waiting_run()
    sender.send(paid=40)
    answer = sender.send(paid=41)
    assert (answer.status_code, answer.json()["code"]) == (409, "key_conflict")
    assert Decision.objects.count() == 1


@pytest.mark.parametrize(
    "how",
    [
        {"age": timedelta(minutes=6)},
        {"age": timedelta(minutes=-6)},
        {"secret": "whsec_" + "A" * 44},
        {"slug": "nowhere"},
        {"signature": "v1,AAAA"},
        {"signature": ""},
        {"id": "x" * 201},
        {"id": "line\tfeed"},
    ],
)
def test_what_is_not_signed_for_an_open_door_is_refused_without_a_reason(
    how: dict[str, Any],
) -> None:
    sender = Sender()
    waiting_run()
    if how.get("signature") == "":
        how = {"signature": " "}
    answer = sender.send(**how)
    assert (answer.status_code, answer.json()["code"]) == (401, "not_signed")
    assert answer.json()["detail"] == (
        "there is no such door, or this message is not signed for it"
    )
    assert nothing_came()


def test_one_of_several_signatures_suffices() -> None:
    sender = Sender()
    waiting_run()
    old = sender.secret
    sender.secret = doors.rotate_secret(sender.door.id, by=None)
    assert sender.send(secret=old).status_code == 401
    assert sender.send().status_code == 200
    assert Decision.objects.count() == 1


def test_a_door_that_is_off_or_over_takes_nothing() -> None:
    sender = Sender()
    waiting_run()
    doors.switch_door(sender.door.id, enabled=False, by=None)
    assert sender.send().status_code == 401
    assert nothing_came()
    doors.switch_door(sender.door.id, enabled=True, by=None)
    assert sender.send().status_code == 200


def test_a_door_that_was_changed_in_the_database_takes_nothing() -> None:
    sender = Sender()
    waiting_run()
    type(sender.door).objects.update(graph="other")
    assert sender.send().status_code == 401
    assert nothing_came()


def test_strangers_are_throttled_and_the_sender_is_served(configure: Any) -> None:
    configure(API_FAILURES=2)
    sender = Sender()
    waiting_run()
    wrong = {"secret": "whsec_" + "A" * 44}
    answers = [sender.send(**wrong).status_code for _ in range(4)]
    assert answers == [401, 401, 429, 429]
    assert sender.send(slug="another").status_code == 429
    assert FailedAuthentication.objects.get().failures == 2
    assert sender.send().status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("{", 400),
        ('{"data": {"order": "A-1", "order": "A-2", "paid": 1}}', 400),
        ('{"data": {"paid": 1}}', 422),
        ('{"data": {"order": true, "paid": 1}}', 422),
        ('{"data": {"order": "", "paid": 1}}', 422),
        ('{"data": {"order": "A\\u0000", "paid": 1}}', 422),
        ('{"data": {"order": "A-1"}}', 422),
        ("[]", 422),
    ],
)
def test_a_body_that_lacks_what_the_door_looks_for_is_refused_and_not_kept(
    body: str, status: int
) -> None:
    sender = Sender()
    waiting_run()
    assert sender.send(body=body).status_code == status
    assert nothing_came()


def test_a_key_may_be_a_number() -> None:
    sender = Sender()
    run = waiting_run("17")
    assert sender.send(body='{"data": {"order": 17, "paid": 3}}').status_code == 200
    assert state(runs.advance(run.id))["total"] == 3


def test_a_body_that_is_too_large_is_refused(settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    sender = Sender()
    assert sender.send(paid="x" * 100).status_code == 413
    assert nothing_came()


def test_a_session_and_an_idempotency_key_play_no_part() -> None:
    sender = Sender()
    waiting_run()
    answer = sender.send(id="msg_1")
    assert answer.status_code == 200
    assert "Idempotency-Key" not in str(answer.headers)


def test_a_message_before_its_run_is_kept_and_answers_once_that_asks() -> None:
    sender = Sender()
    answer = sender.send(paid=12)
    assert (answer.status_code, answer.json()) == (202, {"status": "kept"})
    work_off()
    assert came_of() == ("kept", "")
    registered(asking(fn=ask_only))
    run = runs.advance(runs.start("asking", {}, key="A-1").id)
    assert run.status == Status.PAUSED
    assert sender.send(paid=12).status_code == 202
    work_off()
    assert came_of() == ("delivered", "")
    assert state(runs.advance(run.id))["total"] == 12
    assert sender.send(paid=12).status_code == 200
    assert Decision.objects.count() == 1


def test_a_run_that_opens_no_question_of_a_message_queues_no_job() -> None:
    sender = Sender()
    sender.send(key="B-1")
    before = Job.objects.filter(kind="deliver_messages").count()
    waiting_run("A-1")
    assert Job.objects.filter(kind="deliver_messages").count() == before


def test_an_answer_that_its_schema_refuses_is_a_422_each_time() -> None:
    sender = Sender()
    run = waiting_run()
    answer = sender.send(paid=-1)
    assert (answer.status_code, answer.json()["reason"]) == (422, "invalid_value")
    assert sender.send(paid=-1).json() == answer.json()
    assert came_of() == ("refused", "invalid_value")
    assert not Decision.objects.exists()
    assert Run.objects.get(id=run.id).status == Status.PAUSED


def test_neither_the_secret_nor_the_body_stands_plain_in_the_database(
    configure: Any,
) -> None:
    configure(**ONE_KEY)
    sender = Sender()
    assert sender.send(paid="Mozzarella-7").status_code == 202
    bytes_of_all = dump.of_database()
    assert b"Mozzarella-7" not in bytes_of_all
    assert sender.secret.encode() not in bytes_of_all
    assert sender.secret.removeprefix("whsec_").encode() not in bytes_of_all


def test_the_page_about_doors_runs(
    live_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_graph, sending = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(made_graph, PAGE, "exec"), names)
    registered(names["graph"])
    account = service_account()
    Group.objects.create(name="payments").user_set.add(account)
    _, secret = doors.make_door(
        "bank",
        account=account,
        graph="order",
        node="wait_for_payment",
        key_pointer="/data/order",
        answer_pointer="/data/amount",
        by=None,
    )
    run = runs.advance(runs.start("order", {"number": "A-17"}, key="A-17").id)
    monkeypatch.setenv("DOOR_SECRET", secret)
    monkeypatch.setenv("DOOR_URL", f"{live_server.url}/api/v1/doors/bank/")
    exec(compile(sending, PAGE, "exec"), names)
    assert state(runs.advance(run.id))["shipped"] == "A-17 for 40"
