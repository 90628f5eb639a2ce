"""Passkeys, and the challenges that they sign."""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models.fields import Sealed


class Passkey(Sealed):
    """A key of a person's authenticator, with which they sign what gates ask for. The
    row is sealed, so that nobody adds a key in the database, or brings back one that
    was revoked.
    """

    IDENTITY = ("credential",)
    MOMENT = "created_at"

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        related_name="countersign_passkeys",
    )
    name = models.CharField(max_length=100)
    credential = models.CharField(
        max_length=1400,
        unique=True,
        help_text="The id that the authenticator gave it, in base64url.",
    )
    cose_key = models.TextField(help_text="Its public key as WebAuthn has it: base64.")
    public_key = models.TextField(
        help_text="The same as SubjectPublicKeyInfo: DER in base64."
    )
    fingerprint = models.CharField(max_length=64, help_text="SHA-256 of `public_key`.")
    rp_id = models.CharField(max_length=253, help_text="The site that it is for.")
    sign_count = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.name} of {self.user}"


class PasskeyChallenge(models.Model):
    """A document that a person is about to sign with a passkey: used once, by them, in
    the same session, within minutes.
    """

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+"
    )
    session = models.CharField(max_length=64, help_text="SHA-256 of the session's key.")
    nonce = models.CharField(max_length=64)
    challenge = models.CharField(
        max_length=64, help_text="SHA-256 of the document that is to be signed."
    )
    created_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"challenge of {self.user_id}"
