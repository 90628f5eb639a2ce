"""Webhooks by the API: their secret is shown once, and only to who manages them."""

from typing import Any

import pytest

from approvals.models import Webhook, WebhookDelivery
from approvals.webhooks import verbs as webhooks
from checkpoints.sealing import sealed_rows
from orchestrator.models import IdempotencyRecord
from tests.support.api_people import Client
from tests.support.cast import People

KEY = {"Idempotency-Key": "k-1"}
URL = "https://hooks.example.org/a"
pytestmark = pytest.mark.django_db


@pytest.fixture
def stella(people: People) -> Client:
    return Client(people.steward)


def test_a_webhook_is_added_and_its_secret_shown_once(stella: Client) -> None:
    answer = stella.post("webhooks/", {"url": URL, "events": ["run.stopped"]})
    assert answer.status_code == 201, answer.json()
    body = answer.json()
    assert body["secret"].startswith("whsec_")
    assert body["webhook"]["events"] == ["run.stopped"]
    listed = stella.get("webhooks/").json()["results"]
    assert listed == [body["webhook"]]
    assert "secret" not in listed[0]


def test_a_webhook_says_which_envelope_it_has(stella: Client) -> None:
    for body, envelope in (
        ({}, "standard"),
        ({"envelope": "cloudevents"}, "cloudevents"),
    ):
        answer = stella.post("webhooks/", {"url": URL, **body})
        assert answer.json()["webhook"]["envelope"] == envelope


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"url": URL, "envelope": "brown"}, 400),
        ({}, 400),
        ({"url": URL, "events": ["no.event"]}, 400),
        ({"url": URL, "other": 1}, 400),
        ({"url": "http://hooks.example.org/"}, 422),
        ({"url": "https://user:word@hooks.example.org/"}, 422),
    ],
)
def test_what_is_no_webhook_is_refused(
    stella: Client, body: dict[str, Any], status: int
) -> None:
    assert stella.post("webhooks/", body).status_code == status
    assert not Webhook.objects.exists()


def test_deliveries_are_listed_and_sent_again(stella: Client) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    delivery = webhooks.send_test(webhook.id, by=None)
    WebhookDelivery.objects.update(status="given_up", code=500, attempts=9)
    [row] = stella.get(f"webhooks/{webhook.id}/deliveries/").json()["results"]
    assert (row["id"], row["event"]) == (str(delivery.id), "webhook.test")
    assert (row["status"], row["code"], row["attempts"]) == ("given_up", 500, 9)
    path = f"webhooks/{webhook.id}/deliveries/{delivery.id}/send/"
    answer = stella.post(path)
    assert answer.status_code == 202, answer.json()
    assert answer.json()["status"] == "waiting"
    webhooks.switch_webhook(webhook.id, active=False, by=None)
    assert stella.post(path).status_code == 409


def test_for_everybody_else_there_are_none(
    olive: Client, rita: Client, nobody: Client
) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    delivery = webhooks.send_test(webhook.id, by=None)
    for client in (olive, rita, nobody):
        for answer in (
            client.get("webhooks/"),
            client.post("webhooks/", {"url": URL}),
            client.get(f"webhooks/{webhook.id}/deliveries/"),
            client.post(f"webhooks/{webhook.id}/deliveries/{delivery.id}/send/"),
        ):
            assert answer.status_code == 404
    assert Webhook.objects.count() == 1


def test_a_token_needs_the_scope_of_what_leaves_the_house(people: People) -> None:
    reader = Client(people.steward, ["read"])
    assert reader.get("webhooks/").status_code == 200
    assert reader.post("webhooks/", {"url": URL}).status_code == 403


def test_a_repeated_answer_lacks_the_secret_which_is_not_kept(stella: Client) -> None:
    first = stella.post("webhooks/", {"url": URL}, **KEY).json()
    record = IdempotencyRecord.objects.get()
    assert b"whsec_" not in sealed_rows.decrypted(record, "answer")
    again = stella.post("webhooks/", {"url": URL}, **KEY)
    assert again.status_code == 201
    assert again.json() == {"webhook": first["webhook"]}
    assert Webhook.objects.count() == 1


def test_who_manages_no_webhooks_any_more_gets_no_answer_again(
    stella: Client, people: People
) -> None:
    webhook = stella.post("webhooks/", {"url": URL}, **KEY).json()["webhook"]
    delivery = webhooks.send_test(webhook["id"], by=None)
    path = f"webhooks/{webhook['id']}/deliveries/{delivery.id}/send/"
    assert stella.post(path, **KEY).status_code == 202
    people.steward.groups.clear()
    for again in (
        stella.post("webhooks/", {"url": URL}, **KEY),
        stella.post(path, **KEY),
    ):
        assert again.status_code == 404
        assert URL not in again.content.decode()


def test_a_webhook_is_removed(stella: Client, olive: Client, people: People) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    path = f"webhooks/{webhook.id}/"
    assert olive.delete(path).status_code == 404
    assert Client(people.steward, ["read"]).delete(path).status_code == 403
    assert Webhook.objects.exists()
    assert stella.delete(path).status_code == 204
    assert not Webhook.objects.exists()
    assert stella.delete(path).status_code == 404
