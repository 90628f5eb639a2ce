"""The database's clock, by which leases and due times are judged, so that skew between hosts cannot matter."""

from datetime import timedelta
from typing import Any

from django.db import connection
from django.db.models import DateTimeField, Value
from django.db.models.functions import Now
from django.utils import timezone


def db_now() -> Any:
    """An expression for the moment of the statement. SQLite lives on one host, so there its clock is the host's."""
    if connection.vendor == "sqlite":
        return Value(timezone.now(), output_field=DateTimeField())
    return Now()


def db_in(seconds: float) -> Any:
    """An expression for `seconds` from now."""
    if connection.vendor == "sqlite":
        return Value(timezone.now() + timedelta(seconds=seconds), output_field=DateTimeField())
    return Now() + timedelta(seconds=seconds)
