"""A mail backend that writes each message to a separate file, `<time>-<id>.eml`,
which any mail program opens.

Named in EMAIL_BACKEND; the folder is EMAIL_FILE_PATH. Nothing leaves the machine.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from django.conf import settings
from django.core.mail import EmailMessage
from django.core.mail.backends.base import BaseEmailBackend
from django.utils import timezone


class EmailBackend(BaseEmailBackend):
    """Sending is writing. A message appears under its name only when it is complete."""

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        """Write all messages, and return their number. Raises `OSError` if the folder
        cannot be written.
        """
        folder = Path(settings.EMAIL_FILE_PATH)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for message in email_messages:
            name = f"{timezone.now():%Y%m%d-%H%M%S}-{uuid4().hex[:12]}"
            unfinished = folder / f"{name}.part"
            # Letters are about people: only the user of this process may read them.
            with os.fdopen(
                os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                # Mail programs expect the line breaks of RFC 5322.
                file.write(message.message().as_bytes().replace(b"\n", b"\r\n"))
            unfinished.rename(folder / f"{name}.eml")
        return len(email_messages)
