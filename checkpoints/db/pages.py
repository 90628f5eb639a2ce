"""Reading long tables page by page, so that memory stays flat, for verification and
rotation.
"""

from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

PAGE = 100


def pages(rows: "QuerySet[Any]", by: str, *, size: int = PAGE) -> Iterator[list[Any]]:
    """Yield the rows in order of the field `by`, whose values are distinct, one query a
    page.
    """
    last: Any = None
    while True:
        # By value and not by offset: rows that come or go meanwhile shift no page.
        after = rows if last is None else rows.filter(**{f"{by}__gt": last})
        page = list(after.order_by(by)[:size])
        if page:
            yield page
        if len(page) < size:
            return
        last = getattr(page[-1], by)
