"""The plan of going on from a point: what it says of loops, open supersteps and
versions.
"""

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from bench.counting import fetched
from checkpoints import lines, timeline
from checkpoints.core.status import Status
from checkpoints.models import Run, TaskResult
from checkpoints.timeline.past_effects import MEMORY, Effect
from orchestrator import runs
from orchestrator.engine import END, START, Gate, NotDone, Task, Write
from orchestrator.engine.errors import TamperedRow
from orchestrator.travel.departure import load_departure
from orchestrator.travel.plan import repeated_effects
from orchestrator.views.go_on.draft import draft_of
from tests.support import cast, run_actions
from tests.support.api_people import Client
from tests.support.paid_claims import PAID, claim, paid
from tests.support.small_graphs import advanced, graph, registered
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)
DOWN = False
"""Whether the bank of `retried` is closed."""


def test_what_a_router_decides_may_run(people: cast.People) -> None:
    flow = graph("routed")
    for name in "abc":
        flow.node(name)(lambda state, ctx: None)
    flow.edge(START, "a")
    flow.branch("a", lambda state: "b", {"b": "b", "c": "c"})
    flow.edge("b", END)
    flow.edge("c", END)
    run = advanced(flow)
    plan = runs.plan(f"{run.key}:initial")
    assert [task.node for task in plan.runs] == ["a"]
    assert [task.node for task in plan.may_run] == ["b", "c"]


def test_visits_are_counted_on_from_the_point(people: cast.People) -> None:
    flow = graph("looped")
    flow.node("a")(lambda state, ctx: {"total": state.total + 1})
    flow.edge(START, "a")
    flow.branch(
        "a",
        lambda state: "again" if state.total < 4 else "end",
        {"again": "a", "end": END},
    )
    run = advanced(flow)
    assert runs.plan(f"{run.key}:step-2").runs == (Task("a", 3, 0),)


def test_memory_that_landed_would_be_written_again(people: cast.People) -> None:
    flow = graph("landed")

    def keep(state: object, ctx: object) -> None:
        ctx.memory.put("k", "v", "space")  # type: ignore[attr-defined]

    flow.node("keep")(keep)
    flow.edge(START, "keep")
    flow.edge("keep", END)
    run = advanced(flow)
    assert run.status == Status.COMPLETED
    plan = runs.plan(f"{run.key}:initial")
    assert plan.effects_again == (Task("keep", 1, 0),)
    assert plan.notes["effects_again"] == {"keep:1:0": "memory"}


def test_a_call_that_stays_done_hides_no_landing_of_its_task() -> None:
    """What the task returned lands again, though the task itself does not run."""
    task = Task("pay", 1, 0)
    both = [Effect(task, "external", certain=True), Effect(task, MEMORY, certain=True)]
    again = repeated_effects(both, set(), {"pay"}, certain=True)
    assert again == {task: "memory"}


def test_what_another_fork_of_the_same_point_has_done_would_happen_again(
    people: cast.People,
) -> None:
    registered(claim("siblings"))
    run = runs.advance(runs.start("siblings", {}, key="siblings").id)
    PAID.clear()
    rita = run_actions.reviewer(people.reviewer)

    def forked(checkpoint: str) -> Run:
        return runs.advance(
            runs.fork(checkpoint, answers={"ask": {"total": 10}}, by=rita).id
        )

    assert not runs.plan(f"{run.key}:at-2").effects_again
    first = forked(f"{run.key}:at-2")
    assert first.status == Status.COMPLETED
    assert len(PAID) == 1
    second = forked(f"{run.key}:at-2")
    assert second.status == Status.PAUSED
    assert second.at_node == "pay"
    assert len(PAID) == 1
    # Whoever goes back in the origin itself, or in a fork of a fork, is told as well.
    assert runs.plan(f"{run.key}:at-2", "rewind").needs_yes == ["pay"]
    below = runs.fork(f"{second.key}:initial", by=people.starter)
    assert runs.plan(f"{below.key}:initial").needs_yes == ["pay"]


def test_what_another_fork_has_done_is_not_told_where_the_way_is_past_it(
    people: cast.People,
) -> None:
    run = paid("past_it", people)
    early = runs.fork(
        f"{run.key}:at-2",
        answers={"ask": {"total": 10}},
        allow_effects=["pay"],
        by=people.reviewer,
    )
    assert runs.advance(early.id).status == Status.COMPLETED
    assert len(PAID) == 2
    last = max(run.checkpoints.values_list("seq", flat=True))
    assert not runs.plan(f"{run.key}:at-{last}").effects_again
    assert [
        task.node for task in runs.plan(f"{run.key}:at-{last - 1}").effects_again
    ] == ["pay"]


