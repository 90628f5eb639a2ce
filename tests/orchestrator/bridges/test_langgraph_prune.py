"""LangGraph removes checkpoints of its threads: what goes leaves no value and a gap that
is provable, and what stays goes on.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict
from uuid import UUID

import pytest
from django.db import transaction
from django.test import Client
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

from checkpoints import retention
from checkpoints.models import AuditLine, Checkpoint, Run, RunEvent
from checkpoints.sealing import sealed_columns
from checkpoints.timeline import head_state
from checkpoints.verification import verify_run
from checkpoints.verification.audit import audit
from orchestrator import runs
from orchestrator.bridges.langgraph import CountersignSaver
from orchestrator.engine.errors import (
    InvalidValue,
    KeyConflict,
    TamperedRow,
    WrongStatus,
)
from tests.support import bundles, cast, dump, forging
from tests.support import langgraph_threads as graphs
from tests.support.langgraph_threads import thread

pytestmark = pytest.mark.django_db(transaction=True)

TABS = ("", "changed", "state", "writes", "results", "events", "memory", "metadata")


@pytest.fixture(autouse=True)
def every_thread_verifies_afterwards(request: Any, configure: Any) -> Iterator[None]:
    yield
    if "tampered" not in request.node.name:
        faults = [verify_run(run.id) for run in Run.objects.all()]
        assert faults == [[]] * len(faults)
        assert [fault for fault in audit() if fault] == []


def _run(name: str = "t-1") -> Run:
    return Run.objects.get(key=f"thread-{name}")


def _answered(saver: Any, text: str = "Ada", run_id: str = "") -> Any:
    """A graph whose thread `t-1` waited for an answer, and got it."""
    graph = graphs.letter(saver)
    config = _config(run_id)
    graph.invoke({"text": text, "notes": []}, config, durability="sync")
    graph.invoke(Command(resume="yes"), config, durability="sync")
    return graph


def _config(run_id: str) -> dict[str, Any]:
    config = thread("t-1")
    if run_id:
        config["metadata"] = {"run_id": run_id}
    return config


def _holds(word: str) -> bool:
    """Return whether a word stands in a payload."""
    return dump.holds(word, dump.unpacked_payloads())


def test_the_latest_checkpoint_stays_and_goes_on() -> None:
    saver = CountersignSaver()
    graph = graphs.letter(saver)
    graph.invoke({"text": "Ada", "notes": []}, thread("t-1"))
    before = graph.get_state(thread("t-1"))
    saver.prune(["t-1"])
    assert graph.get_state(thread("t-1")) == before
    assert len(list(saver.list(thread("t-1")))) == 1
    answer = graph.invoke(Command(resume="yes"), thread("t-1"))
    assert answer["notes"] == ["written", "asked", "sent yes"]


def test_a_pruned_thread_is_answered_like_one_that_was_not() -> None:
    answers = []
    for saver, prunes in ((CountersignSaver(), True), (InMemorySaver(), False)):
        graph = graphs.with_letter_inside(saver)
        graph.invoke({"text": "Ada", "notes": []}, thread("t-1"))
        if prunes:
            saver.prune(["t-1"])
        state = graph.get_state(thread("t-1"), subgraphs=True)
        inner = state.tasks[0].state
        answers.append((state.values, state.next, inner.values, inner.next))
        answers.append(graph.invoke(Command(resume="yes"), thread("t-1")))
    assert answers[:2] == answers[2:]


def test_what_goes_leaves_a_gap_that_its_log_names() -> None:
    saver = CountersignSaver()
    _answered(saver)
    run = _run()
    rows_before = Checkpoint.objects.filter(run=run.id).count()
    saver.prune(["t-1"])
    run.refresh_from_db()
    rows = Checkpoint.objects.filter(run=run.id).values_list("seq", flat=True)
    assert set(rows) == {0, run.head_seq}
    lines = RunEvent.objects.filter(run=run.id, type="history_removed")
    facts = [
        sealed_columns.read_value(line, "payload") for line in lines.order_by("seq")
    ]
    # LangGraph may write behind the next checkpoint; then the thread has a new head.
    gone = rows_before + (run.head_seq >= rows_before) - 2
    assert facts[0]["checkpoints"]["count"] == gone
    removed_lines = {
        number
        for fact in facts[1:]
        for number in range(fact["events"]["first"], fact["events"]["last"] + 1)
    }
    there = set(RunEvent.objects.filter(run=run.id).values_list("seq", flat=True))
    assert there | removed_lines == set(range(1, run.event_seq + 1))
    assert not there & removed_lines
    line = AuditLine.objects.get(kind="thread_pruned", run=run.id)
    assert line.facts["checkpoints"] == gone


def test_a_value_of_what_goes_is_nowhere_afterwards() -> None:
    saver = CountersignSaver()
    graph = graphs.letter(saver)
    graph.invoke({"text": "Zebedee", "notes": []}, thread("t-1"))
    graph.update_state(thread("t-1"), {"text": "Bob"}, as_node="send")
    assert _holds("Zebedee")
    saver.prune(["t-1"])
    assert not _holds("Zebedee")
    assert graph.get_state(thread("t-1")).values["text"] == "Bob"


def _write_late(saver: CountersignSaver) -> None:
    """Save a write of an older checkpoint behind the newest, as LangGraph's threads may."""
    [_, older, *_] = saver.list(thread("t-1"))
    saver.put_writes(older.config, [("text", "late")], "a-task-that-was-slow")


