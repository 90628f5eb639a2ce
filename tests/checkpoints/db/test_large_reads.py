"""A setting for one large query goes with it, also in a transaction of the caller."""

import pytest
from django.db import connection, transaction

from checkpoints.db.large_reads import few_groups

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        "connection.vendor != 'postgresql'", reason="SQLite has no such setting"
    ),
]


def sorts() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SHOW enable_sort")
        return bool(cursor.fetchone()[0] == "on")


def test_a_large_query_hashes_and_no_other_does() -> None:
    assert sorts()
    with few_groups():
        assert not sorts()
    assert sorts()


def test_the_callers_transaction_goes_on_as_it_was() -> None:
    with transaction.atomic():
        with few_groups():
            pass
        assert sorts()
        with pytest.raises(ZeroDivisionError), few_groups():
            raise ZeroDivisionError
        assert sorts()
        assert not connection.needs_rollback
