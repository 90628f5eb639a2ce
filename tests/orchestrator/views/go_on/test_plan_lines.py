"""A plan in words: once over each group what all of its lines share, and one word for
each node.
"""

from typing import Any
from uuid import uuid4

from checkpoints.models.run_line import Travel
from orchestrator.engine import Task
from orchestrator.engine.graphs.compile import compile
from orchestrator.engine.step.held_patch import PATCH
from orchestrator.travel.departure import HeldTask
from orchestrator.travel.plan import Plan
from orchestrator.views.go_on.plan_lines import PlanSummary, plan_summary
from tests.support.paid_claims import claim

GRAPH = compile(claim("planned", quorum=2))


def tasks(*names: str) -> tuple[Task, ...]:
    return tuple(Task(name, 1, 0) for name in names)


def summary(
    *, asked: Any = (), visited: Any = (), how: Travel = Travel.FORK, **lists: Any
) -> PlanSummary:
    plan = Plan(str(how), uuid4(), **lists)
    return plan_summary(GRAPH, plan, held=asked, visited=visited, ran=())


def headings(plan: PlanSummary) -> list[str]:
    return [
        " ".join(filter(None, (group.heading, group.node, group.verb)))
        for group in plan.groups
    ]


def words(plan: PlanSummary) -> dict[str, str]:
    return {line.node: line.word for group in plan.groups for line in group.lines}


def test_what_depends_on_a_decision_stands_once_under_who_decides() -> None:
    plan = summary(
        runs=tasks("first", "ask"), may_run=tasks("pay", "refuse"), asks=tasks("ask")
    )
    assert headings(plan) == [
        "Runs in the fork",
        "May run, depending on what ask decides",
    ]
    assert [line.node for line in plan.groups[1].lines] == ["pay", "refuse"]
    assert not any(
        "May run" in line.remark for group in plan.groups for line in group.lines
    )


def test_what_waited_at_the_point_is_asked_first_and_decides_the_rest() -> None:
    (ask,) = tasks("ask")
    held = HeldTask(ask, (), "ask")
    notes = {"asks": {"ask:1:0": "its proposal waits for group:claims, 2 of them"}}
    plan = summary(
        may_run=tasks("pay", "refuse"),
        asks=(ask,),
        asked=[held],
        visited=["first", "ask"],
        notes=notes,
    )
    assert headings(plan)[:2] == ["Kept from before", "Runs in the fork"]
    assert plan.groups[1].lines[0].remark == "2 of claims must sign what it proposed."
    assert headings(plan)[2] == "May run, depending on what ask decides"


def test_nothing_runs_before_a_patch_is_signed_and_who_signs_is_named() -> None:
    notes = {
        "asks": {f"{PATCH}:1:0": "the patch waits for group:claims_leads, user:rita"}
    }
    plan = summary(
        may_run=tasks("pay"),
        asks=tasks(PATCH),
        guarded={"total": "ask"},
        visited=["first", "ask"],
        notes=notes,
    )
    assert headings(plan)[1:3] == ["Runs in the fork", "Only once the patch is signed"]
    (line,) = plan.groups[1].lines
    assert line.node == "the patch"
    assert line.word == "asks people"
    assert line.remark == "Claims leads or rita must sign the patch."


def test_what_only_a_yes_is_missing_for_is_not_called_uncertain() -> None:
    plan = summary(
        may_run=tasks("pay"),
        effects_again=tasks("pay"),
        stops=("pay",),
        visited=["first", "ask"],
    )
    assert headings(plan) == [
        "Kept from before",
        "Runs in the fork",
        "Not reached from here",
    ]
    assert words(plan)["pay"] == "stops before"
    assert plan.stops == 1


def test_what_is_behind_a_stop_stands_under_the_yes_that_is_missing() -> None:
    plan = summary(
        may_run=tasks("pay", "refuse"), stops=("pay",), effects_again=tasks("pay")
    )
    assert headings(plan) == [
        "Runs in the fork",
        "Only once you allow pay",
        "Not reached from here",
    ]


def test_people_whom_only_a_function_knows_are_the_reviewers() -> None:
    notes = {
        "asks": {f"{PATCH}:1:0": "the patch waits for the people of the gate of ask"}
    }
    plan = summary(
        may_run=tasks("pay"), asks=tasks(PATCH), guarded={"total": "ask"}, notes=notes
    )
    assert plan.groups[0].lines[0].remark == "The reviewers must sign the patch."


def test_what_a_replay_takes_as_recorded_stands_where_it_comes_to_it_with_the_reason() -> (
    None
):
    notes = {"reused": {"ask:1:0": "its recorded outcome is taken"}}
    plan = summary(
        how=Travel.REPLAY,
        runs=tasks("first"),
        reused=tasks("ask", "pay"),
        may_run=tasks("refuse"),
        notes=notes,
    )
    assert headings(plan) == [
        "Runs in the replay",
        "May run, where the recorded outcomes lead",
    ]
    lines = plan.groups[0].lines
    assert [(line.node, line.word) for line in lines] == [
        ("first", "runs"),
        ("ask", "reused"),
        ("pay", "reused"),
    ]
    assert lines[1].remark == "Its recorded outcome is taken."
