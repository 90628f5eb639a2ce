"""The jobs of notices: a standing one makes deliveries of those that wait, and each
webhook has one that sends what is due. Another removes what is old.

What was sent is recorded afterwards. A process that dies between the two sends once
more, under the same id; nothing is lost.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from time import monotonic
from typing import Any
from uuid import UUID

import structlog
from django.db import Error, transaction
from django.db.models import F, Q, QuerySet

from approvals.models import (
    DeliveryStatus,
    Notice,
    NoticeMail,
    PersonNotice,
    Webhook,
    WebhookDelivery,
)
from approvals.notices import mail_jobs, person_notices
from approvals.notices.connection import NotSent, post
from approvals.notices.message import body_of, headers_of
from approvals.webhooks.address import read_address
from approvals.webhooks.verbs import (
    add_callback_job,
    add_send_job,
    is_vouched_for,
    secret_of,
)
from checkpoints.core import work_sums
from checkpoints.db.clock import db_in, db_now, read_now
from checkpoints.db.shared_locks import lock_rows
from checkpoints.models import Run
from checkpoints.queue.jobs import JobLease, Step
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen

BATCH = 200
"""The most notices that one transaction passes on."""
PAUSES = (60, 300, 900, 3_600, 7_200, 14_400, 28_800)
"""Seconds until the next attempt, after each that failed; the last one for all others."""
LONGEST = timedelta(days=1)
"""How long a delivery is attempted."""
SLOW = 2.0
"""An attempt that takes more seconds ends the turn of its webhook."""
SHORTEST_BREAK = 5.0
"""Seconds until the next turn of a webhook, after an attempt that ended its turn."""
BREAK_FACTOR = 6
"""How many times as long as such an attempt the time until the next turn is, at least."""
KEPT_DAYS = 30
LISTED_DAYS = 90
"""How long the console lists a notice to its person."""
REMOVED_AT_ONCE = 1000

_attempting = Lock()
"""Held during an attempt: receivers that are slow take one place of a worker, not all."""

log = structlog.get_logger(__name__)


# Passing on.


def send_notices(lease: JobLease) -> Iterator[Step]:
    """Make deliveries of the notices that wait, and queue a job for each webhook to
    which something is due.
    """
    passed_on = 0
    while (count := _pass_on()) is not None:
        passed_on += count
        yield Step(passed_on, note="notices passed on")
    for webhook_id in _webhooks_with_due():
        add_send_job(webhook_id)
    for receiver in _receivers_with_due():
        add_callback_job(receiver)
    # Each webhook has its job by now, and waits for no mail server.
    for sent in mail_jobs.send_mails():
        yield Step(passed_on, note=f"notices passed on, {sent} messages mailed")
    yield Step(passed_on, note="notices passed on")


@transaction.atomic
def _pass_on() -> int | None:
    """Make the deliveries of the first notices that wait, and return how many notices
    these were; None if none waits. Of a notice for more than `MOST_ROWS` people it
    writes the rows of some, and returns 0 until the last have theirs. Doing it twice
    makes no second delivery.
    """
    notices = list(Notice.objects.filter(passed_on_at=None).order_by("id")[:BATCH])
    if not notices:
        return None
    now = read_now()
    graph_by_run = _graphs_of(notices)
    # A run may have been removed since, or came in as a bundle: then it is of elsewhere.
    notices_of_here = [notice for notice in notices if notice.run in graph_by_run]
    listed, count = person_notices.new_person_notices(notices_of_here)
    # What would make the transaction too large waits for the next one.
    ids_that_wait = {notice.id for notice in notices_of_here[count:]}
    notices_of_here = notices_of_here[:count]
    mails = mail_jobs.new_mails(notices_of_here, now)
    are_all_listed = _write_first(PersonNotice, listed)
    are_all_mailed = _write_first(NoticeMail, mails)
    # They wait until the others have theirs, and so do the webhooks.
    if not (are_all_listed and are_all_mailed):
        return 0
    # The last that is read, because the webhooks are locked from here on.
    deliveries = _new_deliveries(notices_of_here, graph_by_run, now)
    WebhookDelivery.objects.bulk_create(deliveries, ignore_conflicts=True)
    ids = [notice.id for notice in notices if notice.id not in ids_that_wait]
    Notice.objects.filter(id__in=ids).update(passed_on_at=now)
    return len(ids)


def _write_first(model: Any, rows: Sequence[Any]) -> bool:
    """Write the first of these rows for people that are not there yet, at most
    `MOST_ROWS`. Returns whether all are there now. One query for each `MOST_ROWS` of
    them that an earlier transaction may have written, none for so few.
    """
    most = person_notices.MOST_ROWS
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        is_last = first + most >= len(rows)
        is_only = first == 0 and is_last
        missing = part if is_only else _missing(model, part)
        model.objects.bulk_create(missing, ignore_conflicts=True, batch_size=500)
        if missing and not is_last:
            return False
    return True


def _missing(model: Any, rows: Sequence[Any]) -> list[Any]:
    """Return the rows among these that the database does not have."""
    notice = model._meta.get_field("notice").attname
    there = model.objects.filter(
        user__in={row.user_id for row in rows},
        notice__in={getattr(row, notice) for row in rows},
    )
    written = set(there.values_list("user", "notice"))
    missing: list[Any] = []
    for row in rows:
        if (row.user_id, getattr(row, notice)) not in written:
            missing.append(row)
    return missing


def _new_deliveries(
    notices: Sequence[Notice], graph_by_run: Mapping[UUID | None, str], now: datetime
) -> list[WebhookDelivery]:
    """Return a delivery for each of these notices and each webhook that wants it,
    including where that is off or its row does not verify: then the delivery waits.
    """
    runs = {notice.run for notice in notices}
    rows = Webhook.objects.filter(Q(run=None) | Q(run__in=runs))
    # None of them may be removed until the deliveries are there.
    lock_rows(rows)
    webhooks = list(rows)
    deliveries: list[WebhookDelivery] = []
    for notice in notices:
        graph = graph_by_run[notice.run]
        for webhook in webhooks:
            if _wants(webhook, notice, graph):
                delivery = WebhookDelivery(
                    webhook=webhook, notice=notice, due_at=now, made_at=now
                )
                deliveries.append(delivery)
    return deliveries


def _graphs_of(notices: Sequence[Notice]) -> dict[UUID | None, str]:
    """Return the names of the graphs of the runs of this installation. One query."""
    runs = {notice.run for notice in notices if notice.run is not None}
    rows = Run.objects.filter(id__in=runs, imported=False)
    return dict(rows.values_list("id", "graph"))


def _wants(webhook: Webhook, notice: Notice, graph: str) -> bool:
    if webhook.run not in (None, notice.run):
        return False
    return _names(webhook.events, notice.event) and _names(webhook.graphs, graph)


def _names(chosen: Any, name: str) -> bool:
    """Return whether a list that a person chose names this, or names nothing."""
    # A row that was changed may hold anything. It is verified before it is sent to.
    if not isinstance(chosen, list) or not chosen:
        return True
    return name in chosen


def _webhooks_with_due() -> list[UUID]:
    due = _due().filter(webhook__run=None).order_by()
    return list(due.values_list("webhook", flat=True).distinct())


def _receivers_with_due() -> list[str]:
    """Return the hosts to whose callbacks something is due."""
    due = _due().exclude(webhook__run=None).order_by()
    return list(due.values_list("webhook__receiver", flat=True).distinct())


def _due() -> "QuerySet[WebhookDelivery]":
    return WebhookDelivery.objects.filter(
        # Read again each time, for people may switch it off in the meantime.
        webhook__active=True,
        status=DeliveryStatus.WAITING,
        due_at__lte=db_now(),
    )


# Sending.


@frozen
class SendAttempt:
    """The end of one attempt: the status of the answer, or None and the reason; and how
    many seconds it took.
    """

    code: int | None
    error: str = ""
    seconds: float = 0.0

    @property
    def is_delivered(self) -> bool:
        return self.code is not None and 200 <= self.code < 300

    @property
    def pause(self) -> float:
        """Return the seconds until the next attempt for this webhook."""
        if self.is_delivered and self.seconds <= SLOW:
            return 0.0
        return max(SHORTEST_BREAK, BREAK_FACTOR * self.seconds)


def send_webhook(lease: JobLease) -> Iterator[Step]:
    """Send what is due for the webhook, or for the callbacks to the host, that the job
    names, the oldest first. After an
    attempt that failed or was slow the others wait for the next turn, so that such a
    receiver holds a place of a worker for a small part of the time. While this process
    sends to another webhook, the turn is put off.
    """
    sent = 0
    while True:
        delivery = _next_due(lease.facts)
        if delivery is None:
            return
        attempt = _attempt_alone(delivery)
        if attempt is None:
            yield Step(sent, note="waits for another webhook", pause=1.0)
            return
        _record(delivery, attempt)
        work_sums.count(
            "webhooks_delivered" if attempt.is_delivered else "webhooks_failed"
        )
        sent += 1
        yield Step(sent, note="deliveries attempted", pause=attempt.pause)


def _next_due(facts: Mapping[str, Any]) -> WebhookDelivery | None:
    """Return the first due delivery for the webhook or host that a job names."""
    if "receiver" in facts:
        due = _due().filter(webhook__receiver=facts["receiver"])
    else:
        due = _due().filter(webhook=UUID(facts["webhook"]))
    return due.select_related("webhook", "notice").order_by("due_at", "id").first()


def _attempt_alone(delivery: WebhookDelivery) -> SendAttempt | None:
    """Send a delivery once and measure the time; None if this process is sending
    another.
    """
    if not _attempting.acquire(blocking=False):
        return None
    began = monotonic()
    try:
        attempt = _attempt(delivery)
    finally:
        _attempting.release()
    return SendAttempt(attempt.code, attempt.error, monotonic() - began)


def _attempt(delivery: WebhookDelivery) -> SendAttempt:
    """Send a delivery once. No fault in it may stop the job: the others would wait
    forever.
    """
    at = int(read_now().timestamp())
    try:
        secret = secret_of(delivery.webhook)
        _require_vouched_for(delivery.webhook)
        address = read_address(delivery.webhook.url)
        body = body_of(delivery)
        headers = headers_of(delivery, body, secret=secret, at=at)
        return _answered(post(address, headers, body))
    except NotSent as error:
        return SendAttempt(None, str(error))
    except CountersignError as error:
        # The row does not verify, or the settings no longer allow the address. The
        # message may name values; the code does not.
        return SendAttempt(None, f"refused here: {error.code}")
    except Error:
        # The database failed, not the message, so the job is tried again.
        raise
    except Exception:
        log.exception("message_not_written", delivery=str(delivery.id))
        return SendAttempt(None, "the message cannot be written")


def _require_vouched_for(webhook: Webhook) -> None:
    """Raise `NotSent` if nobody vouches for a webhook any longer."""
    if is_vouched_for(webhook):
        return
    if webhook.run is None:
        raise NotSent("who added the webhook does not manage webhooks any more")
    raise NotSent("the host is not allowed any more, or who asked may not ask")


def _answered(code: int) -> SendAttempt:
    if 300 <= code < 400:
        return SendAttempt(code, "redirects are not followed")
    if 200 <= code < 300:
        return SendAttempt(code)
    return SendAttempt(code, f"the receiver answered {code}")


def _record(delivery: WebhookDelivery, attempt: SendAttempt) -> None:
    """Record the end of an attempt, and when the next one is due if it failed. Records
    nothing if a person has asked to send it again, or another worker has sent it.
    """
    now = read_now()
    first_at = delivery.first_at or now
    values: dict[str, Any] = {
        "attempts": F("attempts") + 1,
        "first_at": first_at,
        "last_at": now,
        "code": attempt.code,
        "error": attempt.error,
        "due_at": now + timedelta(seconds=_pause(now - first_at)),
    }
    if attempt.is_delivered:
        values["status"] = DeliveryStatus.DELIVERED
    elif values["due_at"] > first_at + LONGEST:
        values["status"] = DeliveryStatus.GIVEN_UP
    as_read = WebhookDelivery.objects.filter(
        id=delivery.id,
        status=DeliveryStatus.WAITING,
        attempts=delivery.attempts,
        first_at=delivery.first_at,
        due_at=delivery.due_at,
    )
    as_read.update(**values)


def _pause(waited: timedelta) -> float:
    """Return the seconds until the next attempt of a delivery, by the time since its
    first: the waits grow.
    """
    passed = 0.0
    for pause in PAUSES:
        passed += pause
        if waited.total_seconds() < passed:
            return pause
    return PAUSES[-1]


# Cleaning up.


def notices_that_are_old(lease: JobLease) -> Iterator[Step]:
    """Remove notices, with their deliveries, after `KEPT_DAYS`, and those that the
    console lists after `LISTED_DAYS`, in batches.
    """
    removed = int(lease.place or 0)
    for model, days in ((Notice, KEPT_DAYS), (PersonNotice, LISTED_DAYS)):
        while count := _remove_older(model, days):
            removed += count
            yield Step(removed, note="old notices removed", place=removed)


def _remove_older(model: Any, days: int) -> int:
    """Remove a batch of rows that are this old, and return how many there were."""
    old = model.objects.filter(at__lt=db_in(-days * 86_400)).order_by("at")
    ids = list(old.values_list("id", flat=True)[:REMOVED_AT_ONCE])
    model.objects.filter(id__in=ids).delete()
    return len(ids)
