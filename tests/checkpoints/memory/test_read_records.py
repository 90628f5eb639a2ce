"""What a resumed task sees of memory: as it is now, or as it saw it before; and what
becomes of what it wished.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.db import IntegrityError

from checkpoints.core.status import Status
from checkpoints.memory.read_records import ReplayingShelf
from checkpoints.models import Checkpoint, MemoryRecord
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import Retry
from orchestrator.engine.errors import StaleLease, TamperedRow
from tests.crash.abort import watching
from tests.races.meeting import Thread
from tests.support.memory_graphs import (
    chain,
    forget,
    gone,
    landed,
    lose_the_lease,
    memory,
    records,
    remember,
    side_by_side,
)
from tests.support.run_actions import event_payloads, state
from tests.support.statements import Breaks, counted

pytestmark = pytest.mark.django_db(transaction=True)
KEPT = ["snapshot", "journaled"]


class Once:
    """True the first time it is asked."""

    def __init__(self) -> None:
        self._asked = False

    def __bool__(self) -> bool:
        asked = self._asked
        self._asked = True
        return not asked


def _reader(seen: list[Any], first: Once) -> Any:
    """A node that reads, and whose worker then dies while another run changes what it
    read.
    """

    def read(state: Any, ctx: Any) -> dict[str, Any]:
        trace = ctx.memory.get("sky", "facts")
        named = [trace.content for trace in ctx.memory.search("sky", "facts")]
        seen.append((trace and trace.content, named))
        if first:
            remember("sky", "red")
            lose_the_lease(ctx)
        return {"notes": [str(trace and trace.content)]}

    return read


def test_in_live_mode_a_resumed_task_reads_memory_as_it_is_now() -> None:
    remember("sky", "blue")
    seen: list[Any] = []
    run = gone(chain("live", _reader(seen, Once())))
    assert seen == [("blue", ["blue"]), ("red", ["red"])]
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["red"]


@pytest.mark.parametrize("mode", KEPT)
def test_in_snapshot_and_journaled_mode_a_resumed_task_sees_what_it_saw(
    mode: str,
) -> None:
    remember("sky", "blue", strength=0.5)
    seen: list[Any] = []
    run = gone(chain("kept", _reader(seen, Once()), memory=mode))
    assert seen == [("blue", ["blue"])] * 2
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["blue"]


def test_that_there_was_nothing_is_given_back_too() -> None:
    seen: list[Any] = []
    gone(chain("nothing", _reader(seen, Once()), memory="snapshot"))
    assert seen == [(None, [])] * 2


def test_a_node_may_have_another_mode_than_its_graph() -> None:
    remember("sky", "blue")
    seen: list[Any] = []
    gone(
        chain(
            "own-mode",
            _reader(seen, Once()),
            options=[{"memory": "live"}],
            memory="snapshot",
        )
    )
    assert seen[1] == ("red", ["red"])


def test_a_recorded_read_is_kept_before_the_node_has_its_answer() -> None:
    remember("sky", "blue")
    collected: list[Any] = []

    def read(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")
        collected.append([asked for _, _, asked, _ in records(runs.get(ctx.run_id))])

    gone(chain("kept-first", read, memory="snapshot"))
    assert collected == [[["get", "facts", "sky"]]]


def test_a_call_without_a_record_reads_live_and_is_flagged() -> None:
    remember("sky", "blue")
    remember("sea", "green")
    first = Once()
    seen = list[Any]()

    def read(state: Any, ctx: Any) -> None:
        seen.append(ctx.memory.get("sky", "facts").content)
        if first:
            remember("sky", "red")
            remember("sea", "black")
            lose_the_lease(ctx)
        else:
            seen.append(ctx.memory.get("sea", "facts").content)

    run = gone(chain("flagged", read, memory="snapshot"))
    assert seen == ["blue", "blue", "black"]
    assert [(asked[2], anew) for _, _, asked, anew in records(run)] == [
        ("sky", False),
        ("sea", True),
    ]
    assert event_payloads(run, "warning") == [{"code": "memory_read_anew", "reads": 1}]


@pytest.mark.parametrize("mode", ["live", *KEPT])
def test_unlanded_writes_are_queued_again_and_land_once(mode: str) -> None:
    first = Once()

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "blue", "facts")
        if first:
            lose_the_lease(ctx)

    run = gone(chain("queued-again", put, memory=mode))
    assert memory() == {"facts/sky": "blue"}
    assert landed(run) == [("put:1:0", 0, "sky", 1)]


def test_a_journal_that_was_taken_down_is_what_lands_whatever_the_task_wishes_later() -> (
    None
):
    tries = list[int]()
    first = Once()

    def put(state: Any, ctx: Any) -> None:
        tries.append(ctx.attempt)
        ctx.memory.put("sky", f"try {len(tries)}", "facts")
        ctx.memory.put(f"key {len(tries)}", "and another", "facts")

    def beside(state: Any, ctx: Any) -> None:
        if first:
            _until(
                lambda: any(
                    kind == "journal" for kind, *_ in records(runs.get(ctx.run_id))
                )
            )
            lose_the_lease(ctx)

    run = gone(side_by_side("journal", put, beside, memory="journaled"))
    assert run.status == Status.COMPLETED
    assert len(tries) == 2
    assert memory() == {"facts/sky": "try 1", "facts/key 1": "and another"}


def _until(done: Any) -> None:
    for _ in range(200):
        if done():
            return
        time.sleep(0.02)
    raise AssertionError("it never came")


def test_a_journal_that_cannot_land_lands_not_at_all_and_the_task_reads_anew() -> None:
    remember("sky", "blue")
    seen: list[str] = []

    def put(state: Any, ctx: Any) -> None:
        seen.append(ctx.memory.get("sky", "facts").content)
        if len(seen) == 1:
            remember("sky", "red")
        ctx.memory.put("free", f"made on {seen[-1]}", "facts")
        ctx.memory.put("sky", f"after {seen[-1]}", "facts")

    run = gone(chain("all-or-nothing", put, memory="journaled"))
    assert seen == ["blue", "red"]
    assert memory() == {"facts/free": "made on red", "facts/sky": "after red"}
    assert [version for *_, version in landed(run)] == [1, 3]
    assert [kind for kind, *_ in records(run)] == ["get", "journal"]


@pytest.mark.parametrize("mode", KEPT)
def test_a_read_that_led_to_a_conflict_is_not_given_back_again(mode: str) -> None:
    remember("count", 1)
    first = Once()
    seen = list[int]()

    def add(state: Any, ctx: Any) -> None:
        seen.append(ctx.memory.get("count", "facts").content)
        if first:
            remember("count", 5)
            lose_the_lease(ctx)
        ctx.memory.put("count", seen[-1] + 1, "facts")

    run = gone(chain("counts", add, memory=mode))
    assert run.status == Status.COMPLETED
    assert seen == [1, 1, 5]
    assert memory() == {"facts/count": 6}


def test_a_retry_in_the_same_superstep_sees_what_the_first_attempt_saw() -> None:
    remember("sky", "blue")
    seen: list[str] = []

    def read(state: Any, ctx: Any) -> None:
        seen.append(ctx.memory.get("sky", "facts").content)
        if len(seen) == 1:
            remember("sky", "red")
            raise RuntimeError("try again")

    retry = {"retry": Retry(attempts=2, backoff=0.01, on=RuntimeError)}
    assert (
        gone(chain("retries", read, options=[retry], memory="snapshot")).status
        == Status.COMPLETED
    )
    assert seen == ["blue", "blue"]


@pytest.mark.parametrize(("mode", "effect"), [("live", "read"), ("snapshot", "pure")])
def test_a_node_that_reads_memory_in_live_mode_counts_as_a_read(
    mode: str, effect: str
) -> None:
    def look(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "blue", "facts")

    run = gone(chain("effects-of-memory", look, put, memory=mode))
    rows = Checkpoint.objects.filter(run=run, superstep__gt=0).order_by("seq")
    assert [row.nodes[0]["effect"] for row in rows] == [effect, "pure"]


@pytest.mark.parametrize("mode", ["live", *KEPT])
def test_what_was_read_is_kept_with_its_task_in_every_mode(mode: str) -> None:
    remember("sky", "blue")

    def read(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")
        ctx.memory.search("blue", "facts", 3)

    run = gone(chain("kept-reads", read, memory=mode))
    kept = [(kind, how, asked) for kind, how, asked, _ in records(run)]
    assert kept == [
        ("get", mode, ["get", "facts", "sky"]),
        ("search", mode, ["search", "blue", "facts", 3]),
    ]


def test_an_async_node_reads_and_remembers_like_any_other() -> None:
    remember("sky", "blue")

    async def read(state: Any, ctx: Any) -> dict[str, Any]:
        ctx.memory.put("sea", "green", "facts")
        contents = [trace.content for trace in ctx.memory.search("blue", "facts")]
        return {"notes": [ctx.memory.get("sky", "facts").content, *contents]}

    for mode in ("live", *KEPT):
        run = gone(chain(f"async-{mode}", read, memory=mode))
        assert run.status == Status.COMPLETED
        assert state(run)["notes"] == ["blue", "blue"]
    assert memory()["facts/sea"] == "green"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("words", ["SELECT", "INSERT INTO"])
def test_a_connection_that_breaks_while_a_node_reads_is_not_the_nodes_failure(
    words: str, after: bool
) -> None:
    remember("sky", "blue")
    cut = Breaks(words, after=after)

    def read(state: Any, ctx: Any) -> dict[str, Any]:
        with watching(cut):
            contents = [ctx.memory.get("sky", "facts").content for _ in range(2)]
        return {"notes": contents}

    run = gone(chain("cut", read, memory="snapshot"))
    assert run.status == Status.COMPLETED
    assert state(run)["notes"] == ["blue", "blue"]
    assert cut.broke is True
    assert [asked for _, _, asked, _ in records(run)] == [["get", "facts", "sky"]] * 2


def test_a_graph_that_does_not_touch_memory_asks_nothing_of_it() -> None:
    def quiet(state: Any, ctx: Any) -> dict[str, Any]:
        return {"notes": ["quiet"]}

    flow = chain("quiet", quiet, memory="journaled")
    run = runs.start(flow.name, {})
    with counted() as statements:
        runs.advance(run.id)
    assert [statement for statement in statements if "memory" in statement] == []
    assert forget("never").status == Status.COMPLETED


@pytest.mark.parametrize("hides", [False, True])
def test_a_record_that_was_changed_in_the_database_stops_the_run_as_tampered(
    hides: bool,
) -> None:
    remember("sky", "blue")
    remember("sea", "green")
    first = Once()

    def read(state: Any, ctx: Any) -> None:
        try:
            ctx.memory.get("sky", "facts")
        except TamperedRow:
            if not hides:
                raise
        if first:
            ctx.memory.get("sea", "facts")
            rows = MemoryRecord.objects.filter(run=ctx.run_id).order_by("n")
            rows.filter(n=0).update(found=rows[1].found)
            lose_the_lease(ctx)

    run = gone(chain(f"changed-{hides}", read, memory="snapshot"))
    assert run.status == Status.TAMPERED
    assert run.error_code == "tampered_row"


@pytest.fixture
def meeting_inserts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads have their number before either of them inserts its record, unless
    something keeps them apart.
    """
    insert = ReplayingShelf._insert
    barrier = threading.Barrier(2)

    def insert_together(shelf: ReplayingShelf, row: MemoryRecord) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(timeout=0.5)
        insert(shelf, row)

    monkeypatch.setattr(ReplayingShelf, "_insert", insert_together)


