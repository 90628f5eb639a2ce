"""Keys of runs that retention removed: a key that somebody chose means one journey for ever."""

from django.db import models


class RemovedKey(models.Model):
    """One row a chosen key, written in the transaction that removes its run. It stays, so that a caller who asks for
    the run once more does not begin the journey, with its effects, a second time.
    """

    key = models.CharField(primary_key=True, max_length=200)
    run = models.UUIDField()
    at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.key
