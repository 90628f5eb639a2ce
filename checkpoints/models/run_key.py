"""The data key of an encrypted run: what encrypts its payloads, itself encrypted by the keyring."""

from typing import ClassVar

from django.db import models

from checkpoints.core.ids import uuid7


class RunKey(models.Model):
    """One run's key. It outlives the run, for its decisions do. Destroyed (`wrapped` empty) when the run is erased."""

    PAYLOADS: ClassVar[tuple[str, ...]] = ("wrapped",)
    IDENTITY: ClassVar[tuple[str, ...]] = ("id",)
    UNSEALED: ClassVar[tuple[str, ...]] = ()
    ADDED: ClassVar[tuple[str, ...]] = ()
    MOMENT: ClassVar[str] = "at"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False, help_text="That of the run.")
    wrapped = models.BinaryField(default=b"", help_text="32 bytes, encrypted under a key of the settings.")
    retired = models.BooleanField(default=False, help_text="It only opens: its run is being erased.")
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"key of run {self.id}"
