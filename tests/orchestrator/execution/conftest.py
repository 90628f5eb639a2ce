"""Who approves calls: see `tests.support.call_people`."""

from tests.support.call_people import ada, made  # noqa: F401
