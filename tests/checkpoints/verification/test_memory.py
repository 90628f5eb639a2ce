"""What a run remembered is part of what is verified."""

from typing import Any

import pytest
from pydantic import BaseModel

from checkpoints.models import MemoryLanding, MemoryRecord, MemoryTrace, Run
from checkpoints.verification import verify_run
from checkpoints.verification.memory import memory_of_nobody, versions_landed_twice
from orchestrator import runs
from orchestrator.engine import END, START, Graph, registry
from tests.support import full_installation as full
from tests.support import memory_graphs
from tests.support.forging import tamper

pytestmark = pytest.mark.django_db(transaction=True)


class Given(BaseModel):
    what: str = ""


class State(BaseModel):
    seen: str = ""


@pytest.fixture
def run() -> Run:
    flow = Graph("remembers", input=Given, state=State, memory="snapshot")

    @flow.node("write")
    def write(state: State, ctx: Any) -> None:
        ctx.memory.put("key", {"a": 1}, namespace="n")
        ctx.memory.put("other", {"a": 2}, namespace="n")

    @flow.node("read", effect="read")
    def read(state: State, ctx: Any) -> dict[str, Any]:
        return {"seen": str(ctx.memory.get("key", namespace="n").content)}

    flow.edge(START, "write")
    flow.edge("write", "read")
    flow.edge("read", END)
    registry.replace(flow)
    done = runs.advance(runs.start("remembers", {}).id)
    assert done.status == "completed"
    assert MemoryRecord.objects.filter(run=done).exists()
    assert verify_run(done.id) == []
    return done


@pytest.mark.parametrize(
    "model", [MemoryTrace, MemoryRecord], ids=lambda model: model.__name__
)
def test_every_changed_column_of_memory_is_named(model: Any, run: Run) -> None:
    other = runs.start("remembers", {})
    row = model.objects.filter(run=run.id).order_by("id").first()
    unseen = set()
    for field in full.columns(model):
        with full.changed(row, field):
            if not any(
                fault.table == model._meta.db_table
                for fault in verify_run(run.id) + verify_run(other.id)
            ):
                unseen.add(field.name)
    assert unseen == {"id"}


def test_a_deleted_landing_is_named(run: Run) -> None:
    row = MemoryLanding.objects.get(run=run, key="other")
    row.delete()
    reason = f"checkpoints_memorylanding {run.id} write:1:0 1 of n/other is gone"
    assert [fault.reason for fault in verify_run(run.id)] == [reason]


def test_a_landing_put_in_by_hand_is_named(run: Run) -> None:
    row = MemoryLanding.objects.get(run=run, key="other")
    row.pk = None
    row.n = 7
    row.key = "invented"
    row.save(force_insert=True)
    reason = f"checkpoints_run {run.id} has landings of memory that its log does not speak of"
    assert [fault.reason for fault in verify_run(run.id)] == [
        reason,
        "checkpoints_memorytrace n invented version 1 is gone",
    ]


@pytest.mark.parametrize(
    "change", [{"seq": 0}, {"seq": 2}, {"seq": 99}, {"superstep": 0}, {"superstep": 2}]
)
def test_a_landing_that_was_moved_to_another_checkpoint_is_named(
    run: Run, change: dict[str, Any]
) -> None:
    MemoryLanding.objects.filter(run=run, key="other").update(**change)
    assert len(verify_run(run.id)) == 1


def test_a_trace_that_was_deleted_past_everybody_is_named(run: Run) -> None:
    MemoryTrace.objects.filter(key="other").delete()
    assert [fault.reason for fault in verify_run(run.id)] == [
        "checkpoints_memorytrace n other version 1 is gone"
    ]


def test_a_trace_that_is_found_by_other_words_is_named(run: Run) -> None:
    MemoryTrace.objects.filter(key="other").update(text="something else")
    (fault,) = verify_run(run.id)
    assert fault.table == "checkpoints_memorytrace"
    assert "found by other words" in fault.reason


@pytest.mark.parametrize(
    "moved",
    [{"namespace": "m"}, {"key": "else"}, {"run": None, "version": 9}, {"run": None}],
)
def test_a_trace_that_was_moved_to_another_address_or_to_nobody_is_named(
    run: Run, moved: dict[str, Any]
) -> None:
    tamper(MemoryTrace.objects.get(key="other"), **moved)
    assert {fault.table for fault in verify_run(run.id)} == {"checkpoints_memorytrace"}


