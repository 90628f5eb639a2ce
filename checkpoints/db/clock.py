"""The database's clock, by which leases and due times are judged, so that skew between
hosts cannot matter.
"""

from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any

from django.db import connection
from django.db.models import DateTimeField, Value
from django.db.models.functions import Now
from django.utils import timezone

STANDS_FOR_NOW = datetime(9999, 12, 31, 23, 59, 58, 987654, tzinfo=UTC)
"""The placeholder that `kept_now` uses on SQLite; no real moment."""


def db_now() -> Any:
    """Return an expression for the moment of the statement. SQLite lives on one host,
    so its clock is the host's.
    """
    if connection.vendor == "sqlite":
        return Value(timezone.now(), output_field=DateTimeField())
    return Now()


@cache
def kept_now() -> Any:
    """Return `db_now` for a statement whose text is kept: `checkpoints.db.statements`
    puts in the moment when it is executed.
    """
    # SQLite gets the moment as a parameter, which a kept text must not fix.
    if connection.vendor == "sqlite":
        return Value(STANDS_FOR_NOW, output_field=DateTimeField())
    return Now()


def moment_of_kept(read: Any) -> datetime:
    """Return the moment that a driver has read of `kept_now`."""
    # SQLite's driver reads back a text, of a moment ago by the clock of this host.
    if connection.vendor == "sqlite":
        return timezone.now()
    moment: datetime = read
    return moment


def read_now() -> datetime:
    """Return the moment by the database's clock. One query on PostgreSQL."""
    if connection.vendor == "sqlite":
        return timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def db_in(seconds: float) -> Any:
    """Return an expression for `seconds` from now."""
    if connection.vendor == "sqlite":
        moment = timezone.now() + timedelta(seconds=seconds)
        return Value(moment, output_field=DateTimeField())
    return _later(seconds)


@lru_cache(maxsize=100)
def _later(seconds: float) -> Any:
    """Return the same expression for the same seconds: making and hashing one costs
    more than looking it up.
    """
    return Now() + timedelta(seconds=seconds)
