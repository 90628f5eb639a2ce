"""The mark of a database whose rows still have the seals of an older release."""

from django.db import models


class OlderSeals(models.Model):
    """Its one row exists while rows wait to be resealed: the migrations put it into a
    database that an older release wrote, and `manage.py seal_anew` removes it.
    """

    id = models.SmallIntegerField(primary_key=True, default=1)
    since = models.DateTimeField()

    class Meta:
        verbose_name_plural = "older seals"

    def __str__(self) -> str:
        return f"older seals since {self.since:%Y-%m-%d}"
