"""The lines that say which attempts began: how many there are, and that whoever reads
them finds every task.
"""

from typing import Any

import pytest

from checkpoints.core.status import Status
from checkpoints.journal import intents as intent_log
from checkpoints.journal.intents import Intent
from checkpoints.models import RunEvent
from orchestrator import runs
from orchestrator.engine import END, START, Send, Task
from tests.support.small_graphs import advanced, graph


def intent(
    index: int,
    *,
    node: str = "leaf",
    visit: int = 1,
    attempt: int = 1,
    effect: str = "write",
) -> Intent:
    return Intent(Task(node, visit, index), attempt, effect, "hash", 60.0)


def content(intents: list[Intent]) -> list[tuple[str, str, int, str]]:
    return [
        (line.task, line.node, line.payload["attempt"], line.payload["effect"])
        for line in intent_log.intent_events(intents)
    ]


def test_a_task_alone_is_named_as_it_is() -> None:
    assert content([intent(7)]) == [("leaf:1:7", "leaf", 1, "write")]


def test_a_fan_out_is_one_line() -> None:
    assert content([intent(n) for n in range(100)]) == [
        ("leaf:1:0-99", "leaf", 1, "write")
    ]


def test_what_differs_in_anything_or_leaves_one_out_is_another_line() -> None:
    some = [
        intent(0),
        intent(1),
        intent(3),
        intent(4, attempt=2),
        intent(5),
        intent(6, effect="external"),
        intent(7, visit=2),
        intent(8, visit=2),
        intent(9, node="other", visit=2),
        intent(3),
    ]
    assert [task for task, *_ in content(some)] == [
        "leaf:1:0-1",
        "leaf:1:3",
        "leaf:1:4",
        "leaf:1:5",
        "leaf:1:6",
        "leaf:2:7-8",
        "other:2:9",
        "leaf:1:3",
    ]
    assert [
        task for line in content(some) for task in intent_log.tasks_of(line[0])
    ] == [one.task for one in some]


@pytest.mark.parametrize("node", ["leaf", "a-b", "2-3", "x_y"])
def test_a_line_is_read_as_it_was_written(node: str) -> None:
    for count in (1, 2, 12):
        (line,) = intent_log.intent_events(
            [intent(n, node=node) for n in range(5, 5 + count)]
        )
        assert intent_log.tasks_of(line.task) == [
            Task(node, 1, n) for n in range(5, 5 + count)
        ]


@pytest.mark.parametrize(
    "content",
    ["", "leaf", "leaf:1:", "leaf:1:0-", "leaf:1:-3", "leaf:1:0-b", "leaf:1:7-3"],
)
def test_what_names_no_task_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="names no task|invalid literal"):
        intent_log.tasks_of(content)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("content", ["leaf:1:2-0", "leaf:1:0-2-", "leaf"])
def test_a_run_whose_log_does_not_say_what_began_is_tampered(content: str) -> None:
    def leaf(state: Any, ctx: Any) -> None:
        raise OSError("lost")

    flow = graph("began")
    flow.node("split", sends=["leaf"])(
        lambda state, ctx: [Send("leaf", n) for n in range(3)]
    )
    flow.node("leaf", effect="external", not_done=(OSError,))(leaf)
    flow.edge(START, "split")
    flow.edge("leaf", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    assert (
        RunEvent.objects.filter(run=run, type="effects_started").update(task=content)
        == 1
    )
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.TAMPERED


@pytest.mark.django_db(transaction=True)
def test_a_line_is_not_expanded_before_its_seal_is_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def leaf(state: Any, ctx: Any) -> None:
        raise OSError("lost")

    flow = graph("expanded")
    flow.node("leaf", effect="external", not_done=(OSError,))(leaf)
    flow.edge(START, "leaf")
    flow.edge("leaf", END)
    run = advanced(flow)
    planted = "leaf:1:0-99999999999"
    RunEvent.objects.filter(run=run, type="effects_started").update(task=planted)
    plain = intent_log.tasks_of

    def watched(content: str) -> list[Task]:
        assert content != planted
        return plain(content)

    monkeypatch.setattr(intent_log, "tasks_of", watched)
    runs.resume(run.id)
    assert runs.advance(run.id).status == Status.TAMPERED
