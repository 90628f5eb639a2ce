"""The newest checkpoint of a thread is found by an index, whatever the language of the
database.
"""

from typing import Any

import pytest
from django.db import connection, transaction

from checkpoints import retention, threads
from checkpoints.models import Checkpoint, Run
from checkpoints.threads import NewThreadState, ThreadOrigin, reader

pytestmark = pytest.mark.django_db(transaction=True)


def _saved(*ids: str) -> Run:
    for id_ in ids:
        draft = NewThreadState(
            "", id_, None, ("raw", b""), ("raw", b""), {}, frozenset(), lambda _: None
        )
        threads.save_point("t-1", draft, ThreadOrigin("letters"))
    return Run.objects.get()


def _latest(run: Run) -> str | None:
    point = threads.latest_point(run, "")
    return point.id if point else None


def test_the_latest_is_the_highest_in_the_order_of_bytes() -> None:
    run = _saved("b-2", "B-3", "Z", "a-9", "ä", "_")
    assert _latest(run) == max("b-2", "B-3", "Z", "a-9", "ä", "_")


def test_the_latest_is_the_highest_that_is_still_there() -> None:
    run = _saved("1", "2", "3")
    # As a removal leaves it that was killed between the rows and the lines.
    Checkpoint.objects.filter(run=run, seq=2).delete()
    assert _latest(run) == "3"
    Checkpoint.objects.filter(run=run, seq__gt=0, seq__lt=3).delete()
    assert _latest(run) == "3"


def test_the_latest_is_none_where_all_were_removed() -> None:
    run = _saved("1", "2")
    retention.prune_threads([run], needs=lambda _: ())
    run.refresh_from_db()
    assert _latest(run) == "2"
    assert threads.latest_point(run, "elsewhere") is None


def test_the_latest_is_read_from_the_index_and_nothing_is_sorted() -> None:
    run = _saved("1", "2")
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                # Two rows are sorted faster than an index is looked up.
                cursor.execute("SET LOCAL enable_seqscan = off")
                cursor.execute("SET LOCAL enable_sort = off")
        plan: Any = reader.highest_ids(run, "")[:1].explain()
    assert "run_event_saved_latest" in plan
    assert "Sort" not in plan
    assert "B-TREE" not in plan
