"""The message of a notice to a service: ids, names of graph and node, the question, the
effects by their class, and a link. It never holds a value of a run.

Signed as Standard Webhooks describe it (standardwebhooks.com), in their envelope or in
that of CloudEvents (cloudevents.io).
"""

from typing import Any

import orjson
from django.urls import reverse

from approvals.list_columns import CAME_BACK, OPENED
from approvals.models import ApprovalRequest, Envelope, Notice, WebhookDelivery
from approvals.notice_rows import ESCALATED, REMINDED
from approvals.views.inbox_effects import effects_of
from approvals.webhooks.signatures import signature_of
from checkpoints import event_log
from checkpoints.conf import conf
from checkpoints.models import Run
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import CountersignError

LONGEST_QUESTION = 500
CONTENT_TYPES = {
    Envelope.STANDARD: "application/json",
    Envelope.CLOUDEVENTS: "application/cloudevents+json; charset=utf-8",
}
STILL_OPEN = (OPENED, REMINDED, ESCALATED, CAME_BACK)
"""The events of reviews that wait for people."""


def body_of(delivery: WebhookDelivery) -> bytes:
    """Return the body of a message, in the envelope of its webhook: JSON in UTF-8. Up to
    four queries.
    """
    notice = delivery.notice
    if delivery.webhook.envelope == Envelope.CLOUDEVENTS:
        return orjson.dumps(_cloud_event(notice, id_of(delivery)))
    document = {
        "type": notice.event,
        "timestamp": notice.at.isoformat(),
        "data": data_of(notice),
    }
    return orjson.dumps(document)


def id_of(delivery: WebhookDelivery) -> str:
    """Return the id of a message, which is the same at each attempt."""
    return f"msg_{delivery.id.hex}"


def _cloud_event(notice: Notice, id: str) -> dict[str, Any]:
    """Return the message of a notice as a CloudEvent 1.0. Only a test has no subject."""
    event: dict[str, Any] = {
        "specversion": "1.0",
        "id": id,
        "source": conf().site_url or "/",
        "type": f"countersign.{notice.event}",
        "time": notice.at.isoformat(),
        "datacontenttype": "application/json",
        "data": data_of(notice),
    }
    if notice.run is not None:
        event["subject"] = _subject_of(notice)
    return event


def _subject_of(notice: Notice) -> str:
    """Return the subject of a notice: its run, or its request in that run."""
    if notice.request is None:
        return f"runs/{notice.run}"
    return f"runs/{notice.run}/requests/{notice.request}"


def data_of(notice: Notice) -> dict[str, Any]:
    """Return the data of a notice, as JSON. Up to four queries."""
    if notice.run is None:
        return {}
    data: dict[str, Any] = {"run": str(notice.run)}
    if notice.outcome:
        data["outcome"] = notice.outcome
    run = Run.objects.filter(id=notice.run).defer("input").first()
    # Retention may have removed it since.
    if run is None:
        return data
    data["graph"] = run.graph
    if notice.request is None:
        data["link"] = link_to("run", run)
        return data
    data["link"] = link_to("review", run)
    data["request"] = str(notice.request)
    request = ApprovalRequest.objects.filter(id=notice.request).first()
    if request is not None:
        request.run = run
        data |= _about(notice, request)
    return data


def link_to(page: str, run: Run) -> str:
    """Return the address of a page of a run; only its path, if `SITE_URL` is not set."""
    return conf().site_url.rstrip("/") + reverse(page, args=[run.id])


def _about(notice: Notice, request: ApprovalRequest) -> dict[str, Any]:
    """Return the part of a message that describes its request."""
    about: dict[str, Any] = {"node": request.node, "question": question_of(request)}
    # The effects of a settled request can no longer be prevented.
    if notice.event in STILL_OPEN:
        counts = effects_of([request], with_money=False)[request.id]
        about["effects"] = {count.effect: count.count for count in counts}
        if request.deadline is not None:
            about["deadline"] = request.deadline.isoformat()
    return about


def question_of(request: ApprovalRequest) -> str:
    """Return the question of a request, cut to `LONGEST_QUESTION`; empty if it must not
    be sent out, because the graph is encrypted or the row does not match its seal.
    """
    if request.run.encrypted:
        return ""
    if fault_of(request, protection_of(request.run)) is not None:
        return ""
    return str(read_value(request, "title"))[:LONGEST_QUESTION]


def headers_of(
    delivery: WebhookDelivery, body: bytes, *, secret: bytes, at: int
) -> dict[str, str]:
    """Return the headers of a message that is sent at `at`, in seconds since 1970. They
    include the `traceparent` of the run, if it was started in a trace. One query.
    """
    id = id_of(delivery)
    headers = {
        "Content-Type": CONTENT_TYPES[Envelope(delivery.webhook.envelope)],
        "User-Agent": "Countersign",
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": signature_of(secret, id, at, body),
    }
    trace = _trace_of(delivery.notice)
    if trace:
        headers["traceparent"] = trace
    return headers


def _trace_of(notice: Notice) -> str:
    if notice.run is None:
        return ""
    try:
        return event_log.trace_of(notice.run)
    except CountersignError:
        # A fault in the run's log must not keep the message from going out.
        return ""
