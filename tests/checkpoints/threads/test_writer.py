"""Threads of another engine without that engine: rows that are chained, a line for a
branch, and nothing that is lost or written twice.
"""

from typing import Any

import pytest

from checkpoints import threads
from checkpoints.models import Checkpoint, Run, RunEvent, RunLine
from checkpoints.threads import NewThreadState, ThreadBlob, ThreadOrigin, ThreadWrite
from checkpoints.timeline import state_at
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine.errors import InvalidValue, KeyConflict, TamperedRow
from tests.support import forging
from tests.support.read_costs import ReadCost, counting
from tests.support.read_growth import settle_plans
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
OF_US = ThreadOrigin("others")
WRITE = ThreadWrite("task", "", 0, "c", ("text", b"a"), "a")


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


def test_a_run_of_ours_is_never_taken_for_a_thread_and_blocks_none() -> None:
    runs.start("c_linear", {}, key="thread-t")
    assert threads.find_thread("t") is None
    _save("1")
    assert _run().key == "thread-t~2"
    with counted() as sent:
        _run()
    assert len(sent) == 1


def test_a_thread_stays_with_the_graph_and_the_protection_that_it_began_with() -> None:
    _save("1")
    for other in (ThreadOrigin("another"), ThreadOrigin("others", encrypted=True)):
        with pytest.raises(KeyConflict):
            threads.save_writes("t", "", "1", [WRITE], other)


def test_a_graph_of_ours_has_no_threads() -> None:
    with pytest.raises(InvalidValue, match="registered"):
        threads.save_writes("t", "", "1", [WRITE], ThreadOrigin("c_linear"))
    assert not Run.objects.exists()


@pytest.mark.parametrize("type_", ["thread_saved", "thread_written"])
def test_nothing_is_added_behind_a_gap_in_the_log(type_: str) -> None:
    _save("1")
    threads.save_writes("t", "", "1", [WRITE], OF_US)
    threads.save_writes("t", "", "2", [WRITE], OF_US)
    forging.remove(RunEvent.objects.filter(type=type_).earliest("seq"))
    with pytest.raises(TamperedRow, match="missing"):
        threads.latest_point(_run(), "")
    with pytest.raises(TamperedRow, match="missing"):
        _save("2", "1")


def test_a_save_reads_the_same_in_a_long_thread_as_in_a_short_one() -> None:
    costs = []
    for first, last in ((1, 20), (21, 140)):
        for number in range(first, last + 1):
            _save(f"{number:03}", f"{number - 1:03}", a=str(number))
            threads.save_writes("t", "", f"{number:03}", [WRITE], OF_US)
        costs.append(_cost_of_next(last))
    short, long = costs
    assert long.statements == short.statements
    for name, read in short.reads.items():
        # Trees of indices grow by a level.
        assert long.reads[name] <= 1.5 * read + 60


def _cost_of_next(last: int) -> ReadCost:
    id_ = f"{last:03}x"
    settle_plans()
    with counting() as cost:
        _save(id_, f"{last:03}", a="x")
        threads.save_writes("t", "", id_, [WRITE], OF_US)
        threads.named_point(_run(), "", id_)
    return cost


def test_the_writes_of_a_page_of_checkpoints_are_one_query() -> None:
    counts = []
    for number in range(1, 9):
        _save(str(number), str(number - 1))
        threads.save_writes("t", "", str(number), [WRITE], OF_US)
        with counted() as sent:
            points = list(threads.all_points(_run()))
        assert all(len(point.writes) == 1 for point in points)
        counts.append(len(sent))
    assert counts[-1] == counts[1]