@pytest.mark.usefixtures("meeting_inserts")
@pytest.mark.parametrize("keys", [("sky", "sea"), ("sky", "sky")])
@pytest.mark.parametrize("mode", KEPT)
def test_two_threads_of_one_node_that_read_at_once_see_the_same_when_resumed(
    mode: str, keys: tuple[str, str]
) -> None:
    remember("sky", "blue")
    remember("sea", "green")
    seen: list[Any] = []
    first = Once()

    def read(state: Any, ctx: Any) -> None:
        def reading(key: str) -> Callable[[], Any]:
            return lambda: ctx.memory.get(key, "facts").content

        threads = [Thread(reading(key)) for key in keys]
        seen.append([thread.outcome() for thread in threads])
        if first:
            remember("sky", "red")
            remember("sea", "grey")
            lose_the_lease(ctx)

    run = gone(chain("reader_in_threads", read, memory=mode))
    assert seen[0] == seen[1]
    kept = [(asked[2], unrecorded) for _, _, asked, unrecorded in records(run)]
    assert sorted(kept) == sorted((key, False) for key in keys)
    assert verify_run(run.id) == []


@pytest.mark.parametrize("mode", KEPT)
def test_a_read_whose_number_another_worker_has_taken_is_recorded_under_the_next(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember("sky", "blue")
    remember("sea", "green")
    insert = ReplayingShelf._insert
    other_record: list[MemoryRecord] = []

    def insert_second(shelf: ReplayingShelf, row: MemoryRecord) -> None:
        if not other_record:
            other_record.append(row)
            other = replace(
                shelf, _records=None, _returned=set(), _lock=threading.Lock()
            )
            other.get("facts", "sea")
        insert(shelf, row)

    monkeypatch.setattr(ReplayingShelf, "_insert", insert_second)

    def read(state: Any, ctx: Any) -> None:
        ctx.memory.get("sky", "facts")

    run = gone(chain("second_reader", read, memory=mode))
    rows = MemoryRecord.objects.filter(run=run).order_by("n")
    assert [read_value(row, "asked")[2] for row in rows] == ["sea", "sky"]


def test_a_read_that_finds_no_free_number_is_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember("sky", "blue")
    refused: list[StaleLease] = []

    def insert(shelf: ReplayingShelf, row: MemoryRecord) -> None:
        raise IntegrityError

    def read(state: Any, ctx: Any) -> None:
        with pytest.raises(StaleLease) as error:
            ctx.memory.get("sky", "facts")
        refused.append(error.value)

    monkeypatch.setattr(ReplayingShelf, "_insert", insert)
    gone(chain("unlucky_reader", read, memory="snapshot"))
    assert len(refused) == 1
