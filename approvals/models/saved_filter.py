"""Filters of the inbox that people have saved."""

from django.conf import settings
from django.db import models


class SavedFilter(models.Model):
    """A filter of the inbox that a person has saved under a name. It grants no right:
    what it leads to is judged when it is opened.
    """

    id = models.BigAutoField(primary_key=True)
    # The constraint below begins with it.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.CASCADE,
        related_name="+",
        db_index=False,
    )
    name = models.CharField(max_length=60)
    query = models.CharField(
        max_length=3000,
        help_text="Of the address of the inbox: its folder, words and whose claim.",
    )

    class Meta:
        ordering = ["name"]
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="saved_filter_name")
        ]

    def __str__(self) -> str:
        return f"filter of {self.user_id}"