@pytest.mark.parametrize("is_written_late", [False, True])
def test_pruning_again_changes_nothing(is_written_late: bool) -> None:
    saver = CountersignSaver()
    _answered(saver)
    if is_written_late:
        _write_late(saver)
    saver.prune(["t-1"])
    event_seq = _run().event_seq
    saver.prune(["t-1", "nobody"])
    assert _run().event_seq == event_seq
    assert AuditLine.objects.filter(kind="thread_pruned").count() == 1


def test_a_thread_is_pruned_time_after_time() -> None:
    saver = CountersignSaver()
    graph = graphs.letter(saver)
    for text in ("Ada", "Bob", "Cleo"):
        graph.invoke({"text": text, "notes": []}, thread("t-1"))
        graph.invoke(Command(resume="yes"), thread("t-1"))
        saver.prune(["t-1"])
        assert verify_run(_run().id) == []
    assert graph.get_state(thread("t-1")).values["text"] == "Dear Cleo"


def test_a_branch_goes_with_the_point_that_it_departed_from(
    people: cast.People, client: Client
) -> None:
    saver = CountersignSaver()
    graph = graphs.letter(saver)
    graphs.travelled(graph, "t-1")
    run = _run()
    assert run.line > 1
    before = graph.get_state(thread("t-1"))
    saver.prune(["t-1"])
    assert graph.get_state(thread("t-1")) == before
    assert len(list(saver.list(thread("t-1")))) == 1
    client.force_login(people.steward)
    for tab in TABS:
        assert client.get(f"/runs/{run.id}/?tab={tab}").status_code == 200, tab
    for path in ("", "checkpoints/", "events/", "lineage/"):
        answer = client.get(f"/api/v1/runs/{run.id}/{path}")
        assert answer.status_code == 200, path


def test_a_pinned_checkpoint_stays() -> None:
    saver = CountersignSaver()
    _answered(saver)
    row = Checkpoint.objects.get(run=_run().id, seq=2)
    retention.pin(row.id, by=None)
    saver.prune(["t-1"])
    assert Checkpoint.objects.filter(id=row.id).exists()
    assert len(list(saver.list(thread("t-1")))) == 2


def test_a_thread_under_a_hold_is_not_pruned() -> None:
    saver = CountersignSaver()
    graph = _answered(saver)
    graph.invoke({"text": "Bob", "notes": []}, thread("t-2"))
    retention.hold(_run().id, "a lawsuit", by=None)
    count = Checkpoint.objects.count()
    with pytest.raises(WrongStatus, match="hold"):
        saver.prune(["t-2", "t-1"])
    assert Checkpoint.objects.count() == count


