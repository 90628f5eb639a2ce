"""Notices arrive at least once under one id, each receiver for itself, for a day."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import standardwebhooks
from django.db import OperationalError, connection
from django.utils import timezone

from approvals.models import (
    Notice,
    NoticeMail,
    PersonNotice,
    Webhook,
    WebhookDelivery,
)
from approvals.notices import delivery_jobs, message
from approvals.notices.delivery_jobs import SendAttempt
from approvals.webhooks import verbs as webhooks
from checkpoints.ledger.pending_writes import StoredBase
from checkpoints.models import Job, Run
from checkpoints.queue import jobs
from orchestrator.jobs import kinds
from tests.support import notices
from tests.support.cast import People
from tests.support.receivers import Receiver, receiving
from tests.support.rows import a_decision, a_request, a_run, a_write

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def receiver(configure: Any) -> Iterator[Receiver]:
    configure(WEBHOOKS_TO_PRIVATE_ADDRESSES=True, WEBHOOKS_OVER_HTTP=True)
    with receiving() as running:
        yield running


def as_of_elsewhere(act: Callable[..., Any], *args: Any, **columns: Any) -> None:
    """Do an act on a separate connection, because receivers answer in a thread."""
    try:
        act(*args, **columns)
    finally:
        connection.close()


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
    of_test = WebhookDelivery.objects.get(notice__event="webhook.test")
    assert of_test.error == "refused here: tampered_row"
    assert not Notice.objects.filter(passed_on_at=None).exists()


def test_what_happens_while_a_row_does_not_verify_is_sent_once_it_does(
    receiver: Receiver,
) -> None:
    webhook, _ = notices.webhook_to(receiver)
    sealed = webhook.seal
    Webhook.objects.update(seal=b"other", events={"led": "astray"})
    a_request(a_run(), "user:rita")
    notices.send_notices()
    assert WebhookDelivery.objects.get().error == "refused here: tampered_row"
    assert receiver.received == []
    Webhook.objects.update(seal=sealed, events=[])
    notices.make_due()
    notices.send_notices()
    assert [received.document["type"] for received in receiver.received] == [
        "request.opened"
    ]


def test_nothing_is_sent_for_an_author_who_manages_no_webhooks_any_more(
    receiver: Receiver, people: People
) -> None:
    webhooks.add_webhook(receiver.url, by=people.steward)
    people.steward.groups.clear()
    a_request(a_run(), "user:rita")
    notices.send_notices()
    assert receiver.received == []
    delivery = WebhookDelivery.objects.get()
    assert delivery.status == "waiting"
    assert "does not manage webhooks any more" in delivery.error


def test_a_message_that_cannot_be_written_keeps_no_other_waiting(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices.webhook_to(receiver)
    for _ in range(2):
        a_request(a_run(), "user:rita")
    first = Notice.objects.order_by("id")[0].id

    def body_of(delivery: WebhookDelivery) -> bytes:
        if delivery.notice_id == first:
            raise ArithmeticError
        return message.body_of(delivery)

    monkeypatch.setattr(delivery_jobs, "body_of", body_of)
    notices.send_notices()
    notices.send_due()
    assert len(receiver.received) == 1
    delivery = WebhookDelivery.objects.get(notice=first)
    assert (delivery.status, delivery.attempts) == ("waiting", 1)
    assert delivery.error == "the message cannot be written"
    assert not Job.objects.exclude(error="").exists()


def test_a_database_that_fails_is_no_fault_of_a_message(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")

    def body_of(delivery: WebhookDelivery) -> bytes:
        raise OperationalError

    with monkeypatch.context() as patched:
        patched.setattr(delivery_jobs, "body_of", body_of)
        notices.send_notices()
    assert WebhookDelivery.objects.get().attempts == 0


@pytest.mark.parametrize(
    ("attempt", "pause"),
    [
        (SendAttempt(204, "", 1.0), 0),
        (SendAttempt(204, "", 3.0), 18),
        (SendAttempt(500, "", 0.1), 5),
        (SendAttempt(None, "", 10.0), 60),
    ],
)
def test_after_an_attempt_that_failed_or_was_slow_a_webhook_pauses(
    attempt: SendAttempt, pause: float
) -> None:
    assert attempt.pause == pause


def test_after_a_failure_the_job_goes_on_a_moment_later_with_the_next(
    receiver: Receiver,
) -> None:
    notices.webhook_to(receiver)
    for _ in range(2):
        a_request(a_run(), "user:rita")
    receiver.answers = [500]
    notices.send_notices()
    assert len(receiver.received) == 1
    job = Job.objects.get(kind="send_webhook")
    assert (job.status, job.due_at > timezone.now()) == ("queued", True)
    notices.send_due()
    assert len(receiver.received) == 2


def test_a_process_sends_to_a_single_webhook_at_a_time(receiver: Receiver) -> None:
    notices.webhook_to(receiver)
    a_request(a_run(), "user:rita")
    with delivery_jobs._attempting:
        notices.send_notices()
    assert receiver.received == []
    assert Job.objects.get(kind="send_webhook").status == "queued"
    notices.send_due()
    assert len(receiver.received) == 1


def test_what_is_sent_again_during_an_attempt_is_sent_again(
    receiver: Receiver,
) -> None:
    webhook, _ = notices.webhook_to(receiver)
    delivery = webhooks.send_test(webhook.id, by=None)
    attempts: list[int] = []

    def ask_again() -> None:
        attempts.append(1)
        if len(attempts) == 1:
            as_of_elsewhere(webhooks.send_again, webhook.id, delivery.id, by=None)

    receiver.before_answer = ask_again
    notices.send_due()
    assert len(receiver.received) == 2
    assert WebhookDelivery.objects.get().status == "delivered"


def test_what_another_worker_has_delivered_stays_delivered(
    receiver: Receiver,
) -> None:
    webhook, _ = notices.webhook_to(receiver)
    webhooks.send_test(webhook.id, by=None)
    rows = WebhookDelivery.objects.all()
    receiver.before_answer = lambda: as_of_elsewhere(
        rows.update, status="delivered", attempts=1, code=204
    )
    receiver.answers = [500]
    notices.send_due()
    stored = WebhookDelivery.objects.get()
    assert (stored.status, stored.attempts, stored.code) == ("delivered", 1, 204)


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
    assert [one.document["type"] for one in receiver.received] == [
        "webhook.test",
        "request.opened",
    ]


def test_what_waited_for_a_webhook_that_was_off_is_tried_for_another_day(
    receiver: Receiver,
) -> None:
    webhook, _ = notices.webhook_to(receiver)
    webhooks.send_test(webhook.id, by=None)
    receiver.answers = [500, 500]
    notices.send_due()
    webhooks.switch_webhook(webhook.id, active=False, by=None)
    days = timezone.now() - timedelta(days=3)
    WebhookDelivery.objects.update(first_at=days, due_at=days)
    webhooks.switch_webhook(webhook.id, active=True, by=None)
    notices.send_due()
    assert WebhookDelivery.objects.get().status == "waiting"


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


@pytest.mark.parametrize("envelope", ["standard", "cloudevents"])
def test_an_independent_library_verifies_the_signature_of_each_envelope(
    receiver: Receiver, envelope: str
) -> None:
    _, secret = notices.webhook_to(receiver, envelope=envelope)
    a_request(a_run(), "user:rita")
    notices.send_notices()
    [received] = receiver.received
    verifier = standardwebhooks.Webhook(secret)
    assert verifier.verify(received.body, received.headers) == received.document
    changed = received.body.replace(b"request.opened", b"request.settled")
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verifier.verify(changed, received.headers)


def test_a_webhook_hears_of_the_end_of_a_run_that_asked_nobody(
    receiver: Receiver,
) -> None:
    notices.webhook_to(receiver, events=["run.failed", "values.erased"])
    run = a_run(status="running")
    Run.objects.filter(id=run.id).update(status="failed")
    notices.send_notices()
    [received] = receiver.received
    assert received.document["type"] == "run.failed"
    assert received.document["data"] == {
        "run": str(run.id),
        "graph": run.graph,
        "outcome": "failed",
        "link": f"/runs/{run.id}/",
    }


def test_people_get_neither_mail_nor_a_line_of_what_is_for_webhooks(
    receiver: Receiver, configure: Any, people: People
) -> None:
    configure(
        MAIL_FROM="runs@example.org",
        WEBHOOKS_TO_PRIVATE_ADDRESSES=True,
        WEBHOOKS_OVER_HTTP=True,
    )
    notices.webhook_to(receiver)
    people.reviewer.email = "rita@example.org"
    people.reviewer.save()
    run = a_run(status="running")
    request = a_request(run, "user:rita", status="settled")
    base = StoredBase("", {}, bound=True)
    write = a_write(request, 1, channel="payout", value=1, base=base)
    a_decision(write, request, by=people.reviewer, verdict="approve", seq=1)
    Run.objects.filter(id=run.id).update(status="failed")
    notices.send_notices()
    assert [received.document["type"] for received in receiver.received] == [
        "run.failed"
    ]
    assert not NoticeMail.objects.exists()
    assert not PersonNotice.objects.exists()
