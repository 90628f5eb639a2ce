"""Letters become files that a mail program opens."""

from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

from django.core.mail import EmailMessage, get_connection

BACKEND = "orchestrator.demo.claims.mail.EmailBackend"


def test_each_letter_is_a_complete_eml_file(tmp_path: Path, settings: Any) -> None:
    settings.EMAIL_FILE_PATH = tmp_path / "letters"
    connection = get_connection(BACKEND)
    for name in ("Inès", "Tor"):
        EmailMessage(
            f"To {name}",
            f"Dear {name},\n\nyes.",
            "us@example.com",
            [f"{name}@example.com"],
            connection=connection,
        ).send()
    letters = [
        message_from_bytes(path.read_bytes(), policy=policy.default)
        for path in settings.EMAIL_FILE_PATH.iterdir()
    ]
    assert {path.suffix for path in settings.EMAIL_FILE_PATH.iterdir()} == {".eml"}
    assert {letter["Subject"] for letter in letters} == {"To Inès", "To Tor"}
    assert {
        letter.get_content().strip().replace("\r\n", "\n") for letter in letters
    } == {
        "Dear Inès,\n\nyes.",
        "Dear Tor,\n\nyes.",
    }
