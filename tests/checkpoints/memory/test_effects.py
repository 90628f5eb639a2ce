"""Memory and effects: what a node did is never done again because memory changed."""

from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.memory import landings
from checkpoints.models import MemoryRecord, MemoryTrace, Run, TaskResult
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from orchestrator.engine import Task
from orchestrator.engine.graphs.trace import Landing
from tests.support.memory_graphs import (
    chain,
    forget,
    gone,
    landed,
    lose_the_lease,
    memory,
    remember,
    side_by_side,
)
from tests.support.run_actions import event_payloads
from tests.support.small_graphs import held, started

pytestmark = pytest.mark.django_db(transaction=True)
EXTERNAL = {"effect": "external"}


def test_memory_of_an_effect_is_recorded_with_its_result_and_lands_without_a_second_call() -> (
    None
):
    calls: list[str] = []

    def pay(state: Any, ctx: Any) -> None:
        calls.append("paid")
        ctx.memory.put("invoice", "paid", "facts")

    def beside(state: Any, ctx: Any) -> None:
        if (
            not TaskResult.objects.filter(run=ctx.run_id, outcome="done").exists()
            and not calls[1:]
        ):
            while not TaskResult.objects.filter(
                run=ctx.run_id, outcome="done"
            ).exists():
                pass
            lose_the_lease(ctx)

    run = gone(side_by_side("pays", pay, beside, options=[EXTERNAL]))
    assert run.status == Status.COMPLETED
    assert calls == ["paid"]
    assert memory() == {"facts/invoice": "paid"}
    assert landed(run) == [("pay:1:0", 0, "invoice", 1)]
    recorded = read_value(TaskResult.objects.get(run=run), "output")["writes"]
    assert [write["channel"] for write in recorded] == ["$memory:facts/invoice"]


@pytest.mark.parametrize(
    "options",
    [EXTERNAL, {"effect": "external", "idempotent": True}, {"effect": "write"}],
)
def test_what_an_effect_wishes_lands_on_what_is_there_and_says_what_it_overtook(
    options: dict[str, Any],
) -> None:
    remember("invoice", "open")
    calls: list[str] = []

    def pay(state: Any, ctx: Any) -> None:
        calls.append(ctx.memory.get("invoice", "facts").content)
        remember("invoice", "overdue")
        ctx.memory.put("invoice", "paid", "facts")

    run = gone(chain("pays-late", pay, options=[options]))
    assert run.status == Status.COMPLETED
    assert calls == ["open"]
    assert memory() == {"facts/invoice": "paid"}
    (line,) = event_payloads(run, "memory_written")
    assert line["version"] == 3
    assert line["made_on"] == 1


def test_an_effect_that_forgets_what_somebody_else_forgot_before_lands_nothing() -> (
    None
):
    remember("invoice", "open")

    def pay(state: Any, ctx: Any) -> None:
        ctx.memory.delete("invoice", "facts")
        forget("invoice")

    run = gone(chain("forgets-late", pay, options=[EXTERNAL]))
    assert run.status == Status.COMPLETED
    assert memory() == {}
    assert MemoryTrace.objects.get(key="invoice").version == 2


def test_an_atomic_node_reads_and_remembers_with_its_transaction() -> None:
    remember("count", 1)

    def add(state: Any, ctx: Any) -> None:
        ctx.memory.put("count", ctx.memory.get("count", "facts").content + 1, "facts")

    for mode in ("live", "snapshot", "journaled"):
        options = [{"effect": "write", "atomic": True}]
        assert (
            gone(chain(f"atomic-{mode}", add, options=options, memory=mode)).status
            == Status.COMPLETED
        )
    assert memory() == {"facts/count": 4}


def test_an_unknown_effect_that_a_person_settles_remembers_nothing() -> None:
    def pay(state: Any, ctx: Any) -> None:
        ctx.memory.put("invoice", "paid", "facts")
        raise RuntimeError("the line was cut")

    run = gone(chain("unknown", pay, options=[EXTERNAL]))
    assert run.status == Status.UNKNOWN
    runs.settle(run.id, "pay:1:0", happened=True, by=None, reason="looked")
    assert runs.advance(run.id).status == Status.COMPLETED
    assert memory() == {}


