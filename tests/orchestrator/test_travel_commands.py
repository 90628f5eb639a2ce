"""Going back in time from the command line: plans that change nothing, forks, rewinds,
resumes with a patch, many.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError

from checkpoints.models import Job, Run, RunLine
from orchestrator import runs
from tests.support import api_graphs as graphs
from tests.support import run_actions
from tests.support.cast import People
from tests.support.command_output import call, call_json
from tests.support.paid_claims import paid

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Any], str]:
    def written(content: Any) -> str:
        path = tmp_path / "given.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    return written


@pytest.fixture
def origin(people: People) -> Run:
    return paid("traveller", people)


def test_a_plan_is_printed_and_changes_nothing(
    origin: Run, file: Callable[[Any], str]
) -> None:
    before = (Run.objects.count(), RunLine.objects.count())
    patch = file({"scratch": {"total": 3}})
    text = call("fork_run", f"{origin.key}:step-1", "--patch", patch, "--plan")
    assert "Happened already, and would happen again:\n  pay:1:0" in text
    assert "Needs signatures before anything runs:\n  total" in text
    assert "Stops before pay without a yes for each" in text
    for args in (
        ("fork_run", f"{origin.key}:step-1", "--allow", "pay"),
        ("rewind_run", str(origin.id), f"{origin.key}:step-1", "--allow", "pay"),
        ("resume_run", str(origin.id)),
    ):
        assert call_json(*args, "--plan")["needs_yes"] == [], args
    assert (Run.objects.count(), RunLine.objects.count()) == before


def test_a_fork_is_made_with_patch_key_and_reason_by_a_person(
    origin: Run, people: People, file: Callable[[Any], str]
) -> None:
    args = [
        "--patch",
        file({"scratch": {"letter": "dear"}}),
        "--key",
        "again",
        "--reason",
        "wrong letter",
    ]
    made = call_json(
        "fork_run", f"{origin.key}:step-1", *args, "--by", people.starter.username
    )
    assert made["key"] == "again"
    assert made["status"] == "queued"
    assert made["line"] == 1
    assert made["needs_yes"] == ["pay"]
    run = Run.objects.get(key="again")
    assert made["origin_checkpoint"] == str(run.origin_checkpoint)
    assert run.started_by == people.starter
    assert run_actions.state(run)["letter"] == "dear"
    assert (
        call_json("fork_run", f"{origin.key}:step-1", "--paused")["status"] == "paused"
    )
    assert "stops before pay: that has happened before" in call("run_status", "again")


def test_answers_decide_what_waits_and_an_allowed_effect_happens_again(
    origin: Run, people: People, file: Callable[[Any], str]
) -> None:
    answers = file({"ask": {"total": 10}})
    with pytest.raises(CommandError, match="somebody must give them"):
        call("fork_run", f"{origin.key}:at-2", "--answers", answers)
    args = ["--answers", answers, "--allow", "pay", "--by", "rita"]
    with pytest.raises(CommandError, match="lack the right steer_run"):
        call("fork_run", f"{origin.key}:at-2", *args)
    people.reviewer.user_permissions.add(Permission.objects.get(codename="steer_run"))
    made = call_json("fork_run", f"{origin.key}:at-2", *args)
    assert runs.advance(made["id"]).status == "completed"


def test_a_run_is_rewound_and_a_stopped_one_resumed_with_a_yes(
    origin: Run, file: Callable[[Any], str]
) -> None:
    point = f"{origin.key}:at-3"
    facts = call_json("rewind_run", str(origin.id), point, "--reason", "again")
    assert facts["line"] == 2
    assert facts["status"] == "queued"
    assert facts["needs_yes"] == ["pay"]
    assert runs.advance(origin.id).status == "paused"
    assert runs.advance(origin.id).at_node == "pay"
    with pytest.raises(CommandError, match=r"stopped before pay.*\[wrong_status\]"):
        call("resume_run", str(origin.id))
    assert (
        call_json("resume_run", str(origin.id), "--allow", "pay")["status"] == "queued"
    )
    with pytest.raises(CommandError, match="needs a reason"):
        call("rewind_run", str(origin.id), point)


def test_a_replay_is_planned_made_and_reported(origin: Run, people: People) -> None:
    point = f"{origin.key}:initial"
    assert call_json("replay_run", point, "--plan")["how"] == "replay"
    made = call_json(
        "replay_run",
        point,
        "--reason",
        "is it the same?",
        "--by",
        people.starter.username,
    )
    assert runs.advance(Run.objects.get(id=made["id"]).id).status == "completed"
    assert call_json("replay_run", made["key"], "--report")["reused"] == [
        "ask:1:0",
        "pay:1:0",
    ]
    text = call("replay_run", made["key"], "--report")
    assert "Reused: ask:1:0, pay:1:0\nWent another way: nothing" in text
    with pytest.raises(CommandError, match="is no replay"):
        call("replay_run", origin.key, "--report")
    with pytest.raises(CommandError, match="there is no checkpoint"):
        call("replay_run", "nowhere:initial")


def test_a_resume_with_a_patch_begins_a_line(file: Callable[[Any], str]) -> None:
    graphs.register()
    runs.advance(runs.start("gated", {"claim_id": "C"}, key="A").id)
    facts = call_json(
        "resume_run",
        "A",
        "--patch",
        file({"scratch": {"letter": "dear"}}),
        "--reason",
        "wrong",
    )
    assert facts["line"] == 2
    assert facts["status"] == "queued"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"scratch": {"letter": 5}}, 'given: 5; fits: "5"'),
        ({"input": {}}, "a patch may change scratch and artifacts"),
        ({"scratch": {"lettre": "x"}}, "did you mean letter?"),
        ('{"scratch": {"a": 1, "a": 2}}', "cannot read the patch"),
        ("{", "cannot read the patch"),
        ("[]", "is not a JSON object"),
    ],
)
def test_what_does_not_fit_fails_with_one_clear_line(
    origin: Run, file: Callable[[Any], str], content: Any, line: str
) -> None:
    for name, args in (
        ("fork_run", [f"{origin.key}:step-1"]),
        ("rewind_run", [str(origin.id), f"{origin.key}:step-1", "--reason", "r"]),
        ("fork_run", [f"{origin.key}:step-1", "--plan"]),
    ):
        with pytest.raises(CommandError) as failed:
            call(name, *args, "--patch", file(content))
        assert line in str(failed.value)
        assert "\n" not in str(failed.value)
    assert Run.objects.count() == 1


def test_what_there_is_not_is_named(origin: Run, people: People) -> None:
    other = paid("other", people)
    for args, line in (
        (["fork_run", "nowhere:step-1"], "there is no checkpoint"),
        (
            ["fork_run", f"{origin.key}:step-1", "--allow", "nobody"],
            "has no node nobody",
        ),
        (["fork_run", f"{origin.key}:step-1", "--key", origin.key], "key_conflict"),
        (
            ["fork_run", f"{origin.key}:step-1", "--by", "stranger"],
            "no active user stranger",
        ),
        (
            ["rewind_run", "nowhere", f"{origin.key}:step-1", "--reason", "r"],
            "there is no run",
        ),
        (
            ["rewind_run", str(origin.id), f"{other.key}:step-1", "--reason", "r"],
            "no checkpoint of this run",
        ),
        (
            ["rewind_run", str(origin.id), f"{other.key}:step-1", "--plan"],
            "no checkpoint of this run",
        ),
        (["resume_run", str(origin.id), "--allow", "pay"], "needs no yes for pay"),
        (
            ["fork_runs", "--graph", "traveller", "--status", "broken"],
            "status is one of",
        ),
        (["fork_runs"], "say either which checkpoints"),
        (
            ["fork_run", f"{origin.key}:step-1", "--patch", "/nowhere.json"],
            "cannot read the patch",
        ),
    ):
        with pytest.raises(CommandError, match=line):
            call(*args)


def test_many_runs_are_planned_forked_and_the_refused_ones_fail_the_command(
    people: People, file: Callable[[Any], str]
) -> None:
    graphs.register()
    graphs.broken.add("fetch")
    made = [
        runs.advance(runs.start("gated", {"claim_id": "C"}, key=f"C-{n}").id)
        for n in range(3)
    ]
    graphs.broken.clear()
    patch = file({"scratch": {"letter": "dear"}})
    args = ["--graph", "gated", "--patch", patch, "--by", people.starter.username]
    assert "3 runs, such as" in call("fork_runs", *args, "--plan")
    assert call_json("fork_runs", *args, "--plan")["kinds"][0]["count"] == 3
    assert call_json("fork_runs", *args, "--job").keys() == {"job"}
    Job.objects.all().delete()
    text = call("fork_runs", *args)
    assert "3 of 3" in text
    assert "3 of 3 runs forked" in text
    assert (
        Run.objects.filter(
            origin_checkpoint__isnull=False, started_by=people.starter
        ).count()
        == 3
    )
    with pytest.raises(CommandError, match="1 runs were refused: invalid_value"):
        call(
            "fork_runs",
            f"{made[0].key}:initial",
            "--patch",
            file({"scratch": {"letter": 5}}),
        )