def test_a_trace_that_another_run_wrote_since_is_no_fault_of_the_first(
    run: Run,
) -> None:
    later = memory_graphs.remember("other", {"a": 3}, "n")
    assert verify_run(run.id) == []
    assert verify_run(later.id) == []
    tamper(MemoryTrace.objects.get(key="other"), strength=0.5)
    assert verify_run(run.id) == []
    assert len(verify_run(later.id)) == 1


def test_a_trace_of_nobody_that_was_changed_is_named_with_the_installation(
    run: Run,
) -> None:
    assert list(memory_of_nobody()) == []
    tamper(MemoryTrace.objects.get(key="other"), run=None, key="else")
    (fault,) = memory_of_nobody()
    assert fault.what == "checkpoints_memorytrace n else 1"


def test_a_trace_that_was_deleted_is_named_after_others_landed_past_its_version(
    run: Run,
) -> None:
    memory_graphs.remember("other", 2, "n")
    memory_graphs.forget("nothing", "n")
    memory_graphs.forget("nothing", "n")
    assert list(versions_landed_twice()) == []
    MemoryTrace.objects.filter(key="other").delete()
    for content in (3, 4, 5):
        memory_graphs.remember("other", content, "n")
    assert verify_run(run.id) == []
    assert {fault.reason for fault in versions_landed_twice()} == {
        "checkpoints_memorytrace n other was deleted once: more than one change made"
        f" its version {version}"
        for version in (1, 2)
    }


def _reads_twice(mode: str) -> Run:
    def read(state: Any, ctx: Any) -> None:
        ctx.memory.get("key", namespace="n")
        ctx.memory.get("other", namespace="n")

    return memory_graphs.gone(
        memory_graphs.chain("reads", read, memory=mode, options=[{"effect": "read"}])
    )


def test_a_read_that_was_deleted_before_another_is_named(run: Run) -> None:
    reader = _reads_twice("snapshot")
    MemoryRecord.objects.get(run=reader, n=0).delete()
    row = f"checkpoints_memoryrecord {reader.id} read:1:0"
    assert [fault.reason for fault in verify_run(reader.id)] == [
        f"{row} 1 of 2 is gone",
        f"{row} 0 is gone",
    ]


@pytest.mark.parametrize("left", [0, 1])
def test_each_read_in_live_mode_that_was_deleted_is_named(run: Run, left: int) -> None:
    reader = _reads_twice("live")
    assert verify_run(reader.id) == []
    MemoryRecord.objects.filter(run=reader, n__gte=left).delete()
    reason = f"checkpoints_memoryrecord {reader.id} read:1:0 {left} of 2 is gone"
    assert [fault.reason for fault in verify_run(reader.id)] == [reason]


@pytest.mark.parametrize("mode", ["snapshot", "journaled"])
def test_the_last_read_of_a_task_that_was_deleted_is_named(mode: str, run: Run) -> None:
    reader = _reads_twice(mode)
    assert verify_run(reader.id) == []
    MemoryRecord.objects.get(run=reader, n=1).delete()
    reason = f"checkpoints_memoryrecord {reader.id} read:1:0 1 of 2 is gone"
    assert [fault.reason for fault in verify_run(reader.id)] == [reason]


def test_a_journal_of_wishes_that_was_deleted_is_named() -> None:
    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("key", 1, "n")

    writer = memory_graphs.gone(
        memory_graphs.chain("journals", put, memory="journaled")
    )
    assert verify_run(writer.id) == []
    MemoryRecord.objects.get(run=writer, kind="journal").delete()
    reason = f"checkpoints_memoryrecord {writer.id} put:1:0 0 of 1 is gone"
    assert [fault.reason for fault in verify_run(writer.id)] == [reason]


def test_what_another_line_read_is_missed_on_none_but_its_own(run: Run) -> None:
    def read(state: Any, ctx: Any) -> None:
        ctx.memory.get("key", namespace="n")

    def act(state: Any, ctx: Any) -> None:
        raise ValueError("not now")

    flow = memory_graphs.side_by_side(
        "beside", read, act, memory="snapshot", options=[{"effect": "external"}]
    )
    failed = memory_graphs.gone(flow)
    assert failed.status == "failed"
    forked = runs.advance(runs.fork(f"{failed.key}:at-{failed.head_seq}").id)
    assert verify_run(failed.id) == []
    assert verify_run(forked.id) == []
