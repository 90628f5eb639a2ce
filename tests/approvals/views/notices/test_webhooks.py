"""The pages of webhooks, for those who manage them."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.models import Webhook, WebhookDelivery
from approvals.webhooks import callbacks
from approvals.webhooks import verbs as webhooks
from tests.support.cast import People
from tests.support.rows import a_run

URL = "https://hooks.example.org/a"
pytestmark = pytest.mark.django_db


@pytest.fixture
def stella(people: People) -> Client:
    client = Client()
    client.force_login(people.steward)
    return client


def html_of(answer: Any) -> str:
    text: str = answer.content.decode()
    return text


def test_a_webhook_is_added_and_its_secret_shown_in_the_answer_alone(
    stella: Client,
) -> None:
    form = {"url": URL, "events": ["request.opened", "run.stopped"], "graphs": "a b"}
    answer = stella.post("/webhooks/", form)
    assert answer.status_code == 201
    assert answer.headers["Cache-Control"] == "no-store"
    [secret] = re.findall(r"whsec_[\w+/=]+", html_of(answer))
    webhook = Webhook.objects.get()
    assert (webhook.events, webhook.graphs) == (form["events"], ["a", "b"])
    for path in ("/webhooks/", f"/webhooks/{webhook.id}/"):
        assert secret not in html_of(stella.get(path))


def test_what_is_refused_is_said_and_typed_no_second_time(stella: Client) -> None:
    form = {"url": "http://x.example.org/", "graphs": "claims"}
    answer = stella.post("/webhooks/", form)
    assert answer.status_code == 422
    html = html_of(answer)
    assert "begins with https://" in html
    assert 'value="http://x.example.org/"' in html
    assert 'value="claims"' in html
    assert not Webhook.objects.exists()


def test_a_test_is_sent_and_seen_and_sent_again(stella: Client) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    page = f"/webhooks/{webhook.id}/"
    assert "on its way" in html_of(stella.post(page, {"do": "test"}, follow=True))
    delivery = WebhookDelivery.objects.get()
    WebhookDelivery.objects.update(status="given_up", error="no answer")
    html = html_of(stella.get(page))
    assert "Given up" in html
    assert "no answer" in html
    answer = stella.post(page, {"delivery": str(delivery.id)}, follow=True)
    assert "on its way again" in html_of(answer)
    assert WebhookDelivery.objects.get().status == "waiting"


def test_a_webhook_is_switched_off_and_on(stella: Client) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    page = f"/webhooks/{webhook.id}/"
    assert "Switch on" in html_of(stella.post(page, {"do": "off"}, follow=True))
    answer = stella.post(page, {"do": "test"}, follow=True)
    assert "Nothing was changed" in html_of(answer)
    assert "Switch off" in html_of(stella.post(page, {"do": "on"}, follow=True))


def test_a_webhook_is_removed_once_that_is_confirmed(stella: Client) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    page = f"/webhooks/{webhook.id}/"
    form = {"do": "remove", "confirm": "yes"}
    answer = stella.post(page, form, follow=True)
    assert answer.redirect_chain == [("/webhooks/", 302)]
    assert "The webhook is removed" in html_of(answer)
    assert not Webhook.objects.exists()
    assert stella.post(page, form).status_code == 404


def test_the_page_says_that_nothing_is_sent_for_an_author_without_the_right(
    stella: Client,
) -> None:
    author = User.objects.create_superuser("before")
    webhook, _ = webhooks.add_webhook(URL, by=author)
    page = f"/webhooks/{webhook.id}/"
    assert "Nothing is sent to it" not in html_of(stella.get(page))
    User.objects.filter(id=author.id).update(is_active=False)
    assert "Nothing is sent to it" in html_of(stella.get(page))


@pytest.mark.parametrize(
    "posted",
    [{}, {"do": "explode"}, {"do": "remove"}, {"delivery": "x"}],
)
def test_nonsense_changes_nothing(stella: Client, posted: dict[str, str]) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    answer = stella.post(f"/webhooks/{webhook.id}/", posted, follow=True)
    assert "Nothing was changed" in html_of(answer)
    assert Webhook.objects.get().active


def test_for_everybody_else_the_pages_do_not_exist(people: People) -> None:
    webhook, _ = webhooks.add_webhook(URL, by=None)
    for person in (people.nobody, people.reviewer, people.starter, people.auditor):
        client = Client()
        client.force_login(person)
        for path in ("/webhooks/", f"/webhooks/{webhook.id}/"):
            assert client.get(path).status_code == 404
            assert client.post(path, {"url": URL}).status_code == 404
        assert "/webhooks/" not in html_of(client.get("/workers/"))
    assert Webhook.objects.count() == 1


def test_the_page_of_workers_leads_a_manager_there(stella: Client) -> None:
    assert 'href="/webhooks/"' in html_of(stella.get("/workers/"))


def test_the_envelope_is_chosen_in_the_form_and_said_on_the_page(
    stella: Client,
) -> None:
    answer = stella.post("/webhooks/", {"url": URL, "envelope": "cloudevents"})
    assert answer.status_code == 201
    webhook = Webhook.objects.get()
    assert webhook.envelope == "cloudevents"
    assert "CloudEvents 1.0" in html_of(stella.get(f"/webhooks/{webhook.id}/"))
    refused = stella.post("/webhooks/", {"url": URL, "envelope": "brown"})
    assert refused.status_code == 422
    assert Webhook.objects.count() == 1


def test_callbacks_are_listed_apart_and_can_be_switched_off_but_not_removed(
    stella: Client, people: People, configure: Any
) -> None:
    configure(CALLBACK_HOSTS=["hooks.example.org"])
    run = a_run()
    callbacks.add_callback(run, URL, by=people.starter)
    callback = Webhook.objects.get()
    html = html_of(stella.get("/webhooks/"))
    assert "The newest callbacks of approvals" in html
    assert "No service is notified" in html
    page = f"/webhooks/{callback.id}/"
    html = html_of(stella.get(page))
    assert f'href="/runs/{run.id}/"' in html
    assert "Remove the webhook" not in html
    form = {"do": "remove", "confirm": "yes"}
    assert "Nothing was changed" in html_of(stella.post(page, form, follow=True))
    assert "Switch on" in html_of(stella.post(page, {"do": "off"}, follow=True))
    configure(CALLBACK_HOSTS=())
    assert "no longer allow this host" in html_of(stella.get(page))