def test_a_tampered_thread_is_not_pruned() -> None:
    saver = CountersignSaver()
    _answered(saver)
    count = Checkpoint.objects.count()
    row = Checkpoint.objects.get(run=_run().id, seq=1)
    forging.tamper(row, superstep=7)
    with pytest.raises(TamperedRow):
        saver.prune(["t-1"])
    assert Checkpoint.objects.count() == count


def test_nothing_is_pruned_by_a_strategy_that_there_is_not() -> None:
    saver = CountersignSaver()
    _answered(saver)
    with pytest.raises(InvalidValue):
        saver.prune(["t-1"], strategy="keep_some")
    with pytest.raises(KeyConflict):
        CountersignSaver(graph="another").prune(["t-1"])
    saver.prune(["t-1"], strategy="delete")
    assert not Run.objects.exists()


class _Notes(TypedDict, total=False):
    step: Annotated[int, operator.add]
    notes: Annotated[list[str], DeltaChannel(lambda old, new: old + sum(new, []))]


def _with_deltas(saver: Any) -> Any:
    builder = StateGraph(_Notes)
    builder.add_node("note", lambda state: {"notes": [f"n{state['step']}"], "step": 1})
    builder.add_conditional_edges(
        "note", lambda state: END if state["step"] >= 4 else "note"
    )
    builder.add_edge(START, "note")
    return builder.compile(checkpointer=saver)


def test_values_that_are_rebuilt_from_earlier_checkpoints_stay_whole() -> None:
    saver = CountersignSaver()
    graph = _with_deltas(saver)
    graph.invoke({"step": 0, "notes": ["first"]}, thread("t-1"), durability="sync")
    before = graph.get_state(thread("t-1")).values
    assert before["notes"] == ["first", "n0", "n1", "n2", "n3"]
    saver.prune(["t-1"])
    assert graph.get_state(thread("t-1")).values == before


def test_the_checkpoints_of_one_run_go_with_their_writes() -> None:
    saver = CountersignSaver()
    _answered(saver, "Zebedee", "run-1")
    _answered(saver, "Bob", "run-2")
    first = list(saver.list(thread("t-1"), filter={"run_id": "run-1"}))
    assert first
    graph = graphs.letter(saver)
    before = graph.get_state(thread("t-1"))
    saver.delete_for_runs(["run-1", "nobody"])
    assert list(saver.list(thread("t-1"), filter={"run_id": "run-1"})) == []
    assert list(saver.list(thread("t-1"), filter={"run_id": "run-2"}))
    assert not RunEvent.objects.filter(
        task=first[0].config["configurable"]["checkpoint_id"]
    )
    assert graph.get_state(thread("t-1")).values == before.values


def test_a_thread_goes_on_where_the_removed_run_had_begun() -> None:
    saver = CountersignSaver()
    graph = _answered(saver, "Ada", "run-1")
    before = graph.get_state(thread("t-1"))
    _answered(saver, "Zebedee", "run-2")
    saver.delete_for_runs(["run-2"])
    assert not _holds("Zebedee")
    assert graph.get_state(thread("t-1")).values == before.values
    assert head_state(_run().id)["scratch"]["text"] == "Dear Ada"
    graph.invoke({"text": "Cleo", "notes": []}, thread("t-1"))
    assert graph.get_state(thread("t-1")).values["text"] == "Dear Cleo"


def test_a_thread_of_which_nothing_stays_may_begin_anew() -> None:
    saver = CountersignSaver()
    graph = _answered(saver, "Zebedee", "run-1")
    saver.delete_for_runs(["run-1"])
    assert saver.get_tuple(thread("t-1")) is None
    assert not _holds("Zebedee")
    graph.invoke({"text": "Bob", "notes": []}, thread("t-1"))
    assert graph.get_state(thread("t-1")).values["text"] == "Dear Bob"
    assert Run.objects.count() == 1


