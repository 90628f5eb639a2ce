"""A bundle that was imported: where its run comes from. One row for each imported run;
it never changes.
"""

from django.conf import settings
from django.db import models

from checkpoints.models.fields import Sealed, hash_field
from checkpoints.models.run import Run


class BundleImport(Sealed):
    """The bundle of one imported run: who signed it, when it was written, and who took
    it in.
    """

    IDENTITY = ("run_id",)

    id = models.BigAutoField(primary_key=True)
    run = models.OneToOneField(
        Run, on_delete=models.PROTECT, related_name="bundle_import"
    )
    origin_key = models.CharField(
        max_length=200, help_text="The key that the run has where it comes from."
    )
    signer = models.CharField(
        max_length=64,
        help_text="The public key that signed the bundle, in hexadecimal.",
    )
    signer_name = models.CharField(
        max_length=40,
        blank=True,
        default="",
        help_text="The name of that key in the settings; empty for one's own.",
    )
    last = hash_field()
    lines = models.IntegerField()
    exported_at = models.DateTimeField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]

    def __str__(self) -> str:
        return f"bundle of {self.run_id} from {self.signer_name or 'this installation'}"
