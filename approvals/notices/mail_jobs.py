"""Notices by mail: who gets which, gathered into at most one message per person every
ten minutes.

The notices of a message are fixed before it is sent. A process that dies between sending
and recording sends the same message again, under the same id.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from smtplib import SMTPException
from typing import Any
from uuid import UUID

import structlog
from django.contrib.auth import get_user_model
from django.db.models import F

from approvals.list_columns import FOR_WEBHOOKS
from approvals.models import (
    ApprovalRequest,
    DeliveryStatus,
    MailPreference,
    Notice,
    NoticeMail,
)
from approvals.notices.letter import letter_of
from approvals.notices.mail_recipients import is_quiet, people_for, still_concerns
from checkpoints.conf import conf
from checkpoints.core import work_sums
from checkpoints.core.ids import uuid7
from checkpoints.db.clock import read_now

GATHERED = timedelta(minutes=10)
"""The shortest time between two messages to a person who gets digests."""
URGENT = timedelta(minutes=30)
"""A review whose deadline is nearer is not gathered."""
MOST_IN_ONE = 50
"""The most notices in one message."""
PAUSE = timedelta(minutes=5)
"""Until a message that the mail server refused is sent again."""
LONGEST = timedelta(days=1)
"""How long a message is tried."""

log = structlog.get_logger(__name__)


def new_mails(notices: Sequence[Notice], now: datetime) -> list[NoticeMail]:
    """Return the mails that are due for these notices, a row per person; none if the
    settings name no sender. Two queries for each notice.
    """
    mails: list[NoticeMail] = []
    if not conf().mail_from:
        return mails
    for notice in notices:
        # If people have to act, another notice says so.
        if notice.event in FOR_WEBHOOKS:
            continue
        for person in people_for(notice):
            mails.append(
                NoticeMail(user=person, notice=notice, due_at=now, made_at=now)
            )
    return mails


def send_mails() -> Iterator[int]:
    """Send what is due to each person, and yield after each how many messages went out.
    Without a sender in the settings nothing is sent.
    """
    if not conf().mail_from:
        return
    sent = 0
    waiting = NoticeMail.objects.filter(
        status=DeliveryStatus.WAITING, due_at__lte=read_now()
    )
    people = waiting.order_by("user").values_list("user", flat=True).distinct()
    for person_id in list(people):
        sent += _send_to(person_id)
        yield sent


def _send_to(person_id: int) -> int:
    """Send a person the message that is due; return how many were sent: 0 or 1."""
    person = get_user_model()._default_manager.get(pk=person_id)
    preference = MailPreference.of(person)
    now = read_now()
    if is_quiet(preference, now):
        return 0
    batch = _batch_of(person, preference, now)
    if batch is None:
        return 0
    return _send(person, batch, now)


def _batch_of(person: Any, preference: MailPreference, now: datetime) -> UUID | None:
    """Return the id of the message that is due to this person, and fix its notices;
    None if none is due.
    """
    waiting = NoticeMail.objects.filter(
        user=person.pk, status=DeliveryStatus.WAITING, due_at__lte=now
    )
    # A message that was begun earlier comes first, unchanged.
    begun = waiting.filter(batch__isnull=False).order_by("batch").first()
    if begun is not None:
        return begun.batch
    mails = _concerning(person, preference, waiting)
    if not mails or not _may_send_now(person, preference, mails, now):
        return None
    batch = uuid7()
    ids = [mail.id for mail in mails]
    NoticeMail.objects.filter(id__in=ids).update(batch=batch)
    return batch


def _concerning(
    person: Any, preference: MailPreference, waiting: Any
) -> list[NoticeMail]:
    """Return the first of these mails that still concern the person, and remove the
    others.
    """
    mails = list(waiting.select_related("notice").order_by("notice_id")[:MOST_IN_ONE])
    concerning: list[NoticeMail] = []
    for mail in mails:
        is_wanted = preference.mode != MailPreference.NONE and person.email
        if is_wanted and person.is_active and still_concerns(person, mail.notice):
            concerning.append(mail)
        else:
            NoticeMail.objects.filter(id=mail.id).delete()
    return concerning


def _may_send_now(
    person: Any, preference: MailPreference, mails: Sequence[NoticeMail], now: datetime
) -> bool:
    """Return whether a message may go out now instead of gathering more notices."""
    if preference.mode == MailPreference.AT_ONCE:
        return True
    sent_lately = NoticeMail.objects.filter(user=person.pk, sent_at__gt=now - GATHERED)
    if not sent_lately.exists():
        return True
    requests = [mail.notice.request for mail in mails if mail.notice.request]
    urgent = ApprovalRequest.objects.filter(
        id__in=requests, status="open", deadline__lt=now + URGENT
    )
    return urgent.exists()


def _send(person: Any, batch: UUID, now: datetime) -> int:
    """Send one message, and record how that ended."""
    rows = NoticeMail.objects.filter(batch=batch)
    mails = list(rows.select_related("notice").order_by("notice_id"))
    try:
        letter_of(person, batch, [mail.notice for mail in mails]).send()
    except (SMTPException, OSError) as error:
        work_sums.count("mails_failed")
        log.warning("mail_refused", batch=str(batch), error=type(error).__name__)
        _record_refusal(rows, mails, now)
        return 0
    work_sums.count("mails_sent")
    rows.update(
        status=DeliveryStatus.DELIVERED, sent_at=read_now(), attempts=F("attempts") + 1
    )
    return 1


def _record_refusal(rows: Any, mails: Sequence[NoticeMail], now: datetime) -> None:
    status = DeliveryStatus.WAITING
    if now > min(mail.made_at for mail in mails) + LONGEST:
        status = DeliveryStatus.GIVEN_UP
    rows.update(status=status, due_at=now + PAUSE, attempts=F("attempts") + 1)
