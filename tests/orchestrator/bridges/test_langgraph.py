"""LangGraph works on our store: what it answers is what its own checkpointers answer,
and its threads are runs with all that runs have.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from checkpoints import retention
from checkpoints.core.tombstone import is_tombstone
from checkpoints.erasure import plan
from checkpoints.ledger import locked_run
from checkpoints.models import AuditLine, Checkpoint, Run, RunEvent
from checkpoints.retention.kept_points import classified
from checkpoints.retention.rule import Rule
from checkpoints.sealing import sealed_columns
from checkpoints.timeline import head_state
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.bridges.langgraph import CountersignSaver, readable
from orchestrator.engine.errors import (
    CountersignError,
    Erased,
    InvalidValue,
    KeyConflict,
    OpenTransaction,
    PayloadTooLarge,
    TamperedRow,
    UnknownThing,
    WrongStatus,
)
from tests.house.commands import ROOT
from tests.support import bundles, cast, dump, forging
from tests.support import langgraph_threads as graphs
from tests.support.langgraph_threads import thread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def every_thread_verifies_afterwards(request: Any, configure: Any) -> Iterator[None]:
    yield
    if "tampered" not in request.node.name:
        faults = [verify_run(run.id) for run in Run.objects.all()]
        assert faults == [[]] * len(faults)


def _run(name: str) -> Run:
    return Run.objects.get(key=f"thread-{name}")


def _paused(name: str = "t-1") -> Run:
    graphs.letter(CountersignSaver()).invoke({"text": "Ada", "notes": []}, thread(name))
    return _run(name)


def test_the_page_of_the_documentation_does_what_it_says() -> None:
    page = (ROOT / "docs" / "langgraph.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(compile(block, "langgraph.md", "exec"), {"__name__": "docs"})
    assert _run("letter-1").status == "waiting"


def test_travel_in_time_is_answered_like_by_the_saver_in_memory() -> None:
    ours = graphs.travelled(graphs.letter(CountersignSaver()), "t-1")
    assert ours == graphs.travelled(graphs.letter(InMemorySaver()), "t-1")
    # The branch is a line of its own.
    assert _run("t-1").line == 2


def test_nested_graphs_and_parallel_tasks_are_answered_like_in_memory() -> None:
    answers = []
    for saver in (CountersignSaver(), InMemorySaver()):
        graph = graphs.with_letter_inside(saver)
        graph.invoke({"text": "Ada", "notes": []}, thread("t-1"))
        state = graph.get_state(thread("t-1"), subgraphs=True)
        inner = state.tasks[0].state
        answers.append((state.values, state.next, inner.values, inner.next))
        answers.append(graph.invoke(Command(resume="yes"), thread("t-1")))
        answers.append(graphs.history(graph, "t-1"))
    assert answers[:3] == answers[3:]


def test_a_paused_graph_is_resumed_by_another_process() -> None:
    _paused()
    connection.close()
    graph = graphs.letter(CountersignSaver())
    state = graph.get_state(thread("t-1"))
    assert state.next == ("ask",)
    assert state.interrupts[0].value == {"release": "Dear Ada"}
    answer = graph.invoke(Command(resume="yes"), thread("t-1"))
    assert answer["notes"] == ["written", "asked", "sent yes"]


async def test_a_graph_that_runs_asynchronously_is_kept_too() -> None:
    graph = graphs.letter(CountersignSaver())
    await graph.ainvoke({"text": "Ada", "notes": []}, thread("t-1"))
    answer = await graph.ainvoke(Command(resume="yes"), thread("t-1"))
    assert answer["notes"] == ["written", "asked", "sent yes"]
    kept = [s async for s in graph.aget_state_history(thread("t-1"))]
    assert [s.next for s in kept][-1] == ("__start__",)


def test_the_timeline_shows_values_that_are_json() -> None:
    run = _paused()
    state = head_state(run.id)
    assert state["scratch"] == {"text": "Dear Ada", "notes": ["written"]}
    assert run.status == "waiting"
    assert run.label == "t-1"
    nodes_by_seq = dict(Checkpoint.objects.values_list("seq", "nodes"))
    nodes = {n: [node["node"] for node in nodes_by_seq[n]] for n in nodes_by_seq}
    assert nodes == {0: [], 1: [], 2: [], 3: ["write"]}
    last = Checkpoint.objects.get(id=run.head)
    assert last.changed == ["notes", "text"]


TABS = ("", "changed", "state", "writes", "results", "events", "memory", "metadata")


def test_every_page_of_a_thread_opens(people: cast.People, client: Client) -> None:
    run = _paused()
    graphs.letter(CountersignSaver()).invoke(Command(resume="yes"), thread("t-1"))
    for user in (people.starter, people.steward):
        client.force_login(user)
        for tab in TABS:
            page = client.get(f"/runs/{run.id}/?tab={tab}")
            assert page.status_code == 200, tab
        assert "Dear Ada" in client.get(f"/runs/{run.id}/?tab=state").content.decode()
        for path in ("", "checkpoints/", "events/", "lineage/"):
            answer = client.get(f"/api/v1/runs/{run.id}/{path}")
            assert answer.status_code == 200, path
    assert client.get("/runs/").status_code == 200


def test_nobody_can_send_a_thread_on_here(people: cast.People) -> None:
    run = _paused()
    first = Checkpoint.objects.get(run=run, seq=1)
    for act in (
        lambda: runs.resume(run.id, by=people.steward),
        lambda: runs.rewind(run.id, first.id, by=people.steward),
        lambda: runs.fork(first.id, by=people.steward),
        lambda: runs.replay(first.id, by=people.steward),
    ):
        with pytest.raises(CountersignError) as refused:
            act()
        assert isinstance(refused.value, (UnknownThing, WrongStatus))
    assert _run("t-1").status == "waiting"


def test_a_thread_comes_in_by_its_bundle_to_be_read(
    people: cast.People, configure: Any
) -> None:
    configure(TRUSTED_KEYS={"north": bundles.PUBLIC.hex()})
    run = _paused()
    imported = bundles.loaded(bundles.foreign(run), by=people.steward)
    assert head_state(imported.id)["scratch"]["text"] == "Dear Ada"
    # Under its own name a thread begins anew.
    assert CountersignSaver().get_tuple(thread("t-1")) is None
    assert _paused().id != run.id


def test_two_processes_that_save_at_once_lose_nothing() -> None:
    saver = CountersignSaver()

    def put(number: int) -> str:
        checkpoint = empty_checkpoint()
        saver.put({**thread("t-1")}, checkpoint, {"step": number}, {})
        return checkpoint["id"]

    with ThreadPoolExecutor(4) as pool:
        put_ids = list(pool.map(put, range(8)))
    listed = [
        t.config["configurable"]["checkpoint_id"] for t in saver.list(thread("t-1"))
    ]
    assert listed == sorted(put_ids, reverse=True)
    assert Checkpoint.objects.filter(run=_run("t-1")).count() == 9


def test_writes_may_come_before_their_checkpoint() -> None:
    saver = CountersignSaver()
    checkpoint = empty_checkpoint()
    config = {"configurable": {"thread_id": "t-1", "checkpoint_id": checkpoint["id"]}}
    saver.put_writes(config, [("text", "a")], "task")
    assert saver.get_tuple(config) is None
    saver.put(thread("t-1"), checkpoint, {}, {})
    kept = saver.get_tuple(config)
    assert kept is not None
    assert kept.pending_writes == [("task", "text", "a")]


def test_a_checkpoint_that_is_saved_twice_is_one_row() -> None:
    saver = CountersignSaver()
    checkpoint = empty_checkpoint()
    saver.put(thread("t-1"), checkpoint, {"step": 1}, {})
    saver.put(thread("t-1"), checkpoint, {"step": 1}, {})
    assert Checkpoint.objects.count() == 2
    # With other contents it takes the place of the first.
    saver.put(thread("t-1"), checkpoint, {"step": 2}, {})
    (only,) = saver.list(thread("t-1"))
    assert only.metadata["step"] == 2


def test_a_tampered_state_is_refused_and_found() -> None:
    run = _paused()
    row = Checkpoint.objects.filter(run=run).order_by("-seq")[0]
    forging.tamper(row, change=Checkpoint.objects.get(run=run, seq=1).change)
    with pytest.raises(TamperedRow):
        CountersignSaver().get_tuple(thread("t-1"))
    assert verify_run(run.id)


def test_a_tampered_write_is_refused_and_found() -> None:
    run = _paused()
    line = RunEvent.objects.filter(run=run, type="thread_written").order_by("-seq")[0]
    forging.tamper(line, task="another")
    assert verify_run(run.id)
    line = RunEvent.objects.filter(run=run, type="thread_saved").order_by("-seq")[0]
    forging.tamper(line, node="elsewhere")
    with pytest.raises(TamperedRow):
        CountersignSaver().get_tuple(
            {"configurable": {"thread_id": "t-1", "checkpoint_ns": "elsewhere"}}
        )


def test_a_deleted_write_is_found_in_a_tampered_thread() -> None:
    run = _paused()
    line = RunEvent.objects.filter(run=run, type="thread_written").order_by("-seq")[0]
    forging.remove(line)
    assert verify_run(run.id)


def test_erasing_a_thread_leaves_no_byte_of_a_value() -> None:
    graph = graphs.letter(CountersignSaver())
    graph.invoke({"text": "Zebedee", "notes": ["quagga"]}, thread("t-1"))
    run = _run("t-1")
    with pytest.raises(WrongStatus):
        retention.erase(run.id)
    runs.cancel(run.id)
    with pytest.raises(InvalidValue):
        retention.erase(run.id, ["text"])
    assert _marks() >= {"Zebedee", "quagga"}
    retention.erase(run.id)
    assert _marks() == set()
    with pytest.raises(Erased):
        graph.get_state(thread("t-1"))


def test_an_erased_write_of_a_thread_keeps_no_key_and_no_boolean() -> None:
    saver = CountersignSaver()
    checkpoint = empty_checkpoint()
    saver.put(thread("t-1"), checkpoint, {}, {})
    at = {"configurable": {"thread_id": "t-1", "checkpoint_id": checkpoint["id"]}}
    saver.put_writes(at, [("text", {"quagga": True})], "task")
    run = _run("t-1")
    runs.cancel(run.id)
    retention.erase(run.id)
    assert _marks() == set()
    line = RunEvent.objects.get(run=run, type="thread_written")
    (write,) = sealed_columns.read_value(line, "payload")["values"]
    assert is_tombstone(write["shown"])
    assert is_tombstone(write["bytes"])


def _marks() -> set[str]:
    """Return the words that stand in a payload, or plain in the files of the database."""
    everything = dump.of_database() + dump.unpacked_payloads()
    return {word for word in ("Zebedee", "quagga") if dump.holds(word, everything)}


def test_a_thread_that_was_ended_takes_nothing_more() -> None:
    run = _paused()
    runs.cancel(run.id)
    with pytest.raises(WrongStatus):
        graphs.letter(CountersignSaver()).invoke(Command(resume="yes"), thread("t-1"))
    assert CountersignSaver().get_tuple(thread("t-1")) is not None


def test_a_thread_that_was_marked_waits_again_when_it_is_resumed(
    people: cast.People,
) -> None:
    run = _paused()
    locked_run.mark_tampered(run.id, TamperedRow("a row was changed"))
    graph = graphs.letter(CountersignSaver())
    with pytest.raises(WrongStatus, match="tampered"):
        graph.invoke(Command(resume="yes"), thread("t-1"))
    resumed = runs.resume(run.id, by=people.steward)
    assert resumed.status == "waiting"
    line = AuditLine.objects.get(kind="resumed", run=run.id)
    assert line.facts["seq"] == resumed.event_seq - 1
    assert _run("t-1").status == "waiting"
    answer = graph.invoke(Command(resume="yes"), thread("t-1"))
    assert answer["answer"] == "yes"


def test_a_deleted_thread_may_begin_anew_under_its_name() -> None:
    saver = CountersignSaver()
    run = _paused()
    saver.delete_thread("t-1")
    assert saver.get_tuple(thread("t-1")) is None
    assert AuditLine.objects.filter(kind="run_removed", run=run.id).exists()
    graphs.letter(saver).invoke({"text": "Bob", "notes": []}, thread("t-1"))
    assert Run.objects.get().key == "thread-t-1~2"
    assert [name.config["configurable"]["thread_id"] for name in saver.list(None)] == [
        "t-1"
    ] * 3


def test_a_thread_under_a_hold_is_not_deleted() -> None:
    run = _paused()
    retention.hold(run.id, "a lawsuit", by=None)
    with pytest.raises(WrongStatus, match="hold"):
        CountersignSaver().delete_thread("t-1")
    assert Run.objects.filter(id=run.id).exists()


def test_a_policy_leaves_the_checkpoints_of_a_thread_until_it_ended() -> None:
    run = _paused()
    soon = timezone.now() + timedelta(days=1)
    rule = Rule("langgraph", soon, 0, {}, {"cancelled": soon}, archive=False)
    rows = classified(rule).filter(run=run.id)
    assert set(rows.values_list("why", flat=True)) == {"thread"}
    runs.cancel(run.id)
    assert set(rows.values_list("why", flat=True)) == {"with_run"}


def test_names_of_threads_stay_apart() -> None:
    saver = CountersignSaver()
    names = ["a", "a~2", "user:42", "user/42", "ü", "thread-a", "0" * 32]
    for name in names:
        saver.put(thread(name), empty_checkpoint(), {"mark": name}, {})
    for name in names:
        kept = saver.get_tuple(thread(name))
        assert kept is not None
        assert kept.metadata["mark"] == name
    listed = {t.config["configurable"]["thread_id"] for t in saver.list(None)}
    assert listed == set(names)
    with pytest.raises(InvalidValue):
        saver.put(thread("x" * 300), empty_checkpoint(), {}, {})


def test_an_encrypted_thread_has_no_plain_value(configure: Any) -> None:
    configure(ENCRYPTION_KEYS={"k": bytes(range(32))})
    graph = graphs.letter(CountersignSaver(encrypted=True))
    graph.invoke({"text": "Zebedee", "notes": ["quagga"]}, thread("t-1"))
    data = dump.of_database()
    assert b"Zebedee" not in data
    assert all(bytes(row.payload)[:1] == b"\x03" for row in RunEvent.objects.all())
    answer = graph.invoke(Command(resume="yes"), thread("t-1"))
    assert answer["text"] == "Dear Zebedee"


def test_a_copy_is_encrypted_as_its_source_is_and_erasures_name_it(
    configure: Any,
) -> None:
    configure(ENCRYPTION_KEYS={"k": bytes(range(32))})
    graph = graphs.letter(CountersignSaver(encrypted=True))
    graph.invoke({"text": "Zebedee", "notes": ["quagga"]}, thread("t-1"))
    CountersignSaver().copy_thread("t-1", "t-2")
    assert b"Zebedee" not in dump.of_database()
    source, copy = _run("t-1"), _run("t-2")
    assert copy.encrypted
    assert graph.get_state(thread("t-2")).values["text"] == "Dear Zebedee"
    (heir,) = plan.inherited_of(source)
    assert (heir.id, heir.how, heir.came_before) == (copy.id, "copy", False)
    (origin,) = plan.inherited_of(copy)
    assert (origin.id, origin.came_before) == (source.id, True)
    runs.cancel(source.id)
    runs.cancel(copy.id)
    retention.erase(source.id, forks=True)
    with pytest.raises(Erased):
        graph.get_state(thread("t-2"))


def test_a_saver_touches_no_thread_of_another_graph() -> None:
    _paused()
    other = CountersignSaver(graph="another")
    with pytest.raises(KeyConflict):
        other.delete_thread("t-1")
    with pytest.raises(KeyConflict):
        other.copy_thread("t-1", "t-2")


def test_nothing_is_saved_or_run_in_a_transaction_of_the_caller() -> None:
    graph = graphs.letter(CountersignSaver())
    with pytest.raises(OpenTransaction), transaction.atomic():
        graph.invoke({"text": "Ada", "notes": []}, thread("t-1"))
    with pytest.raises(OpenTransaction), transaction.atomic():
        graph.update_state(thread("t-1"), {"text": "Ada"}, as_node="write")
    assert not Run.objects.exists()


def test_a_call_in_another_thread_leaves_no_connection_open() -> None:
    saver = CountersignSaver()

    def put() -> bool:
        saver.put(thread("t-1"), empty_checkpoint(), {}, {})
        return connection.connection is None

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(put).result()


def test_secrets_are_masked_in_what_pages_show(configure: Any) -> None:
    configure(SECRETS={"token": "quagga-42"})
    graphs.letter(CountersignSaver()).invoke(
        {"text": "quagga-42", "notes": []}, thread("t-1")
    )
    state = head_state(_run("t-1").id)
    assert "quagga" not in str(state["scratch"])
    line = RunEvent.objects.filter(type="thread_written").earliest("seq")
    (write,) = sealed_columns.read_value(line, "payload")["values"][:1]
    assert "quagga" not in str(write["shown"])


def test_a_value_that_is_too_large_is_refused_by_the_name_of_its_channel(
    configure: Any,
) -> None:
    configure(MAX_VALUE_BYTES=100)
    saver = CountersignSaver()
    at = {"configurable": {"thread_id": "t-1", "checkpoint_id": "1"}}
    with pytest.raises(PayloadTooLarge, match="text"):
        saver.put_writes(at, [("text", "x" * 101)], "task")


def test_what_pages_cannot_show_is_named_by_its_type() -> None:
    class Own:
        pass

    assert readable({"a": (1, 2)}) == {"a": [1, 2]}
    assert readable(Own())["type"].endswith("Own")
    assert readable(float("nan"))["type"] == "builtins.float"
    loop: list[Any] = []
    loop.append(loop)
    assert readable(loop) == {"type": "builtins.list"}
