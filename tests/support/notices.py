"""Notices on their way: webhooks of a test, and their jobs worked off in this process."""

from typing import Any

from approvals.models import Notice, Webhook, WebhookDelivery
from approvals.webhooks import verbs as webhooks
from checkpoints.models import Job
from checkpoints.queue import jobs
from orchestrator.jobs import kinds
from tests.support.receivers import Receiver


def webhook_to(receiver: Receiver, **columns: Any) -> tuple[Webhook, str]:
    """A webhook that sends to this receiver, with its secret."""
    return webhooks.add_webhook(receiver.url, by=None, **columns)


def send_notices() -> None:
    """Pass on what waits, and send what is due, as a worker does."""
    kinds.advance(jobs.add_job("send_notices", name="send_notices"))
    Job.objects.filter(name="send_notices").update(due_at="2020-01-01T00:00Z")
    kinds.advance(jobs.add_job("send_notices", name="send_notices"))
    send_due()


def send_due() -> None:
    """Work off the jobs that send."""
    waiting = Job.objects.filter(kind=webhooks.SEND_WEBHOOK, ended_at=None)
    for job in waiting.values_list("id", flat=True):
        kinds.advance(job)


def make_due() -> None:
    """Let the time of the next attempts come."""
    WebhookDelivery.objects.update(due_at="2020-01-01T00:00Z")


def events() -> list[tuple[str, str]]:
    """The events that were noted so far, with their outcomes, in their order."""
    return list(Notice.objects.order_by("id").values_list("event", "outcome"))
