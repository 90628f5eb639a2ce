"""Records of what was erased from a run, and what replaced it. Written only by
`checkpoints.erasure`; kept forever.
"""

from django.conf import settings
from django.db import models

from checkpoints.core.ids import uuid7
from checkpoints.models.fields import Sealed


class ErasureRecord(Sealed):
    """One erasure of one run: by whom, when, why, of what. It has ended where
    `ended_at` says so.
    """

    PAYLOADS = ("words",)
    IDENTITY = ("run", "id")

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    # No foreign key: the record is kept forever, and its run may be removed.
    run = models.UUIDField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        db_index=False,
    )
    by_name = models.CharField(
        max_length=150, blank=True, default="", help_text="Empty for the system."
    )
    at = models.DateTimeField()
    reason = models.TextField(
        blank=True,
        default="",
        help_text="It stays: nothing that is to be erased stands in it.",
    )
    paths = models.JSONField(
        default=list, help_text="Of the state, as they were given; none for all values."
    )
    inherited = models.JSONField(
        default=list,
        help_text=(
            "[{run, key, how, erased}]: other runs with values of it; those that it "
            "came of too."
        ),
    )
    kept_files = models.JSONField(
        default=list,
        help_text=(
            "What stayed: ids of uploads that other runs name, and names of archived "
            "bundles."
        ),
    )
    words = models.BinaryField(
        default=b"",
        help_text=(
            "Packed canonical JSON: texts to be found, while it goes on; empty where "
            "it has ended."
        ),
    )
    rows = models.IntegerField(
        default=0,
        help_text="How many rows of `ErasedRow` tell of it; known when it has ended.",
    )
    rows_hash = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="Over the seals of these, in order.",
    )
    origin_rows_hash = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text=(
            "What `rows_hash` was when the log told of it: of a run that was "
            "imported, or whose rows were sealed anew since."
        ),
    )
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [models.Index(fields=["run", "at"], name="erasure_record_by_run")]

    def __str__(self) -> str:
        return f"erasure {self.id} of run {self.run}"


class ErasedRow(Sealed):
    """One row from which something was erased: its seal before and after, and the hash
    of what stands there now.
    """

    IDENTITY = ("record_id", "table", "row")

    id = models.BigAutoField(primary_key=True)
    # No separate index: the constraint below begins with the record.
    record = models.ForeignKey(
        ErasureRecord,
        on_delete=models.PROTECT,
        related_name="erased_rows",
        db_index=False,
    )
    run = models.UUIDField()
    table = models.CharField(max_length=60)
    row = models.CharField(max_length=40, help_text="Its primary key, as text.")
    old_seal = models.BinaryField(default=b"", editable=False)
    old_key = models.CharField(max_length=40, blank=True, default="")
    new_seal = models.BinaryField(default=b"", editable=False)
    new_key = models.CharField(max_length=40, blank=True, default="")
    contents = models.JSONField(
        default=dict, help_text="{payload column: hash of what stands in it now}"
    )
    at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                fields=["record", "table", "row"], name="erased_row_once"
            )
        ]
        indexes = [
            models.Index(fields=["table", "row"], name="erased_row_by_row"),
            models.Index(fields=["run"], name="erased_row_by_run"),
        ]

    def __str__(self) -> str:
        return f"{self.table} {self.row}"