def test_copies_lose_the_checkpoints_of_a_removed_run_too() -> None:
    saver = CountersignSaver()
    _answered(saver, "Zebedee", "run-1")
    saver.copy_thread("t-1", "t-2")
    saver.delete_for_runs(["run-1"])
    assert not _holds("Zebedee")


def test_runs_are_removed_from_threads_of_this_graph_alone() -> None:
    _answered(CountersignSaver(), "Ada", "run-1")
    CountersignSaver(graph="another").delete_for_runs(["run-1"])
    assert list(CountersignSaver().list(thread("t-1")))


def test_the_newest_checkpoint_of_an_ended_thread_stays() -> None:
    saver = CountersignSaver()
    _answered(saver, "Ada", "run-1")
    runs.cancel(_run().id)
    count = Checkpoint.objects.count()
    with pytest.raises(WrongStatus):
        saver.delete_for_runs(["run-1"])
    assert Checkpoint.objects.count() == count


@pytest.mark.parametrize("is_written_late", [False, True])
def test_an_ended_thread_is_pruned_and_erased(is_written_late: bool) -> None:
    saver = CountersignSaver()
    graphs.letter(saver).invoke({"text": "Zebedee", "notes": []}, thread("t-1"))
    if is_written_late:
        _write_late(saver)
    runs.cancel(_run().id)
    saver.prune(["t-1"])
    assert verify_run(_run().id) == []
    retention.erase(_run().id)
    assert not _holds("Zebedee")


def test_a_pruned_thread_comes_in_by_its_bundle(
    people: cast.People, configure: Any
) -> None:
    configure(TRUSTED_KEYS={"north": bundles.PUBLIC.hex()})
    saver = CountersignSaver()
    _answered(saver, "Ada", "run-1")
    _answered(saver, "Bob", "run-2")
    saver.delete_for_runs(["run-1"])
    data = bundles.foreign(_run())
    imported = bundles.loaded(data, by=people.steward)
    assert head_state(imported.id)["scratch"]["text"] == "Dear Bob"


def test_an_encrypted_thread_is_pruned(configure: Any) -> None:
    configure(ENCRYPTION_KEYS={"k": bytes(range(32))})
    saver = CountersignSaver(encrypted=True)
    graph = _answered(saver)
    saver.prune(["t-1"])
    assert graph.get_state(thread("t-1")).values["text"] == "Dear Ada"


async def test_graphs_that_run_asynchronously_prune_too() -> None:
    saver = CountersignSaver()
    graph = graphs.letter(saver)
    await graph.ainvoke({"text": "Ada", "notes": []}, thread("t-1"))
    await saver.aprune(["t-1"])
    await saver.adelete_for_runs(["nobody"])
    assert len([point async for point in saver.alist(thread("t-1"))]) == 1


def test_a_removal_that_was_killed_is_completed_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = CountersignSaver()
    _answered(saver, "Zebedee", "run-1")
    _answered(saver, "Bob", "run-2")

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("checkpoints.retention.thread_history._remove_lines", killed)
        with pytest.raises(KeyboardInterrupt):
            saver.delete_for_runs(["run-1"])
    assert verify_run(_run().id) == []
    assert list(saver.list(thread("t-1"), filter={"run_id": "run-1"})) == []
    saver.delete_for_runs(["run-1"])
    assert not RunEvent.objects.filter(type="thread_ran", task="run-1").exists()


def test_a_checkpoint_whose_writes_came_first_keeps_them() -> None:
    saver = CountersignSaver()
    saver.put(thread("t-1"), empty_checkpoint(), {"step": 1}, {})
    saver.put(thread("t-1"), empty_checkpoint(), {"step": 2}, {})
    coming = empty_checkpoint()
    config = {"configurable": {"thread_id": "t-1", "checkpoint_id": coming["id"]}}
    saver.put_writes(config, [("text", "a")], "task")
    saver.prune(["t-1"])
    saver.put(thread("t-1"), coming, {"step": 3}, {})
    latest = saver.get_tuple(thread("t-1"))
    assert latest is not None
    assert latest.pending_writes == [("task", "text", "a")]


