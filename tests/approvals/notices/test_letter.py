"""A message by mail: nothing in it becomes a header, and a real server takes it."""

from datetime import UTC, datetime
from email.header import decode_header, make_header
from socket import create_server
from typing import Any
from uuid import uuid4

import pytest
from django.core import mail

from approvals.models import Notice
from approvals.notices.letter import LONGEST_SUBJECT, letter_of
from tests.support.cast import People
from tests.support.rows import a_request, a_run

pytestmark = pytest.mark.django_db
AT = datetime(2026, 11, 28, 9, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _configured(configure: Any) -> None:
    configure(MAIL_FROM="Countersign <runs@example.org>")


def opened(title: str) -> Notice:
    request = a_request(a_run(), "user:rita", title=title)
    return Notice.objects.create(
        event="request.opened", run=request.run_id, request=request.id, at=AT
    )


@pytest.mark.parametrize(
    "title",
    [
        "Pay?\r\nBcc: eve@example.org",
        "Pay?\nBcc: eve@example.org",
        "Pay?\u2028Bcc: eve@example.org",
        "Pay?\x0b\x0c\x85",
        "Pay?\u202e",
    ],
)
def test_no_title_becomes_a_header(people: People, title: str) -> None:
    message = letter_of(people.reviewer, uuid4(), [opened(title)]).message()
    assert message["Bcc"] is None
    assert message["To"] == people.reviewer.email
    subject = str(make_header(decode_header(message["Subject"])))
    assert subject.startswith("A review waits for you: Pay?")
    lines = message.as_bytes().split(b"\n\n")[0].splitlines()
    assert not [line for line in lines if line.lower().startswith(b"bcc")]


def test_a_long_question_is_cut_in_the_subject(people: People) -> None:
    letter = letter_of(people.reviewer, uuid4(), [opened("x" * 1000)])
    assert len(letter.subject) == LONGEST_SUBJECT


def test_a_real_server_takes_the_message(people: People, settings: Any) -> None:
    controllers = pytest.importorskip("aiosmtpd.controller")

    class Keeping:
        """Keeps what arrives."""

        envelopes: list[Any] = []

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            self.envelopes.append(envelope)
            return "250 OK"

    with create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    controller = controllers.Controller(Keeping(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        settings.EMAIL_HOST = "127.0.0.1"
        settings.EMAIL_PORT = port
        letter = letter_of(people.reviewer, uuid4(), [opened("Zahlen — 5 €?")])
        letter.connection = mail.get_connection(
            "django.core.mail.backends.smtp.EmailBackend"
        )
        letter.send()
    finally:
        controller.stop()
    [envelope] = Keeping.envelopes
    assert envelope.rcpt_tos == [people.reviewer.email]
    assert envelope.mail_from == "runs@example.org"
    assert b"Auto-Submitted: auto-generated" in envelope.content
