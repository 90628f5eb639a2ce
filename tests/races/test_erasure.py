"""An erasure meets a run that writes memory: what another run remembers is never taken for what is erased."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from checkpoints import retention
from checkpoints.core.tombstone import is_tombstone
from checkpoints.models import MemoryTrace
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from tests.races.meeting import Thread
from tests.support import cast
from tests.support.memory_graphs import remember

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor == "sqlite", reason="SQLite has one writer: nobody lands while an erasure reads and writes"
    ),
]
TABLE = MemoryTrace._meta.db_table


class LandsBehind:
    """Another run remembers something behind the first statement that is of this kind: there and then, or, where it
    has to wait for a lock, as soon as it may.
    """

    def __init__(self, is_it: Callable[[str], bool]) -> None:
        self._is_it = is_it
        self.thread: Thread | None = None

    def __call__(self, execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if self.thread is None and self._is_it(sql):
            self.thread = Thread(lambda: remember("ada", "of another run"))
            self.thread.join(1)
        return result


def lists_keys(sql: str) -> bool:
    """It says which traces the run wrote; the plan counts them before."""
    return sql.startswith(f'SELECT "{TABLE}"."id" ')


def locks(sql: str) -> bool:
    """It reads and locks them."""
    return sql.startswith("SELECT") and TABLE in sql and "FOR UPDATE" in sql


@pytest.mark.parametrize("moment", [lists_keys, locks])
def test_memory_that_another_run_writes_while_its_trace_is_erased_survives(
    people: cast.People, moment: Callable[[str], bool]
) -> None:
    run = remember("ada", "to be forgotten")
    steward = people.steward
    lands = LandsBehind(moment)
    with connection.execute_wrapper(lands):
        retention.erase(run.id, by=steward)
    assert lands.thread is not None
    other = lands.thread.outcome()
    trace = MemoryTrace.objects.get(key="ada")
    assert (read_value(trace, "content"), trace.run) == ("of another run", other.id)
    assert (verify_run(run.id), verify_run(other.id)) == ([], [])
    retention.erase(other.id, by=steward)
    assert is_tombstone(read_value(MemoryTrace.objects.get(key="ada"), "content"))
