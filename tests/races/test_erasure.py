"""An erasure meets a run that writes memory: what another run remembers is never taken
for what is erased. And it meets an answer that is kept.
"""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from checkpoints import retention
from checkpoints.core.tombstone import is_tombstone
from checkpoints.models import MemoryTrace
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.jobs import kinds
from tests.races.meeting import Thread
from tests.support import cast, erasures, secret_claim
from tests.support.api_people import Client
from tests.support.memory_graphs import remember
from tests.support.secret_claim import marked

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        connection.vendor == "sqlite",
        reason="SQLite has one writer: nothing comes between what reads and what writes",
    ),
]
TABLE = MemoryTrace._meta.db_table


class LandsBehind:
    """Somebody does something behind the first statement that is of this kind: there
    and then, or, where he has to wait for a lock, as soon as he may.
    """

    def __init__(self, is_it: Callable[[str], bool], act: Callable[[], Any]) -> None:
        self._is_it = is_it
        self._act = act
        self.thread: Thread | None = None

    def __call__(
        self, execute: Any, sql: str, params: Any, many: Any, context: Any
    ) -> Any:
        result = execute(sql, params, many, context)
        if self.thread is None and self._is_it(sql):
            self.thread = Thread(self._act)
            self.thread.join(1)
        return result


def lists_keys(sql: str) -> bool:
    """Return whether this reads which traces the run wrote; the plan counts them
    before.
    """
    return sql.startswith(f'SELECT "{TABLE}"."id" ')


def locks(sql: str) -> bool:
    """Return whether this reads and locks them."""
    return sql.startswith("SELECT") and TABLE in sql and "FOR UPDATE" in sql


@pytest.mark.parametrize("moment", [lists_keys, locks])
def test_memory_that_another_run_writes_while_its_trace_is_erased_survives(
    people: cast.People, moment: Callable[[str], bool]
) -> None:
    run = remember("ada", "to be forgotten")
    steward = people.steward
    lands = LandsBehind(moment, lambda: remember("ada", "of another run"))
    with connection.execute_wrapper(lands):
        retention.erase(run.id, by=steward)
    assert lands.thread is not None
    other = lands.thread.outcome()
    trace = MemoryTrace.objects.get(key="ada")
    assert read_value(trace, "content") == "of another run"
    assert trace.run == other.id
    assert verify_run(run.id) == []
    assert verify_run(other.id) == []
    retention.erase(other.id, by=steward)
    assert is_tombstone(read_value(MemoryTrace.objects.get(key="ada"), "content"))


def finds(sql: str) -> bool:
    """Return whether this reads the run with a key."""
    return (
        sql.startswith("SELECT")
        and 'WHERE "checkpoints_run"."key" = ' in sql
        and '"label"' in sql
    )


def looks_again(sql: str) -> bool:
    """Return whether this reads and locks the run."""
    return (
        sql.startswith("SELECT") and '"checkpoints_run"' in sql and "FOR UPDATE" in sql
    )


@pytest.mark.parametrize("moment", [finds, looks_again])
def test_an_answer_that_meets_the_end_of_an_erasure_keeps_no_value(
    people: cast.People, moment: Callable[[str], bool]
) -> None:
    secret_claim.registered(encrypted=False)
    olive = Client(people.starter)
    body = {"graph": "secret_claim", "key": "K-1", "input": {"branch": marked("fact")}}
    run = runs.cancel(olive.post("runs/", body).json()["id"])
    job = erasures.worked_until(
        retention.begin_erasure(run.id, by=people.steward), "checkpoints"
    )
    ends = LandsBehind(moment, lambda: kinds.advance(job.id))
    with connection.execute_wrapper(ends):
        assert (
            olive.post("runs/", body, **{"Idempotency-Key": "late"}).status_code == 200
        )
    assert ends.thread is not None
    assert ends.thread.outcome().status == "done"
    assert erasures.marks_in(erasures.everything()) == set()