def test_late_writes_of_what_goes_go_too() -> None:
    saver = CountersignSaver()
    first = saver.put(thread("t-1"), empty_checkpoint(), {"step": 1}, {})
    saver.put(thread("t-1"), empty_checkpoint(), {"step": 2}, {})
    saver.put_writes(first, [("text", "Zebedee")], "task")
    assert _holds("Zebedee")
    saver.prune(["t-1"])
    assert not _holds("Zebedee")
    (only,) = saver.list(thread("t-1"))
    assert only.metadata["step"] == 2
    assert UUID(str(_run().head))


def _meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Let something happen once, when it has been chosen what goes."""
    acts = [act]

    def verify(run_id: Any, **facts: Any) -> Any:
        if acts:
            acts.pop()()
        return verify_run(run_id, **facts)

    monkeypatch.setattr("checkpoints.retention.thread_history.verify_run", verify)


def test_a_checkpoint_that_is_pinned_meanwhile_stays_with_its_name_and_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = CountersignSaver()
    first = saver.put(thread("t-1"), empty_checkpoint(), {"step": 1}, {})
    saver.put_writes(first, [("text", "a")], "task")
    saver.put(thread("t-1"), empty_checkpoint(), {"step": 2}, {})
    row = Checkpoint.objects.get(run=_run().id, seq=1)
    _meanwhile(monkeypatch, lambda: retention.pin(row.id, by=None))
    saver.prune(["t-1"])
    pinned = saver.get_tuple(first)
    assert pinned is not None
    assert pinned.pending_writes == [("task", "text", "a")]


def test_writes_that_come_meanwhile_at_what_goes_go_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = CountersignSaver()
    first = saver.put(thread("t-1"), empty_checkpoint(), {"step": 1}, {})
    saver.put(thread("t-1"), empty_checkpoint(), {"step": 2}, {})
    _meanwhile(
        monkeypatch, lambda: saver.put_writes(first, [("text", "Zebedee")], "task")
    )
    saver.prune(["t-1"])
    assert not _holds("Zebedee")
    assert not RunEvent.objects.filter(task=first["configurable"]["checkpoint_id"])
    saver.put(thread("t-1"), empty_checkpoint(), {"step": 3}, {})
    assert [point.metadata["step"] for point in saver.list(thread("t-1"))] == [3, 2]


def test_a_run_that_went_on_meanwhile_can_be_removed_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = CountersignSaver()
    _answered(saver, "Zebedee", "run-1")
    _answered(saver, "Bob", "run-2")
    _meanwhile(monkeypatch, lambda: _answered(saver, "Zebedee", "run-1"))
    saver.prune(["t-1"])
    assert _holds("Zebedee")
    saver.delete_for_runs(["run-1"])
    assert not _holds("Zebedee")


def test_two_removals_at_once_leave_what_both_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    saver = CountersignSaver()
    _answered(saver, "Ada", "run-1")
    _answered(saver, "Bob", "run-2")
    _meanwhile(monkeypatch, lambda: saver.prune(["t-1"]))
    saver.prune(["t-1"])
    assert len(list(saver.list(thread("t-1")))) == 1
    saver.put(thread("t-1"), empty_checkpoint(), {"step": 1}, {})


def test_each_line_that_is_gone_is_named_before_and_after_a_prune() -> None:
    saver = CountersignSaver()
    _answered(saver)
    _each_line_is_missed(_run())
    saver.prune(["t-1"])
    _each_line_is_missed(_run())


def _each_line_is_missed(run: Run) -> None:
    rows = RunEvent.objects.filter(run=run.id)
    assert rows.count() >= 5
    for row in rows:
        with transaction.atomic():
            rows.filter(id=row.id).delete()
            assert any("gone" in fault.reason for fault in verify_run(run.id)), row.type
            transaction.set_rollback(True)
