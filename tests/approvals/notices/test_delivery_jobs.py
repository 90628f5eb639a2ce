"""Notices arrive at least once under one id, each receiver for itself, for a day."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from approvals.models import Notice, Webhook, WebhookDelivery
from approvals.notices import delivery_jobs
from approvals.webhooks import verbs as webhooks
from checkpoints.models import Job, Run
from checkpoints.queue import jobs
from orchestrator.jobs import kinds
from tests.support import notices
from tests.support.receivers import Receiver, receiving
from tests.support.rows import a_request, a_run

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def receiver(configure: Any) -> Iterator[Receiver]:
    configure(WEBHOOKS_TO_PRIVATE_ADDRESSES=True, WEBHOOKS_OVER_HTTP=True)
    with receiving() as running:
        yield running


def test_a_request_is_told_to_a_webhook_with_a_signature(receiver: Receiver) -> None:
    _, secret = notices.webhook_to(receiver)
    request = a_request(a_run(), "user:rita")
    notices.send_notices()
    [received] = receiver.received
    assert received.is_signed_with(secret)
    assert received.document["type"] == "request.opened"
    assert received.document["data"]["request"] == str(request.id)
    delivery = WebhookDelivery.objects.get()
    assert received.id == f"msg_{delivery.id.hex}"
    assert (delivery.status, delivery.attempts, delivery.code) == ("delivered", 1, 204)
    notices.send_notices()
    assert len(receiver.received) == 1


def test_a_webhook_hears_of_its_events_and_graphs_alone(receiver: Receiver) -> None:
    notices.webhook_to(receiver, events=["request.settled"], graphs=["claims"])
    for graph in ("claims", "loans"):
        request = a_request(a_run(graph=graph), "user:rita")
        request.status, request.outcome = "settled", "approved"
        request.save(update_fields=["status", "outcome"])
    notices.send_notices()
    [received] = receiver.received
    data = received.document["data"]
    assert (data["graph"], data["outcome"]) == ("claims", "approved")


def test_nothing_is_sent_of_a_run_that_came_in_as_a_bundle(receiver: Receiver) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(imported=True), "user:rita")
    notices.send_notices()
    assert receiver.received == []
    assert not Notice.objects.filter(passed_on_at=None).exists()


def test_a_process_killed_between_sending_and_recording_sends_again_under_the_same_id(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(delivery_jobs, "_record", killed)
        with pytest.raises(KeyboardInterrupt):
            notices.send_notices()
    assert len(receiver.received) == 1
    # The dead worker holds the job until its lease is over.
    Job.objects.filter(status="running").update(lease_until="2020-01-01T00:00Z")
    notices.send_due()
    assert len(receiver.received) == 2
    assert receiver.received[0].id == receiver.received[1].id
    assert WebhookDelivery.objects.get().status == "delivered"


def test_a_process_killed_while_passing_on_loses_and_doubles_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")
    job = jobs.add_job("send_notices", name="send_notices")

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(delivery_jobs, "add_send_job", killed)
        with pytest.raises(KeyboardInterrupt):
            kinds.advance(job)
    assert WebhookDelivery.objects.count() == 1
    Job.objects.filter(status="running").update(lease_until="2020-01-01T00:00Z")
    notices.send_notices()
    assert len(receiver.received) == 1


def test_what_fails_is_tried_again_for_a_day_and_then_given_up(
    receiver: Receiver,
) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")
    receiver.answers = [500] * 20
    notices.send_notices()
    delivery = WebhookDelivery.objects.get()
    pauses = []
    while delivery.status == "waiting":
        pause = delivery.due_at - delivery.last_at
        pauses.append(round(pause.total_seconds()))
        # The time passes.
        WebhookDelivery.objects.update(
            first_at=delivery.first_at - pause, due_at=timezone.now()
        )
        notices.send_notices()
        delivery.refresh_from_db()
    assert pauses == list(delivery_jobs.PAUSES) + [28_800]
    assert delivery.status == "given_up"
    assert (delivery.attempts, delivery.code) == (9, 500)
    assert delivery.error == "the receiver answered 500"
    assert len({received.id for received in receiver.received}) == 1


def test_a_redirect_is_a_failure(receiver: Receiver) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")
    receiver.answers = [302]
    notices.send_notices()
    assert WebhookDelivery.objects.get().error == "redirects are not followed"
    assert len(receiver.received) == 1


def test_a_receiver_that_is_away_is_tried_once_a_turn_and_keeps_no_other_waiting(
    receiver: Receiver,
) -> None:
    notices.webhook_to(receiver)
    away = Receiver(url="http://127.0.0.1:9/")
    notices.webhook_to(away)
    for _ in range(3):
        a_request(a_run(), "user:rita")
    notices.send_notices()
    assert len(receiver.received) == 3
    waiting = WebhookDelivery.objects.filter(webhook__url=away.url)
    assert sorted(waiting.values_list("attempts", flat=True)) == [0, 0, 1]


def test_settings_that_forbid_an_address_now_are_heeded_when_it_is_sent_to(
    receiver: Receiver, configure: Any
) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")
    configure(WEBHOOKS_TO_PRIVATE_ADDRESSES=False)
    notices.send_notices()
    assert WebhookDelivery.objects.get().error == "the host is in a private network"
    configure(WEBHOOKS_OVER_HTTP=False)
    notices.make_due()
    notices.send_notices()
    assert WebhookDelivery.objects.get().error == "refused here: invalid_value"
    assert receiver.received == []


def test_a_webhook_that_was_led_elsewhere_in_the_database_gets_nothing(
    receiver: Receiver,
) -> None:
    webhook, _ = notices.webhook_to(receiver)
    webhooks.send_test(webhook.id, by=None)
    with receiving() as elsewhere:
        Webhook.objects.update(url=elsewhere.url)
        a_request(a_run(), "user:rita")
        notices.send_notices()
        assert elsewhere.received == []
    [of_test] = WebhookDelivery.objects.all()
    assert of_test.error == "refused here: tampered_row"
    assert not Notice.objects.filter(passed_on_at=None).exists()


def test_what_waits_for_a_webhook_that_is_off_waits_until_it_is_on(
    receiver: Receiver,
) -> None:
    webhook, _ = notices.webhook_to(receiver)
    webhooks.send_test(webhook.id, by=None)
    webhooks.switch_webhook(webhook.id, active=False, by=None)
    a_request(a_run(), "user:rita")
    notices.send_notices()
    assert receiver.received == []
    webhooks.switch_webhook(webhook.id, active=True, by=None)
    notices.send_due()
    assert [one.document["type"] for one in receiver.received] == ["webhook.test"]


def test_a_notice_of_a_run_that_was_removed_is_passed_on_to_nobody(
    receiver: Receiver,
) -> None:
    notices.webhook_to(receiver)
    Notice.objects.create(
        event="run.stopped", run=a_run().id, outcome="failed", at=timezone.now()
    )
    Run.objects.all().delete()
    notices.send_notices()
    assert receiver.received == []


def test_notices_go_after_a_month_with_their_deliveries(receiver: Receiver) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")
    notices.send_notices()
    a_request(a_run(), "user:rita")
    old = Notice.objects.order_by("id")[:1].values("id")
    month = timezone.now() - timedelta(days=delivery_jobs.KEPT_DAYS, hours=1)
    Notice.objects.filter(id__in=list(old.values_list("id", flat=True))).update(
        at=month
    )
    kinds.advance(jobs.add_job("sweep_notices"))
    assert Notice.objects.count() == 1
    assert not WebhookDelivery.objects.exists()
