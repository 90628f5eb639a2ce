"""Memory of encrypted graphs: nothing of it stands readable, nothing of it is searched,
and none of it leaves.
"""

from typing import Any

import pytest
from django.db import connection

from checkpoints.core.status import Status
from checkpoints.ledger.run_error import stored_error
from checkpoints.memory.shelf import DatabaseShelf
from checkpoints.models import MemoryRecord, MemoryTrace
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import Protection
from tests.support.memory_graphs import chain, gone, memory, remember
from tests.support.run_actions import state

pytestmark = pytest.mark.django_db(transaction=True)
MARK = "the-mark-that-nobody-may-read"


@pytest.fixture(autouse=True)
def keys(configure: Any) -> None:
    configure(ENCRYPTION_KEYS={"one": b"k" * 32})


def _put(key: str, content: Any) -> Any:
    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put(key, content, "facts")

    return put


def _get(key: str) -> Any:
    def get(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": [ctx.memory.get(key, "facts").content]}

    return get


@pytest.mark.parametrize("mode", ["live", "snapshot", "journaled"])
def test_what_is_remembered_is_read_again_and_stands_nowhere_in_the_database(
    mode: str,
) -> None:
    run = gone(
        chain(
            f"secret-{mode}",
            _put("sky", MARK),
            _get("sky"),
            encrypted=True,
            memory=mode,
        )
    )
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == [MARK]
    row = MemoryTrace.objects.get()
    assert row.encrypted is True
    assert row.text == ""
    assert read_value(row, "content") == MARK
    assert MARK not in _dump(MemoryTrace) + _dump(MemoryRecord)


def _dump(model: Any) -> str:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {model._meta.db_table}")
        cells = [cell for row in cursor.fetchall() for cell in row]
    return " ".join(
        bytes(c).decode("latin-1") if isinstance(c, bytes | memoryview) else str(c)
        for c in cells
    )


def test_search_is_refused_by_name() -> None:
    def search(state: Any, ctx: Any) -> None:
        ctx.memory.search("sky", "facts")

    run = gone(chain("searches", search, encrypted=True))
    assert run.status == Status.FAILED
    assert "search is refused in an encrypted graph" in str(stored_error(run))


def test_a_trace_of_an_encrypted_graph_is_refused_to_others_and_the_other_way_round() -> (
    None
):
    gone(chain("hides", _put("sky", MARK), encrypted=True))
    assert gone(chain("reads", _get("sky"))).status == Status.FAILED
    assert gone(chain("writes", _put("sky", "plain"))).status == Status.FAILED
    assert DatabaseShelf(Protection()).search(MARK, "facts", 10).traces == ()
    remember("sea", "green")
    assert (
        gone(chain("reads-plain", _get("sea"), encrypted=True)).status == Status.FAILED
    )
    assert memory() == {"facts/sky": MARK, "facts/sea": "green"}


@pytest.mark.parametrize("encrypted", [True, False])
def test_a_trace_that_was_moved_or_changed_in_the_database_is_refused(
    encrypted: bool,
) -> None:
    gone(chain("two", _put("sky", MARK), encrypted=encrypted))
    gone(chain("two", _put("sea", "other"), encrypted=encrypted))
    other = MemoryTrace.objects.get(key="sea")
    MemoryTrace.objects.filter(key="sky").update(content=other.content)
    run = gone(chain("reads-moved", _get("sky"), encrypted=encrypted))
    assert run.status != Status.COMPLETED