def test_what_a_fork_of_a_replay_has_done_would_happen_again(
    people: cast.People,
) -> None:
    registered(claim("below_a_replay"))
    run = runs.advance(runs.start("below_a_replay", {}, key="below").id)
    PAID.clear()
    rita = run_actions.reviewer(people.reviewer)
    replay = runs.replay(f"{run.key}:step-1")
    fork = runs.fork(f"{replay.key}:initial", by=people.starter)
    new_run = runs.advance(fork.id)
    run_actions.sign(new_run, rita, ["approve"])
    assert runs.advance(new_run.id).status == Status.COMPLETED
    assert len(PAID) == 1
    assert runs.plan(f"{run.key}:at-2").needs_yes == ["pay"]
    other = runs.advance(
        runs.fork(f"{run.key}:at-2", answers={"ask": {"total": 10}}, by=rita).id
    )
    assert other.status == Status.PAUSED
    assert other.at_node == "pay"
    assert len(PAID) == 1


def retried(name: str) -> None:
    """pay (external) --error--> fix -> pay; what it does is kept in PAID unless the
    bank is down.
    """
    flow = graph(name)

    def pay(state: Any, ctx: Any) -> None:
        if DOWN:
            raise NotDone("the bank is closed")
        PAID.append(str(ctx.idempotency_key))

    flow.node("pay", effect="external")(pay)
    flow.node("fix", effect="human", gate=Gate(reviewers=["group:claims"]))(
        lambda state, ctx: [Write("letter", "x")]
    )
    flow.edge(START, "pay")
    flow.edge("pay", END)
    flow.edge("pay", "fix", when="error")
    flow.edge("fix", "pay", when=("approved", "partial"))
    registered(flow)


