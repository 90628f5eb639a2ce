"""Rows as an older release wrote them: with seals of its first format."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from django.utils import timezone

from checkpoints.models import OlderSeals
from checkpoints.sealing import older_seals, sealed_rows


@contextmanager
def older_release() -> Iterator[None]:
    """Open a block in which rows are written with older seals; afterwards the database
    is as today's migrations leave it.
    """

    def covered(row, protection, payloads):  # type: ignore[no-untyped-def]
        return older_seals._covered(row, protection, payloads, 1)

    with patch.object(sealed_rows, "_sealed", covered):
        yield
    OlderSeals.objects.create(since=timezone.now())
