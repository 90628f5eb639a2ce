"""Webhooks as people manage them: who may, what is kept, what the audit log says."""

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from approvals.models import Webhook, WebhookDelivery
from approvals.webhooks import signatures
from approvals.webhooks import verbs as webhooks
from checkpoints.models import AuditLine, Job
from orchestrator.engine.errors import (
    InvalidValue,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from tests.support.cast import People

pytestmark = pytest.mark.django_db
URL = "https://hooks.example.org/secret-path"


def with_rights(*codenames: str) -> User:
    user = User.objects.create_user("-".join(codenames) or "none")
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def test_a_steward_adds_a_webhook_and_the_log_names_its_host_alone(
    people: People,
) -> None:
    webhook, secret = webhooks.add_webhook(
        URL, events=["run.stopped"], graphs=["a", "a"], by=people.steward
    )
    stored = Webhook.objects.get()
    assert (stored.url, stored.events, stored.graphs) == (URL, ["run.stopped"], ["a"])
    assert secret.startswith("whsec_")
    assert len(webhooks.secret_of(stored)) == signatures.SECRET_BYTES
    line = AuditLine.objects.get(kind="webhook_added")
    assert line.actor_name == "stella"
    assert line.facts == {"webhook": str(webhook.id), "host": "hooks.example.org"}


def test_a_secret_is_encrypted_where_there_is_a_key(configure: Any) -> None:
    plain, _ = webhooks.add_webhook(URL, by=None)
    assert not plain.encrypted
    configure(ENCRYPTION_KEYS={"k1": b"k" * 32})
    hidden, secret = webhooks.add_webhook(URL, by=None)
    stored = Webhook.objects.get(id=hidden.id)
    assert stored.encrypted
    assert secret.encode() not in bytes(stored.secret)
    assert len(webhooks.secret_of(stored)) == signatures.SECRET_BYTES


def test_there_are_webhooks_only_for_who_manages_them_and_sees_all_runs(
    people: People,
) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    others = [
        people.nobody,
        people.reviewer,
        people.starter,
        people.auditor,
        with_rights("manage_webhooks"),
        with_rights("view_run"),
    ]
    for person in others:
        assert not webhooks.visible_webhooks(person).exists()
        for act in (
            lambda by: webhooks.add_webhook(URL, by=by),
            lambda by: webhooks.send_test(webhook.id, by=by),
            lambda by: webhooks.switch_webhook(webhook.id, active=False, by=by),
            lambda by: webhooks.send_again(webhook.id, webhook.id, by=by),
            lambda by: webhooks.remove_webhook(webhook.id, by=by),
            lambda by: webhooks.visible_webhook(by, webhook.id),
        ):
            with pytest.raises(UnknownThing):
                act(person)
    assert Webhook.objects.get().active
    both = with_rights("manage_webhooks", "view_run")
    assert webhooks.visible_webhook(both, webhook.id) == webhook


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://hooks.example.org/"},
        {"events": ["request.read"]},
        {"events": "request.opened"},
        {"events": None},
        {"graphs": "claims"},
        {"graphs": [""]},
        {"graphs": [7]},
        {"graphs": ["a"] * 101},
    ],
)
def test_what_is_no_webhook_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue):
        webhooks.add_webhook(**{"url": URL, "by": None, **wrong})
    assert not Webhook.objects.exists()


def test_there_are_so_many_webhooks_and_not_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "MOST_WEBHOOKS", 1)
    webhooks.add_webhook(URL, by=None)
    with pytest.raises(InvalidValue):
        webhooks.add_webhook(URL, by=None)


def test_a_webhook_is_switched_off_and_on(people: People) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    webhooks.switch_webhook(webhook.id, active=False, by=people.steward)
    webhooks.switch_webhook(webhook.id, active=False, by=people.steward)
    stored = Webhook.objects.get()
    assert not stored.active
    webhooks.secret_of(stored)
    for act in (
        lambda: webhooks.send_test(webhook.id, by=people.steward),
        lambda: webhooks.send_again(webhook.id, webhook.id, by=people.steward),
    ):
        with pytest.raises((WrongStatus, UnknownThing)):
            act()
    webhooks.switch_webhook(webhook.id, active=True, by=people.steward)
    lines = AuditLine.objects.filter(kind="webhook_switched").order_by("id")
    assert [line.facts["active"] for line in lines] == [False, True]


