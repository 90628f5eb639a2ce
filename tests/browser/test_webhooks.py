"""Stewards add webhooks and look after callbacks, as people do it."""

from collections.abc import Callable
from typing import Any

import pytest

from approvals.models import Webhook, WebhookDelivery
from approvals.webhooks import callbacks
from approvals.webhooks import verbs as webhooks
from tests.browser.axe import sideways, violations
from tests.browser.conftest import Page
from tests.support.cast import People
from tests.support.rows import a_run

Browse = Callable[..., Page]
URL = "https://hooks.example.org/countersign"


def test_a_steward_adds_a_webhook_in_the_envelope_that_they_choose(
    people: People, browse: Browse
) -> None:
    window = browse(people.steward)
    window.open("/webhooks/")
    page = window.page
    page.get_by_label("Address").fill(URL)
    page.get_by_label("A run failed").check()
    page.get_by_label("Form of a message").select_option("cloudevents")
    page.get_by_role("button", name="Add the webhook").click()
    secret = page.locator("[data-test=secret]").inner_text()
    assert secret.startswith("whsec_")
    webhook = Webhook.objects.get()
    assert (webhook.events, webhook.envelope) == (["run.failed"], "cloudevents")
    assert window.complaints == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_the_pages_of_webhooks_and_callbacks_are_readable(
    people: People, browse: Browse, configure: Any, scheme: str, width: int
) -> None:
    configure(CALLBACK_HOSTS=["hooks.example.org"])
    webhooks.add_webhook(URL, envelope="cloudevents", by=None)
    callbacks.add_callback(a_run(), URL, by=people.starter)
    callback = Webhook.objects.exclude(run=None).get()
    webhooks.send_test(callback.id, by=None)
    WebhookDelivery.objects.update(status="given_up", attempts=9, code=500)
    window = browse(people.steward, color_scheme=scheme)
    window.page.set_viewport_size({"width": width, "height": 900})
    for path in ("/webhooks/", f"/webhooks/{callback.id}/"):
        window.open(path)
        assert violations(window.page) == []
        assert sideways(window.page, width) == []
    assert window.complaints == []
