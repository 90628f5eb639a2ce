"""Effects outlive the rows of the run that caused them, as long as any of its family
stays.
"""

from typing import Any

import pytest
from django.db import connection
from django.urls import reverse

from checkpoints import retention
from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from checkpoints.retention import prune_job
from checkpoints.timeline.past_effects import LEFT_LINES
from checkpoints.verification import verify_run
from orchestrator import runs
from orchestrator.engine import END, START, NotDone, Task
from tests.support import cast
from tests.support.forging import tamper
from tests.support.histories import policy, pruned
from tests.support.small_graphs import graph, registered
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)

PAID: list[str] = []
BROKEN: list[type[Exception]] = []


def paying() -> None:
    """check -> pay (external) -> keep (remembers)"""
    flow = graph("left")
    flow.node("check")(lambda state, ctx: {"notes": ["checked"]})

    def pay(state: Any, ctx: Any) -> None:
        if BROKEN:
            raise BROKEN[0]
        PAID.append(ctx.node)

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.node("keep")(lambda state, ctx: ctx.memory.put("k", "v", "space"))
    for source, target in (
        (START, "check"),
        ("check", "pay"),
        ("pay", "keep"),
        ("keep", END),
    ):
        flow.edge(source, target)
    registered(flow)


@pytest.fixture(autouse=True)
def origin() -> Run:
    """A run that failed before it paid, so that it has done nothing itself."""
    PAID.clear()
    paying()
    BROKEN[:] = [NotDone]
    run = runs.advance(runs.start("left", {}).id)
    BROKEN.clear()
    assert run.status == Status.FAILED
    assert PAID == []
    return run


def fork(at: Any, people: cast.People, **options: Any) -> Run:
    return runs.advance(runs.fork(at, by=people.starter, **options).id)


def removed(*gone: Run) -> None:
    """Retention takes these runs out as a whole."""
    pruned(policy("left", keep_last=None, remove_runs_after_days={"completed": 0}))
    assert not Run.objects.filter(id__in=[run.id for run in gone]).exists()


def effects(at: Any) -> set[str]:
    return {f"{task} {word}" for task, word in noted(at).items()}


def noted(at: Any) -> dict[str, str]:
    return runs.plan(at).notes["effects_again"]


def test_the_effects_of_a_fork_that_was_removed_are_listed_by_the_next_one(
    origin: Run, people: cast.People
) -> None:
    first = fork(f"{origin.key}:step-1", people)
    assert first.status == Status.COMPLETED
    assert PAID == ["pay"]
    before = effects(f"{origin.key}:step-1")
    removed(first)
    assert (
        before
        == effects(f"{origin.key}:step-1")
        == {"pay:1:0 external", "keep:1:0 memory"}
    )
    second = fork(f"{origin.key}:step-1", people)
    assert second.status == Status.PAUSED
    assert second.at_node == "pay"
    assert PAID == ["pay"]
    assert verify_run(origin.id) == []


def test_the_effects_of_a_fork_of_a_fork_are_left_with_each_that_stays(
    origin: Run, people: cast.People
) -> None:
    first = fork(f"{origin.key}:step-1", people)
    last = fork(f"{first.key}:initial", people, allow_effects=["pay", "keep"])
    assert last.status == Status.COMPLETED
    assert PAID == ["pay", "pay"]
    removed(last)
    removed(first)
    assert runs.plan(f"{origin.key}:step-1").effects_again[0] == Task("pay", 1, 0)
    left = TaskResult.objects.filter(run=origin.id, line__in=LEFT_LINES)
    assert sorted(left.values_list("effect", flat=True)) == ["external", "memory"]


def test_what_a_sibling_did_that_was_removed_is_listed_in_a_fork_that_stays(
    origin: Run, people: cast.People
) -> None:
    stays = runs.fork(f"{origin.key}:step-1", by=people.starter, start=False)
    forked = fork(f"{origin.key}:step-1", people)
    assert PAID == ["pay"]
    removed(forked)
    assert "pay:1:0 external" in effects(stays.head)


def test_what_the_way_has_done_itself_is_not_listed_for_what_a_fork_did_that_was_removed(
    origin: Run, people: cast.People
) -> None:
    forked = fork(f"{origin.key}:step-1", people)
    removed(forked)
    paid = runs.advance(runs.resume(origin.id, by=people.starter).id)
    assert paid.status == Status.COMPLETED
    assert runs.plan(f"{origin.key}:step-2").effects_again == (Task("keep", 1, 0),)


def test_memory_that_landed_in_a_fork_that_was_removed_is_listed_where_the_way_has_not_landed_it(
    people: cast.People,
) -> None:
    flow = graph("left_open")

    def pay(state: Any, ctx: Any) -> None:
        PAID.append(ctx.node)
        ctx.memory.put("k", "v", "space")

    def beside(state: Any, ctx: Any) -> None:
        if BROKEN:
            raise BROKEN[0]

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.node("beside")(beside)
    for node in ("pay", "beside"):
        flow.edge(START, node)
        flow.edge(node, END)
    registered(flow)
    BROKEN[:] = [ValueError]
    run = runs.advance(runs.start("left_open", {}).id)
    BROKEN.clear()
    assert run.status == Status.FAILED
    assert PAID == ["pay"]
    assert noted(run.head) == {}
    forked = fork(run.head, people)
    assert forked.status == Status.COMPLETED
    assert PAID == ["pay"]
    assert noted(run.head) == {"pay:1:0": "memory"}
    pruned(policy("left_open", keep_last=None, remove_runs_after_days={"completed": 0}))
    assert not Run.objects.filter(id=forked.id).exists()
    assert noted(run.head) == {"pay:1:0": "memory"}