def test_a_webhook_that_was_changed_in_the_database_is_switched_off_for_good() -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    Webhook.objects.update(url="https://elsewhere.example.org/")
    webhooks.switch_webhook(webhook.id, active=False, by=None)
    assert not Webhook.objects.get().active
    with pytest.raises(TamperedRow):
        webhooks.switch_webhook(webhook.id, active=True, by=None)
    with pytest.raises(TamperedRow):
        webhooks.secret_of(Webhook.objects.get())
    assert AuditLine.objects.filter(kind="webhook_switched").count() == 1


@pytest.mark.parametrize("changed", [{}, {"url": "https://[elsewhere/"}])
def test_a_webhook_is_removed_with_what_was_sent_and_makes_room(
    changed: dict[str, str], people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MOST_WEBHOOKS", 1)
    webhook, _ = webhooks.add_webhook(URL, by=None)
    webhooks.send_test(webhook.id, by=None)
    Webhook.objects.filter(id=webhook.id).update(active=True, **changed)
    webhooks.remove_webhook(webhook.id, by=people.steward)
    assert not WebhookDelivery.objects.exists()
    line = AuditLine.objects.get(kind="webhook_removed")
    assert line.actor_name == "stella"
    host = "" if changed else "hooks.example.org"
    assert line.facts == {"webhook": str(webhook.id), "host": host}
    with pytest.raises(UnknownThing):
        webhooks.remove_webhook(webhook.id, by=people.steward)
    webhooks.add_webhook(URL, by=None)


def test_a_webhook_is_named_by_its_host_alone() -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    assert str(webhook) == f"webhook {webhook.id} to hooks.example.org"


def test_a_webhook_is_vouched_for_while_its_author_manages_webhooks(
    people: People,
) -> None:
    of_system, _ = webhooks.add_webhook(URL, by=None)
    of_steward, _ = webhooks.add_webhook(URL, by=people.steward)
    assert webhooks.is_vouched_for(Webhook.objects.get(id=of_system.id))
    assert webhooks.is_vouched_for(Webhook.objects.get(id=of_steward.id))
    people.steward.is_active = False
    people.steward.save(update_fields=["is_active"])
    assert not webhooks.is_vouched_for(Webhook.objects.get(id=of_steward.id))
    people.steward.is_active = True
    people.steward.save(update_fields=["is_active"])
    people.steward.groups.clear()
    assert not webhooks.is_vouched_for(Webhook.objects.get(id=of_steward.id))


def test_a_test_is_one_delivery_and_a_job(people: People) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    webhooks.send_test(webhook.id, by=people.steward)
    delivery = WebhookDelivery.objects.get()
    assert (delivery.notice.event, delivery.status) == ("webhook.test", "waiting")
    assert Job.objects.get(kind="send_webhook").name == f"webhook:{webhook.id}"


def test_a_delivery_is_sent_again_under_its_id_for_another_day(people: People) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    delivery = webhooks.send_test(webhook.id, by=None)
    WebhookDelivery.objects.update(
        status="given_up", attempts=9, first_at=delivery.due_at
    )
    webhooks.send_again(webhook.id, delivery.id, by=people.steward)
    stored = WebhookDelivery.objects.get()
    assert stored.id == delivery.id
    assert (stored.status, stored.attempts, stored.first_at) == ("waiting", 9, None)
    assert AuditLine.objects.filter(kind="webhook_sent_again").count() == 1


def test_the_delivery_of_another_webhook_is_not_sent_again() -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    other, _ = webhooks.add_webhook(URL, by=None)
    delivery = webhooks.send_test(other.id, by=None)
    with pytest.raises(UnknownThing):
        webhooks.send_again(webhook.id, delivery.id, by=None)
