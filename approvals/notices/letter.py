"""A mail about one or more notices: the questions, the effects by class, and links. It
is plain text without values of a run, and no link approves anything.
"""

from collections.abc import Sequence
from email.utils import parseaddr
from typing import Any
from uuid import UUID

from django.core.mail import EmailMessage

from approvals.models import Notice
from approvals.notices.message import data_of
from checkpoints.conf import conf
from checkpoints.core.visible_text import visible_text

LONGEST_SUBJECT = 120
SENTENCES = {
    "request.opened": "A review waits for you",
    "request.reminded": "A review still waits",
    "request.escalated": "A review waits for you too",
    "request.came_back": "A review came back",
    "request.reopened": "A review that you signed was re-opened",
    "request.commented": "Somebody commented on a review",
    "request.settled": "A review that you signed was decided",
    "request.outcome_reported": (
        "What you approved did not come off, as the caller reported"
    ),
    "request.expired": "A review that you signed was closed by its deadline",
    "run.stopped": "What came of a review that you signed",
}
"""Event -> the sentence to a person."""


def letter_of(person: Any, batch: UUID, notices: Sequence[Notice]) -> EmailMessage:
    """Return the message of these notices, at least one, to a person. Its id is made of
    that of the batch.
    """
    parts = [_part(notice) for notice in notices]
    subject = parts[0][0]
    if len(parts) > 1:
        subject = f"{len(parts)} notices: {subject}"
    body = "\n\n".join(text for _, text in parts)
    sender = conf().mail_from
    _, _, domain = parseaddr(sender)[1].rpartition("@")
    return EmailMessage(
        # Keeps a long question from being folded, and a line break from starting a
        # header.
        subject=subject[:LONGEST_SUBJECT],
        body=f"{body}\n\n-- \nYou choose on the page of your account what is sent.\n",
        from_email=sender,
        to=[person.email],
        headers={
            "Message-ID": f"<{batch.hex}@{domain or 'countersign.invalid'}>",
            "Auto-Submitted": "auto-generated",
        },
    )


def _part(notice: Notice) -> tuple[str, str]:
    """Return the subject and the text of one notice."""
    data = data_of(notice)
    sentence = SENTENCES.get(notice.event, notice.event)
    question = _one_line(data.get("question", ""))
    subject = f"{sentence}: {question}" if question else sentence
    lines = [subject, f"Graph: {_one_line(data.get('graph', ''))}"]
    if notice.outcome:
        lines.append(f"Outcome: {notice.outcome}")
    effects = data.get("effects")
    if effects:
        counted = ", ".join(f"{count} {effect}" for effect, count in effects.items())
        lines.append(f"Effects: {counted}")
    if "deadline" in data:
        lines.append(f"Until: {data['deadline']}")
    if "link" in data:
        lines.append(str(data["link"]))
    return subject, "\n".join(lines)


def _one_line(text: str) -> str:
    """Return a run's text on one line, with invisible characters written out."""
    return visible_text(" ".join(str(text).split()))