def test_memory_that_the_way_has_landed_itself_is_not_listed_for_a_fork_that_was_removed(
    people: cast.People,
) -> None:
    flow = graph("left_loop")
    flow.node("keep")(
        lambda state, ctx: (
            ctx.memory.put("k", "v", "space") or {"total": state.total + 1}
        )
    )
    flow.edge(START, "keep")
    flow.branch(
        "keep",
        lambda state: "again" if state.total < 2 else "end",
        {"again": "keep", "end": END},
    )
    registered(flow)
    run = runs.advance(runs.start("left_loop", {}).id)
    runs.fork(
        f"{run.key}:step-1", by=people.starter, start=False
    )  # so that run and point stay
    forked = fork(f"{run.key}:initial", people, allow_effects=["keep"])
    before = noted(f"{run.key}:step-1")
    pruned(policy("left_loop", keep_last=None, remove_runs_after_days={"completed": 0}))
    assert not Run.objects.filter(id=forked.id).exists()
    assert before == noted(f"{run.key}:step-1") == {"keep:2:0": "memory"}


def test_a_rewind_an_erasure_and_a_clean_up_in_between_forget_nothing(
    origin: Run, people: cast.People
) -> None:
    """A fork of a fork acts and is erased; both go; the run goes back, is forked anew,
    and loses old checkpoints.
    """
    first = runs.fork(f"{origin.key}:step-1", by=people.starter, start=False)
    second = fork(first.head, people)
    assert second.status == Status.COMPLETED
    assert PAID == ["pay"]
    retention.erase(second.id, reason="asked for", by=people.steward)
    runs.cancel(first.id, by=people.starter)
    removed(second)
    pruned(policy("left", keep_last=None, remove_runs_after_days={"cancelled": 0}))
    assert not Run.objects.filter(id=first.id).exists()
    back = runs.rewind(origin.id, f"{origin.key}:step-1", by=people.starter)
    assert effects(back.head) == {"pay:1:0 external", "keep:1:0 memory"}
    stays = runs.fork(back.head, by=people.starter, start=False)
    stopped = runs.advance(back.id)
    assert stopped.status == Status.PAUSED
    assert stopped.at_node == "pay"
    assert PAID == ["pay"]
    pruned(policy("left", keep_last=1, remove_runs_after_days={}))
    assert (
        effects(stays.head)
        == effects(stopped.head)
        == {"pay:1:0 external", "keep:1:0 memory"}
    )
    assert verify_run(origin.id) == []
    assert verify_run(stays.id) == []


def test_what_a_fork_did_that_was_removed_is_not_counted_as_what_its_origin_did(
    origin: Run, people: cast.People, client: Any
) -> None:
    removed(fork(f"{origin.key}:step-1", people))
    other = runs.fork(f"{origin.key}:step-1", by=people.starter, start=False)
    client.force_login(people.starter)
    sides = client.get(reverse("compare"), {"a": origin.id, "b": other.id}).context[
        "page"
    ]["sides"]
    assert [side["calls"] for side in sides] == [0, 0]


def test_a_run_that_left_nothing_behind_leaves_no_effects(
    origin: Run, people: cast.People
) -> None:
    BROKEN[:] = [NotDone]
    first = fork(f"{origin.key}:step-1", people)
    policy_ = policy("left", keep_last=None, remove_runs_after_days={"failed": 0})
    pruned(policy_)
    assert not Run.objects.filter(id=first.id).exists()
    assert not TaskResult.objects.filter(line__in=LEFT_LINES).exists()


def test_an_origin_is_locked_only_where_something_is_left_and_last(
    origin: Run, people: cast.People
) -> None:
    BROKEN[:] = [NotDone]
    unpaid = fork(f"{origin.key}:step-1", people)
    assert unpaid.status == Status.FAILED
    BROKEN.clear()
    forked = fork(f"{origin.key}:step-1", people)
    assert forked.status == Status.COMPLETED

    with counted() as sent:
        removed(forked)
    lookups = [number for number, text in enumerate(sent) if is_of_origin(text)]
    deletions = [number for number, text in enumerate(sent) if "DELETE FROM" in text]
    assert min(lookups) > max(deletions)

    with counted() as sent:
        pruned(policy("left", keep_last=None, remove_runs_after_days={"failed": 0}))
    assert not Run.objects.filter(id=unpaid.id).exists()
    assert not any(map(is_of_origin, sent))


def is_of_origin(text: str) -> bool:
    """Return whether a statement reads the run with which effects are left."""
    columns = ("id", "encrypted", "hash_key")
    names = ", ".join(f'"checkpoints_run"."{column}"' for column in columns)
    return text.startswith(f"SELECT {names} FROM")


def test_a_result_that_is_changed_while_its_run_is_removed_is_left_with_nobody(
    origin: Run, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked = fork(origin.head, people)

    def changed(*_: Any) -> None:
        tamper(TaskResult.objects.get(run=forked, node="pay"), node="check")

    monkeypatch.setattr(prune_job, "write_bundle", changed)
    pruned(policy("left", keep_last=None, remove_runs_after_days={"completed": 0}))
    assert Run.objects.get(id=forked.id).status == Status.TAMPERED
    assert not TaskResult.objects.filter(run=origin, line__in=LEFT_LINES).exists()


def test_an_origin_stays_locked_until_what_is_left_with_it_is_there(
    origin: Run, people: cast.People
) -> None:
    forked = fork(f"{origin.key}:step-1", people)
    with counted() as sent:
        removed(forked)
    locking = [text for text in sent if text.endswith("FOR NO KEY UPDATE")]
    # On SQLite each transaction that writes has the database for itself.
    assert len(locking) == (connection.vendor == "postgresql")
    assert verify_run(origin.id) == []
