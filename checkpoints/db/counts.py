"""Numbers of rows for people, who need no exact number where there are very many."""

from typing import Any

from django.db.models import QuerySet

MOST_COUNTED = 1_000
"""Rows are counted up to this number; of more people are shown "1,000+"."""


def count_up_to_most(rows: "QuerySet[Any, Any]") -> int:
    """Return the number of rows, at most one more than `MOST_COUNTED`."""
    counted = rows.order_by()[: MOST_COUNTED + 1]
    return counted.count()


def in_words(number: int) -> str:
    """Return a number that was counted so, with separators."""
    if number > MOST_COUNTED:
        return f"{MOST_COUNTED:,}+"
    return f"{number:,}"