def test_a_visit_that_the_way_used_up_without_the_effect_does_not_hide_that_another_fork_had_it(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    retried("used_up")
    monkeypatch.setitem(globals(), "DOWN", True)
    run = runs.advance(runs.start("used_up", {}, key="used_up").id)
    monkeypatch.setitem(globals(), "DOWN", False)
    PAID.clear()
    assert run.status == Status.PAUSED
    assert not runs.plan(f"{run.key}:initial").effects_again, (
        "it is proven that nothing happened"
    )
    assert runs.advance(runs.fork(f"{run.key}:initial").id).status == Status.COMPLETED
    plan = runs.plan(run.head or "")
    assert plan.effects_again == (Task("pay", 1, 0),)
    assert plan.needs_yes == ["pay"]
    assert len(PAID) == 1


def test_what_a_fork_cannot_prove_not_to_have_done_may_have_happened_and_marks_no_other_run(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    retried("unproven")
    monkeypatch.setitem(globals(), "DOWN", True)
    run = runs.advance(runs.start("unproven", {}, key="unproven").id)
    below = runs.advance(runs.fork(f"{run.key}:initial").id)
    assert not runs.plan(f"{run.key}:initial").may_have_happened
    TaskResult.objects.filter(run=below.id).update(took_ms=12345)
    plan = runs.plan(f"{run.key}:initial")
    assert plan.may_have_happened == (Task("pay", 1, 0),)
    assert plan.needs_yes == ["pay"]
    rewound = runs.rewind(run.id, f"{run.key}:initial")
    assert rewound.status == Status.QUEUED
    assert runs.get(below.id).status == Status.PAUSED
    TaskResult.objects.filter(run=run.id).update(took_ms=12345)
    with pytest.raises(TamperedRow):
        runs.plan(f"{run.key}:initial")


def test_the_effects_of_many_forks_that_ran_are_as_many_statements_and_rows_as_those_of_one(
    people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = paid("many_forks", people)
    monkeypatch.setattr(lines, "AT_ONCE", 1000)
    collected = []
    read = []
    for _ in range(2):
        for _ in range(3):
            arguments = {
                "answers": {"ask": {"total": 10}},
                "allow_effects": ["pay"],
                "by": people.reviewer,
            }
            assert (
                runs.advance(runs.fork(f"{run.key}:at-2", **arguments).id).status
                == Status.COMPLETED
            )
        with counted() as statements, fetched.counting() as all_of_it:
            collected.append(runs.plan(f"{run.key}:at-2").effects_again)
        read.append((len(statements), all_of_it.bytes))
    (few, little), (many, much) = read
    assert many == few
    assert much - little <= 3 * 32, "no more than the ids of the forks"
    monkeypatch.setattr(lines, "AT_ONCE", 2)
    assert [*collected, runs.plan(f"{run.key}:at-2").effects_again] == [
        (Task("pay", 1, 0),)
    ] * 3


def test_what_an_idempotent_node_says_did_not_happen_stops_no_fork(
    people: cast.People,
) -> None:
    flow = graph("idempotent_not_done")

    def pay(state: object, ctx: object) -> None:
        raise NotDone("the bank is closed")

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.edge(START, "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    assert run.status == Status.FAILED
    assert TaskResult.objects.get(run=run).outcome == "not_done"
    plan = runs.plan(f"{run.key}:initial")
    assert plan.may_have_happened == ()
    assert plan.effects_again == ()
    assert plan.needs_yes == []
    assert (
        runs.advance(runs.fork(f"{run.key}:initial", by=people.starter).id).status
        == Status.FAILED
    )


def test_an_error_of_an_idempotent_node_that_says_nothing_may_have_acted(
    people: cast.People,
) -> None:
    flow = graph("idempotent_broken")

    def pay(state: object, ctx: object) -> None:
        raise ValueError

    flow.node("pay", effect="external", idempotent=True)(pay)
    flow.edge(START, "pay")
    flow.edge("pay", END)
    run = advanced(flow)
    assert runs.plan(f"{run.key}:initial").may_have_happened == (Task("pay", 1, 0),)


def test_the_plan_of_a_replay_runs_no_effect_and_reuses_what_was_recorded(
    people: cast.People,
) -> None:
    run = paid("planned_replay", people)
    plan = runs.plan(f"{run.key}:initial", "replay")
    assert [task.node for task in plan.reused] == ["ask", "pay"]
    assert [task.node for task in plan.runs] == ["first"]
    assert [task.node for task in plan.may_run] == ["refuse"]
    assert plan.notes["reused"]["pay:1:0"].startswith("its recorded outcome is taken")
    assert plan.effects_again == ()
    assert plan.may_have_happened == ()
    assert plan.asks == ()


def test_the_plan_of_a_replay_reuses_the_answer_to_what_waits_at_its_point(
    people: cast.People,
) -> None:
    run = paid("planned_waiting", people)
    plan = runs.plan(f"{run.key}:at-2", "replay")
    assert [task.node for task in plan.reused] == ["ask", "pay"]


@pytest.mark.parametrize("how", ["replay", "fork", "rewind"])
def test_the_plan_is_one_and_the_same_on_the_page_in_the_api_by_command_and_in_python(
    people: cast.People, how: str
) -> None:
    run = paid("one_plan", people)
    client = Client(people.starter)
    for row in timeline.list_checkpoints(run.id):
        plan = runs.plan(row.id, how)
        assert (
            draft_of(load_departure(row.id), people.starter, {}, how=how).plan == plan
        )
        assert (
            client.post(f"checkpoints/{row.id}/plan/", {"how": how}).json()
            == plan.to_json()
        )
        out = StringIO()
        call_command(
            f"{how}_run",
            *([run.key] if how == "rewind" else []),
            str(row.id),
            "--plan",
            "--json",
            stdout=out,
        )
        assert json.loads(out.getvalue()) == plan.to_json()


def test_the_plan_of_a_replay_runs_nothing_that_acts_or_asks_from_any_point(
    people: cast.People,
) -> None:
    run = paid("acts_nowhere", people)
    for row in timeline.list_checkpoints(run.id):
        plan = runs.plan(row.id, "replay")
        assert not {task.node for task in (*plan.runs, *plan.may_run)} & {"ask", "pay"}
        assert plan.effects_again == ()
        assert plan.may_have_happened == ()
        assert plan.asks == ()
        assert plan.stops == ()
        replay = runs.advance(runs.replay(row.id).id)
        report = runs.replay_report(replay.id)
        assert {*report["reused"]} <= {str(task) for task in plan.reused}
        assert replay.status == Status.COMPLETED
        assert len(PAID) == 1
