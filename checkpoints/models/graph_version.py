"""A version of a graph that some process has registered."""

from django.db import models

from checkpoints.models.fields import HASH, Sealed, hash_field


class GraphVersion(Sealed):
    """(name, version, fingerprint) and when it was first seen. `structure` is the text
    whose hash the fingerprint is: what the version declares, for comparisons with
    others.
    """

    IDENTITY = ("name", "version", "fingerprint")
    # Which version is current changes, and the fingerprint proves the structure.
    UNSEALED = ("current", "structure")
    MOMENT = "first_seen_at"

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=200)
    version = models.CharField(max_length=50)
    fingerprint = hash_field()
    structure = models.TextField(blank=True, default="")
    current = models.BooleanField(default=True)
    first_seen_at = models.DateTimeField()
    before = models.CharField(
        max_length=HASH,
        blank=True,
        default="",
        editable=False,
        help_text=(
            "Fingerprint of the newest version of its graph that had been seen then; "
            "empty for the first."
        ),
    )

    class Meta:
        ordering = ["name", "-first_seen_at"]
        constraints = [
            models.UniqueConstraint(
                fields=["name", "version", "fingerprint"],
                name="graph_version_fingerprint",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"
