"""Threads of another engine without that engine: rows that are chained, a line for a
branch, and nothing that is lost or written twice.
"""

from typing import Any

import pytest

from checkpoints import threads
from checkpoints.models import Checkpoint, RunEvent, RunLine
from checkpoints.threads import NewThreadState, ThreadBlob, ThreadOrigin, ThreadWrite
from checkpoints.timeline import state_at
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import KeyConflict

pytestmark = pytest.mark.django_db(transaction=True)
OF_US = ThreadOrigin("others")


def _save(
    id_: str, parent: str | None = None, namespace: str = "", **values: Any
) -> None:
    def value_of(name: str) -> ThreadBlob:
        return ThreadBlob(1, ("text", values[name].encode()), values[name])

    draft = NewThreadState(
        namespace,
        id_,
        parent,
        ("text", b"state"),
        ("text", b"about"),
        dict.fromkeys(values, 1),
        frozenset(values),
        value_of,
    )
    threads.save_point("t", draft, OF_US)


def _run() -> Any:
    run = threads.find_thread("t")
    assert run is not None
    return run


def _shown(seq: int) -> Any:
    row = Checkpoint.objects.get(run=_run(), seq=seq)
    return state_at(row.id)["scratch"]


def test_nested_work_is_kept_until_its_caller_saves() -> None:
    _save("1", a="x")
    _save("2", namespace="in:1", b="y")
    _save("3", "2", namespace="in:1", b="z")
    _save("4", "1", a="w")
    assert _shown(2) == {"a": "x", "in:1:b": "y"}
    assert _shown(3) == {"a": "x", "in:1:b": "z"}
    assert _shown(4) == {"a": "w"}
    assert [point.id for point in threads.all_points(_run())] == ["4", "3", "2", "1"]
    assert _run().line == 1
    assert verify_run(_run().id) == []


def test_a_checkpoint_that_leaves_an_older_one_begins_a_line_there() -> None:
    _save("1", a="x")
    _save("2", "1", a="y")
    _save("3", "1", a="z")
    line = RunLine.objects.get(run=_run(), number=2)
    assert line.departure_seq == 1
    _save("4", "3", a="zz")
    assert _run().line == 2
    assert verify_run(_run().id) == []


def test_the_first_write_of_a_task_stays_and_one_below_zero_is_replaced() -> None:
    _save("1")
    for text in ("a", "b", "b"):
        writes = [
            ThreadWrite("task", "", 0, "c", ("text", text.encode()), text),
            ThreadWrite("task", "", -1, "error", ("text", text.encode()), text),
        ]
        threads.save_writes("t", "", "1", writes, OF_US)
    point = threads.latest_point(_run(), "")
    assert point is not None
    assert {write.channel: write.shown for write in point.writes} == {
        "c": "a",
        "error": "b",
    }
    # The third time changed nothing.
    assert RunEvent.objects.filter(run=_run(), type="thread_written").count() == 2


def test_a_run_of_ours_is_never_taken_for_a_thread() -> None:
    runs.start("c_linear", {}, key="thread-t")
    with pytest.raises(KeyConflict):
        threads.find_thread("t")
