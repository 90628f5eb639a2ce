"""Memory and effects: what a node did is never done again because memory changed."""

from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, transaction
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.memory import landings
from checkpoints.models import MemoryRecord, MemoryTrace, TaskResult
from checkpoints.sealing.sealed_columns import read_value
from orchestrator import runs
from orchestrator.engine import Task
from orchestrator.engine.trace import Landing
from tests.support.memory_graphs import chain, forget, gone, landed, lose_the_lease, memory, remember, side_by_side
from tests.support.run_actions import event_payloads
from tests.support.small_graphs import held, started

pytestmark = pytest.mark.django_db(transaction=True)
EXTERNAL = {"effect": "external"}


def test_what_an_effect_wishes_to_remember_is_recorded_with_its_result_and_lands_without_a_second_call() -> None:
    calls: list[str] = []

    def pay(state: Any, ctx: Any) -> None:
        calls.append("paid")
        ctx.memory.put("invoice", "paid", "facts")

    def beside(state: Any, ctx: Any) -> None:
        if not TaskResult.objects.filter(run=ctx.run_id, outcome="done").exists() and not calls[1:]:
            while not TaskResult.objects.filter(run=ctx.run_id, outcome="done").exists():
                pass
            lose_the_lease(ctx)

    run = gone(side_by_side("pays", pay, beside, options=[EXTERNAL]))
    assert (run.status, calls, memory()) == (Status.COMPLETED, ["paid"], {"facts/invoice": "paid"})
    assert landed(run) == [("pay:1:0", 0, "invoice", 1)]
    recorded = read_value(TaskResult.objects.get(run=run), "output")["writes"]
    assert [write["channel"] for write in recorded] == ["$memory:facts/invoice"]


@pytest.mark.parametrize("options", [EXTERNAL, {"effect": "external", "idempotent": True}, {"effect": "write"}])
def test_what_an_effect_wishes_lands_on_what_is_there_and_says_what_it_overtook(options: dict[str, Any]) -> None:
    remember("invoice", "open")
    calls: list[str] = []

    def pay(state: Any, ctx: Any) -> None:
        calls.append(ctx.memory.get("invoice", "facts").content)
        remember("invoice", "overdue")
        ctx.memory.put("invoice", "paid", "facts")

    run = gone(chain("pays-late", pay, options=[options]))
    assert (run.status, calls, memory()) == (Status.COMPLETED, ["open"], {"facts/invoice": "paid"})
    (line,) = event_payloads(run, "memory_written")
    assert (line["version"], line["made_on"]) == (3, 1)


def test_an_effect_that_forgets_what_somebody_else_forgot_before_lands_nothing() -> None:
    remember("invoice", "open")

    def pay(state: Any, ctx: Any) -> None:
        ctx.memory.delete("invoice", "facts")
        forget("invoice")

    run = gone(chain("forgets-late", pay, options=[EXTERNAL]))
    assert (run.status, memory()) == (Status.COMPLETED, {})
    assert MemoryTrace.objects.get(key="invoice").version == 2


def test_an_atomic_node_reads_and_remembers_with_its_transaction() -> None:
    remember("count", 1)

    def add(state: Any, ctx: Any) -> None:
        ctx.memory.put("count", ctx.memory.get("count", "facts").content + 1, "facts")

    for mode in ("live", "snapshot", "journaled"):
        options = [{"effect": "write", "atomic": True}]
        assert gone(chain(f"atomic-{mode}", add, options=options, memory=mode)).status == Status.COMPLETED
    assert memory() == {"facts/count": 4}


def test_an_unknown_effect_that_a_person_settles_remembers_nothing() -> None:
    def pay(state: Any, ctx: Any) -> None:
        ctx.memory.put("invoice", "paid", "facts")
        raise RuntimeError("the line was cut")

    run = gone(chain("unknown", pay, options=[EXTERNAL]))
    assert run.status == Status.UNKNOWN
    runs.settle(run.id, "pay:1:0", happened=True, by=None, reason="looked")
    assert (runs.advance(run.id).status, memory()) == (Status.COMPLETED, {})


def test_each_landing_is_unique_on_task_and_number_so_recovery_cannot_land_it_twice() -> None:
    def idle(state: Any, ctx: Any) -> None:
        pass

    lease = held(started(chain("twice", idle)))
    wish = Landing(Task("idle", 1), 0, "facts", "sky", {"content": "blue", "strength": 1.0})

    def land() -> None:
        with transaction.atomic():
            landings.prepare_landings([wish], journaled=lambda task: False).insert(
                lease, landings.Commit(1, 1, timezone.now())
            )

    land()
    with pytest.raises(IntegrityError):
        land()
    assert MemoryTrace.objects.get(key="sky").version == 1


def test_a_secret_is_masked_in_what_is_remembered_and_in_what_is_kept_of_a_search(configure: Any) -> None:
    configure(SECRETS={"token": "hush-hush"})

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "the token is hush-hush", "facts")
        ctx.memory.search("hush-hush", "facts")

    for mode in ("live", "snapshot"):
        run = gone(chain(f"secret-{mode}", put, memory=mode))
        kept = [read_value(row, "asked") for row in MemoryRecord.objects.filter(run=run)]
        assert (memory()["facts/sky"], kept[0][1]) == ("the token is •••", "•••")
    assert "hush" not in MemoryTrace.objects.get(key="sky").text


def test_a_key_that_holds_a_secret_is_refused(configure: Any) -> None:
    configure(SECRETS={"token": "hush-hush"})

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("of hush-hush", 1, "facts")

    run = gone(chain("secret-key", put))
    assert (run.status, memory()) == (Status.FAILED, {})


def test_a_value_over_the_limit_is_refused_and_nothing_is_remembered(configure: Any) -> None:
    configure(MAX_VALUE_BYTES=2000)

    def put(state: Any, ctx: Any) -> None:
        ctx.memory.put("sky", "x" * 3000, "facts")

    run = gone(chain("too-large", put))
    assert (run.status, memory()) == (Status.FAILED, {})


@pytest.mark.parametrize("mode", ["live", "snapshot", "journaled"])
def test_what_an_atomic_node_wished_in_a_try_that_was_rolled_back_does_not_land(mode: str) -> None:
    tries: list[int] = []

    def add(state: Any, ctx: Any) -> None:
        tries.append(len(tries) + 1)
        ctx.memory.get("total", "facts")
        ctx.memory.put(f"try-{len(tries)}", "there", "facts")
        if len(tries) == 1:
            raise OperationalError("deadlock detected")

    options = [{"effect": "write", "atomic": True}]
    assert gone(chain(f"rolled-back-{mode}", add, options=options, memory=mode)).status == Status.COMPLETED
    assert (tries, memory()) == ([1, 2], {"facts/try-2": "there"})