def test_each_landing_is_unique_on_task_and_number_so_recovery_cannot_land_it_twice() -> (
    None
):
    def idle(state: Any, ctx: Any) -> None:
        pass

    lease = held(started(chain("twice", idle)))
    wish = Landing(
        Task("idle", 1), 0, "facts", "sky", {"content": "blue", "strength": 1.0}
    )

    def land() -> None:
        with transaction.atomic():
            landings.prepare_landings([wish], journaled=lambda task: False).insert(
                lease, landings.Commit(1, 1, timezone.now())
            )

    land()
    with pytest.raises(IntegrityError):
        land()
    assert MemoryTrace.objects.get(key="sky").version == 1


def test_a_secret_is_masked_in_what_is_remembered_and_in_what_is_kept_of_a_search(
    configure: Any,
) -> None:
    configure(SECRETS={"token": "hush-hush"})

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "the token is hush-hush", "facts")
        ctx.memory.search("hush-hush", "facts")

    for mode in ("live", "snapshot", "journaled"):
        run = gone(chain(f"secret-{mode}", put, memory=mode))
        kept = [
            read_value(row, "asked") for row in MemoryRecord.objects.filter(run=run)
        ]
        assert memory()["facts/sky"] == "the token is •••"
        assert kept[0][1] == "•••"
    assert "hush" not in MemoryTrace.objects.get(key="sky").text


def _record_texts(run: Run) -> list[str]:
    """All that is kept of what the tasks of a run read and wished, as text."""
    texts: list[str] = []
    for row in MemoryRecord.objects.filter(run=run).order_by("n"):
        texts.append(str([read_value(row, "asked"), read_value(row, "found")]))
    return texts


def test_a_secret_is_masked_in_the_journal_of_wishes(configure: Any) -> None:
    configure(SECRETS={"token": "hush-hush"})

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", {"hush-hush": ["the token is hush-hush"]}, "facts")

    run = gone(chain("secret-journal", put, memory="journaled"))
    assert "•••" in _record_texts(run)[0]
    assert "hush" not in str(_record_texts(run))
    assert memory() == {"facts/sky": {"•••": ["the token is •••"]}}


@pytest.mark.parametrize("mode", ["snapshot", "journaled"])
def test_a_secret_that_memory_held_before_is_masked_in_the_record_and_for_the_node(
    configure: Any, mode: str
) -> None:
    remember("sky", "the token is hush-hush")
    configure(SECRETS={"token": "hush-hush"})
    seen: list[Any] = []

    def read(state: Any, ctx: Any) -> None:
        seen.append(ctx.memory.get("sky", "facts").content)
        if len(seen) == 1:
            lose_the_lease(ctx)

    run = gone(chain("secret-before", read, memory=mode))
    assert "hush" not in str(_record_texts(run))
    assert seen == ["the token is •••"] * 2


def test_a_key_that_holds_a_secret_is_refused(configure: Any) -> None:
    configure(SECRETS={"token": "hush-hush"})

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("of hush-hush", 1, "facts")

    run = gone(chain("secret-key", put))
    assert run.status == Status.FAILED
    assert memory() == {}


def test_a_value_over_the_limit_is_refused_and_nothing_is_remembered(
    configure: Any,
) -> None:
    configure(MAX_VALUE_BYTES=2000)

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "x" * 3000, "facts")

    run = gone(chain("too-large", put))
    assert run.status == Status.FAILED
    assert memory() == {}


@pytest.mark.parametrize("mode", ["live", "snapshot", "journaled"])
def test_what_an_atomic_node_wished_in_a_try_that_was_rolled_back_does_not_land(
    mode: str,
) -> None:
    tries: list[int] = []

    def add(state: Any, ctx: Any) -> None:
        tries.append(len(tries) + 1)
        ctx.memory.get("total", "facts")
        ctx.memory.put(f"try-{len(tries)}", "there", "facts")
        if len(tries) == 1:
            raise OperationalError("deadlock detected")

    options = [{"effect": "write", "atomic": True}]
    assert (
        gone(chain(f"rolled-back-{mode}", add, options=options, memory=mode)).status
        == Status.COMPLETED
    )
    assert tries == [1, 2]
    assert memory() == {"facts/try-2": "there"}
