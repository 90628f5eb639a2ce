"""Whoever asks names an address that is called with what came of it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import standardwebhooks
from django.db import transaction
from django.utils import timezone

from approvals import reviews
from approvals.models import ApprovalRequest, Webhook, WebhookDelivery
from approvals.webhooks import callbacks
from approvals.webhooks import verbs as webhooks
from checkpoints.conf import keyring
from checkpoints.models import AuditLine, Job, Run
from checkpoints.retention.whole_runs import PARTS
from orchestrator import asking, runs
from orchestrator.asking import NewApproval, ask_with_callback
from orchestrator.engine import registry
from orchestrator.engine.errors import (
    InvalidValue,
    KeyConflict,
    UnknownThing,
    WrongStatus,
)
from orchestrator.graphs import approval
from tests.support import deadlines, notices
from tests.support.approvals import payers
from tests.support.cast import People
from tests.support.receivers import Receiver, receiving
from tests.support.run_actions import pending

pytestmark = pytest.mark.django_db(transaction=True)
URL = "https://hooks.example.org/secret-path"


@pytest.fixture(autouse=True)
def asked_of_payers(people: People, configure: Any) -> None:
    registry.replace(approval)
    payers(people.reviewer)
    configure(CALLBACK_HOSTS=["hooks.example.org"])


@pytest.fixture
def receiver(configure: Any) -> Iterator[Receiver]:
    with receiving() as running:
        _allow(configure, running)
        yield running


def _allow(configure: Any, *receivers: Receiver) -> None:
    configure(
        WEBHOOKS_TO_PRIVATE_ADDRESSES=True,
        WEBHOOKS_OVER_HTTP=True,
        CALLBACK_HOSTS=[receiver.url.split("/")[2] for receiver in receivers],
    )


def _asked(
    people: People, url: str | None = URL, key: str | None = None, **changes: Any
) -> NewApproval:
    items = [{"id": "inv-1", "value": "100.00"}]
    inquiry = asking.Inquiry(
        **{"title": "Pay?", "items": items, "reviewers": ["group:payers"], **changes}
    )
    return ask_with_callback(inquiry, callback=url, key=key, by=people.starter)


def _sign(asked: NewApproval, people: People, verdict: str) -> Run:
    """Let people decide, and the run go on."""
    run = runs.advance(asked.approval.run.id)
    items = [
        {"write": str(row.write), "hash": row.hash, "verdict": verdict}
        for row in pending(run)
    ]
    reviews.sign(run.id, items, by=people.reviewer)
    return runs.advance(run.id)


def _called(receiver: Receiver) -> list[tuple[str, str]]:
    """The event and the outcome of each call."""
    called = []
    for received in receiver.received:
        document = received.document
        called.append((document["type"], document["data"].get("outcome", "")))
    return called


@pytest.mark.parametrize(
    ("verdict", "outcome"), [("approve", "approved"), ("reject", "rejected")]
)
def test_a_decision_is_called_back_once_with_a_signature(
    receiver: Receiver, people: People, verdict: str, outcome: str
) -> None:
    asked = _asked(people, receiver.url)
    notices.send_notices()
    assert receiver.received == []
    _sign(asked, people, verdict)
    notices.send_notices()
    assert _called(receiver) == [("request.settled", outcome)]
    [received] = receiver.received
    verifier = standardwebhooks.Webhook(asked.secret)
    assert verifier.verify(received.body, received.headers) == received.document
    data = received.document["data"]
    assert data["run"] == str(asked.approval.run.id)
    assert b"100.00" not in received.body


@pytest.mark.parametrize(
    ("on_deadline", "called"),
    [
        ("reject", [("request.settled", "rejected")]),
        # Its run fails for it.
        ("fail", [("request.expired", ""), ("run.failed", "failed")]),
    ],
)
def test_a_deadline_that_passes_is_called_back(
    receiver: Receiver, people: People, on_deadline: str, called: list[Any]
) -> None:
    asked = _asked(
        people, receiver.url, deadline=timedelta(hours=1), on_deadline=on_deadline
    )
    run = runs.advance(asked.approval.run.id)
    deadlines.let_come(run)
    deadlines.work_off(run)
    runs.advance(run.id)
    notices.send_notices()
    assert _called(receiver) == called


def test_a_question_that_is_taken_back_is_called_back(
    receiver: Receiver, people: People
) -> None:
    asked = _asked(people, receiver.url)
    runs.advance(asked.approval.run.id)
    asking.cancel(asked.approval.run.id, by=people.steward)
    notices.send_notices()
    assert _called(receiver) == [("run.cancelled", "cancelled")]


def test_a_run_that_fails_before_it_asks_is_called_back(
    receiver: Receiver, people: People
) -> None:
    asked = _asked(people, receiver.url)
    Run.objects.filter(id=asked.approval.run.id).update(status="failed")
    notices.send_notices()
    assert _called(receiver) == [("run.failed", "failed")]


def test_a_callback_hears_of_its_own_approval_alone(
    receiver: Receiver, people: People
) -> None:
    called = _asked(people, receiver.url)
    other = _asked(people, receiver.url)
    silent = _asked(people, None)
    for each in (called, other, silent):
        _sign(each, people, "approve")
    notices.send_notices()
    # A host that was slow to answer has its next turn later.
    notices.send_due()
    ids = {received.document["data"]["run"] for received in receiver.received}
    assert ids == {str(called.approval.run.id), str(other.approval.run.id)}
    assert len(receiver.received) == 2
    assert callbacks.callback_of(silent.approval.run.id) is None


def test_what_is_refused_is_tried_again_under_the_same_id(
    receiver: Receiver, people: People
) -> None:
    receiver.answers = [500]
    _sign(_asked(people, receiver.url), people, "approve")
    notices.send_notices()
    delivery = WebhookDelivery.objects.get()
    assert (delivery.status, delivery.error) == (
        "waiting",
        "the receiver answered 500",
    )
    notices.make_due()
    notices.send_notices()
    assert len({received.id for received in receiver.received}) == 1
    assert WebhookDelivery.objects.get().status == "delivered"


def test_the_callbacks_to_one_host_take_turns_and_keep_no_other_waiting(
    receiver: Receiver, people: People, configure: Any
) -> None:
    away = Receiver(url="http://127.0.0.1:9/")
    _allow(configure, receiver, away)
    for url in (away.url, away.url, away.url, receiver.url):
        _sign(_asked(people, url), people, "approve")
    notices.send_notices()
    names = Job.objects.filter(kind=webhooks.SEND_WEBHOOK).values_list(
        "name", flat=True
    )
    assert len(set(names)) == 2
    assert len(receiver.received) == 1
    waiting = WebhookDelivery.objects.filter(webhook__url=away.url)
    assert sorted(waiting.values_list("attempts", flat=True)) == [0, 0, 1]


# Where it may lead.


@pytest.mark.parametrize(
    "url",
    [
        "https://elsewhere.example.org/",
        "https://hooks.example.org:8443/",
        "https://hooks.example.org.evil.example/",
        "https://evil.example/?hooks.example.org",
        "http://hooks.example.org/",
        "https://user:word@hooks.example.org/",
        "file:///etc/passwd",
        "hooks.example.org",
        7,
    ],
)
def test_an_address_that_the_settings_do_not_allow_asks_nobody(
    people: People, url: Any
) -> None:
    with pytest.raises(InvalidValue) as refused:
        _asked(people, url)
    assert refused.value.facts["path"] == "callback.url"
    assert "example" not in refused.value.message
    assert not Run.objects.exists()


def test_without_the_setting_there_are_no_callbacks(
    people: People, configure: Any
) -> None:
    configure(CALLBACK_HOSTS=())
    with pytest.raises(InvalidValue):
        _asked(people)


def test_a_host_that_leads_to_a_private_network_is_not_called(
    people: People, configure: Any
) -> None:
    with receiving() as receiver:
        _allow(configure, receiver)
        _sign(_asked(people, receiver.url), people, "approve")
        configure(WEBHOOKS_TO_PRIVATE_ADDRESSES=False)
        notices.send_notices()
        assert receiver.received == []
    assert WebhookDelivery.objects.get().error == "the host is in a private network"


def test_nothing_is_sent_once_who_asked_may_not_ask(
    receiver: Receiver, people: People
) -> None:
    _sign(_asked(people, receiver.url), people, "approve")
    people.starter.groups.clear()
    notices.send_notices()
    assert "may not ask" in WebhookDelivery.objects.get().error
    assert not webhooks.is_vouched_for(Webhook.objects.select_related("by").get())
    assert receiver.received == []


def test_a_host_that_is_taken_from_the_settings_is_called_no_more(
    receiver: Receiver, people: People, configure: Any
) -> None:
    _sign(_asked(people, receiver.url), people, "approve")
    configure(CALLBACK_HOSTS=())
    notices.send_notices()
    assert receiver.received == []
    assert "not allowed any more" in WebhookDelivery.objects.get().error


# What it is bound to.


def test_the_same_key_with_another_callback_is_another_question(
    people: People,
) -> None:
    first = _asked(people, key="INV-1")
    again = _asked(people, key="INV-1")
    assert (again.is_new, again.secret) == (False, "")
    assert again.approval.run.id == first.approval.run.id
    for other in (URL + "/other", None):
        with pytest.raises(KeyConflict):
            _asked(people, other, key="INV-1")
    without = _asked(people, None, key="INV-2")
    assert without.is_new
    with pytest.raises(KeyConflict):
        _asked(people, key="INV-2")
    assert Webhook.objects.get().run == first.approval.run.id


def test_a_callback_that_was_led_elsewhere_in_the_database_gets_nothing(
    receiver: Receiver, people: People
) -> None:
    first = _asked(people, receiver.url)
    other = _asked(people, None)
    Webhook.objects.update(run=other.approval.run.id)
    _sign(other, people, "approve")
    notices.send_notices()
    assert receiver.received == []
    assert WebhookDelivery.objects.get().error == "refused here: tampered_row"
    assert first.secret


def test_what_is_rolled_back_leaves_no_callback(people: People) -> None:
    with transaction.atomic():
        _asked(people)
        transaction.set_rollback(True)
    assert not Webhook.objects.exists()


def test_a_callback_is_no_part_of_what_people_sign(people: People) -> None:
    hashes = set()
    for url in (URL, None):
        run = runs.advance(_asked(people, url).approval.run.id)
        hashes.add((run.input_hash, ApprovalRequest.objects.get(run=run).policy_hash))
    assert len(hashes) == 1


def test_its_secret_is_encrypted_where_there_is_a_key(
    people: People, configure: Any
) -> None:
    configure(ENCRYPTION_KEYS={"k1": b"k" * 32}, CALLBACK_HOSTS=["hooks.example.org"])
    assert keyring().encryption
    asked = _asked(people)
    stored = Webhook.objects.get()
    assert asked.secret.encode() not in bytes(stored.secret)
    assert (stored.encrypted, stored.receiver) == (True, "hooks.example.org")


# Who sees it, and what becomes of it.


def test_who_asked_and_who_manages_webhooks_see_a_callback(people: People) -> None:
    asked = _asked(people)
    run = asked.approval.run
    for person in (people.starter, people.steward):
        assert callbacks.visible_callback(person, run.id).url == URL
    for person in (people.reviewer, people.nobody):
        with pytest.raises(UnknownThing):
            callbacks.visible_callback(person, run.id)
    line = AuditLine.objects.get(kind="webhook_added")
    assert (line.run, line.facts["host"]) == (run.id, "hooks.example.org")
    assert not webhooks.visible_webhooks(people.steward).exists()
    assert webhooks.visible_callbacks(people.steward).exists()
    assert not webhooks.visible_callbacks(people.starter).exists()


def test_a_callback_is_switched_off_and_stays_with_its_approval(
    receiver: Receiver, people: People
) -> None:
    asked = _asked(people, receiver.url)
    callback = Webhook.objects.get()
    webhooks.switch_webhook(callback.id, active=False, by=people.steward)
    with pytest.raises(WrongStatus):
        webhooks.remove_webhook(callback.id, by=people.steward)
    _sign(asked, people, "approve")
    notices.send_notices()
    assert receiver.received == []
    webhooks.switch_webhook(callback.id, active=True, by=people.steward)
    notices.send_due()
    assert _called(receiver) == [("request.settled", "approved")]
    webhooks.send_again(
        callback.id, WebhookDelivery.objects.get().id, by=people.steward
    )
    notices.send_due()
    assert len(receiver.received) == 2


def test_callbacks_take_no_place_of_webhooks_and_go_with_their_run(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST_WEBHOOKS", 1)
    _asked(people)
    _asked(people)
    webhooks.add_webhook(URL, by=None)
    assert Webhook in PARTS
    assert Webhook.objects.filter(at__lte=timezone.now()).count() == 3


def test_the_newest_callbacks_are_read_without_sorting_all(people: People) -> None:
    first, second = _asked(people), _asked(people)
    rows = webhooks.visible_callbacks(people.steward)[:20]
    # Words of SQLite; the order is that of an index on both databases.
    assert "TEMP B-TREE" not in rows.explain()
    assert [row.run for row in rows] == [second.approval.run.id, first.approval.run.id]
