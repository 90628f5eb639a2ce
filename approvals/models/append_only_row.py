"""The base of rows that are only ever added."""

from typing import Any, NoReturn

from django.db import models

from checkpoints.models.fields import Sealed


def _refuse_change(model: type[models.Model]) -> NoReturn:
    """Raise `TypeError`: rows of this model are only ever added."""
    raise TypeError(f"{model._meta.verbose_name_plural} are append-only")


class AppendOnly(models.QuerySet[Any]):
    """Rows that are only ever added."""

    def update(self, **kwargs: object) -> NoReturn:
        _refuse_change(self.model)

    def delete(self) -> NoReturn:
        _refuse_change(self.model)


class AppendOnlyManager(models.Manager[Any]):
    """The manager of such rows, written out: mypy loses one that is derived from the
    queryset when it reads its cache.
    """

    def get_queryset(self) -> AppendOnly:
        return AppendOnly(self.model, using=self._db)


class AppendOnlyRow(Sealed):
    """A sealed row that is only ever added: the ORM refuses to change or remove it. What
    the database itself refuses is in `approvals.append_only`.
    """

    objects = AppendOnlyManager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert only. Raises `TypeError` for a row that was inserted before."""
        if not self._state.adding:
            _refuse_change(type(self))
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise `TypeError`."""
        _refuse_change(type(self))
