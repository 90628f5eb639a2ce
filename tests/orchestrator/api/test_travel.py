"""Going back in time over the API: plan, fork, rewind, resume with a patch; rights,
problems, and doing it once.
"""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from approvals.models import ApprovalRequest
from checkpoints.models import Checkpoint, Run, RunLine
from orchestrator import runs
from tests.support import run_actions
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.paid_claims import PAID, paid

pytestmark = pytest.mark.django_db(transaction=True)

PATCH = {"scratch": {"letter": "dear"}}


@pytest.fixture
def origin(people: People) -> Run:
    """A claim that was approved and has paid."""
    return paid("traveller", people)


def at(run: Run, place: str) -> str:
    return f"checkpoints/{run.key.replace(' ', '%20')}:{place}/"


def test_a_plan_says_what_a_fork_would_do_and_writes_nothing(
    olive: Client, origin: Run
) -> None:
    before = (Run.objects.count(), Checkpoint.objects.count(), RunLine.objects.count())
    plan = olive.post(
        at(origin, "step-1") + "plan/",
        {"how": "fork", "patch": {"scratch": {"total": 3}}},
    ).json()
    assert plan["how"] == "fork"
    assert plan["patched"] == ["total"]
    assert plan["guarded"] == {"total": "ask"}
    assert plan["needs_yes"] == ["pay"]
    assert [task["task"] for task in plan["effects_again"]] == ["pay:1:0"]
    assert [ask["task"] for ask in plan["asks"]] == ["$patch:1:0", "ask:1:0"]
    allowed = olive.post(
        at(origin, "step-1") + "plan/", {"allow_effects": ["pay"]}
    ).json()
    assert allowed["needs_yes"] == []
    assert before == (
        Run.objects.count(),
        Checkpoint.objects.count(),
        RunLine.objects.count(),
    )


def test_a_plan_needs_the_scope_read_and_a_fork_the_scope_steer(
    people: People, origin: Run
) -> None:
    reader = Client(people.starter, scopes=["read"])
    assert reader.post(at(origin, "step-1") + "plan/").status_code == 200
    for path, body in (
        (at(origin, "step-1") + "fork/", {}),
        (
            f"runs/{origin.id}/rewind/",
            {"checkpoint": f"{origin.key}:step-1", "reason": "r"},
        ),
        (f"runs/{origin.id}/resume/", {}),
    ):
        assert reader.post(path, body).json()["code"] == "permission_denied", path
    assert (
        Client(people.starter, scopes=["steer"])
        .post(at(origin, "step-1") + "plan/")
        .status_code
        == 403
    )


def test_a_fork_is_a_new_run_that_knows_its_origin(
    olive: Client, people: People, origin: Run
) -> None:
    body = {"patch": PATCH, "key": "again", "reason": "the letter was wrong"}
    answer = olive.post(at(origin, "step-1") + "fork/", body)
    made = answer.json()
    assert answer.status_code == 201
    assert made["key"] == "again"
    assert made["status"] == "queued"
    assert made["line"] == 1
    assert made["origin_checkpoint"] == olive.get(at(origin, "step-1")).json()["id"]
    assert made["needs_yes"] == ["pay"]
    assert made["stopped_before"] == []
    assert made["started_by"] == "olive"
    assert [
        run["key"] for run in olive.get("runs/", origin=origin.key).json()["results"]
    ] == ["again"]
    assert olive.get("runs/", origin="again").json()["results"] == []
    waiting = olive.post(at(origin, "step-1") + "fork/", {"start": False}).json()
    assert waiting["status"] == "paused"
    assert [
        run["id"] for run in olive.get("runs/", origin=str(origin.id)).json()["results"]
    ] == [
        waiting["id"],
        made["id"],
    ]


def test_a_fork_that_stopped_before_an_effect_goes_on_when_a_resume_says_yes(
    olive: Client, people: People, origin: Run
) -> None:
    body = {"answers": {"ask": {"total": 10}}}
    client = Client(people.steward)  # may steer, and is no reviewer
    assert (
        client.post(at(origin, "at-2") + "fork/", body).json()["code"]
        == "not_a_reviewer"
    )
    run_actions.reviewer(people.starter)
    fork = olive.post(at(origin, "at-2") + "fork/", body).json()
    runs.advance(fork["id"])
    stopped = olive.get(f"runs/{fork['id']}/").json()
    assert stopped["status"] == "paused"
    assert stopped["needs_yes"] == ["pay"]
    assert stopped["stopped_before"] == ["pay"]
    refused = olive.post(f"runs/{fork['id']}/resume/")
    assert refused.status_code == 409
    assert refused.json()["needs_yes"] == ["pay"]
    assert (
        olive.post(f"runs/{fork['id']}/resume/", {"allow_effects": ["pay"]}).json()[
            "status"
        ]
        == "queued"
    )
    assert runs.advance(fork["id"]).status == "completed"
    assert len(PAID) == 2


def test_a_rewind_begins_a_line_of_the_same_run(olive: Client, origin: Run) -> None:
    body = {
        "checkpoint": f"{origin.key}:step-1",
        "patch": PATCH,
        "reason": "the letter was wrong",
    }
    answer = olive.post(f"runs/{origin.id}/rewind/", body)
    assert answer.status_code == 200
    assert answer.json()["id"] == str(origin.id)
    assert answer.json()["line"] == 2
    assert olive.get("runs/", origin=origin.key).json()["results"] == [], (
        "a rewind makes no fork"
    )


def test_a_replay_acts_on_nothing_and_has_a_report(
    olive: Client, rita: Client, people: People, origin: Run
) -> None:
    answer = olive.post(
        at(origin, "initial") + "replay/", {"reason": "is it the same?"}
    )
    assert answer.status_code == 201
    assert answer.json()["status"] == "queued"
    made = answer.json()["id"]
    assert runs.advance(made).status == "completed"
    report = olive.get(f"runs/{made}/replay-report/").json()
    assert report["run"] == made
    assert report["origin"]["run"] == str(origin.id)
    assert report["status"] == "completed"
    assert report["reused"] == ["ask:1:0", "pay:1:0"]
    assert report["diverged"] == []
    assert len(PAID) == 1
    assert [
        run["id"] for run in olive.get("runs/", origin=str(origin.id)).json()["results"]
    ] == [made]
    assert (
        olive.get(f"runs/{origin.id}/replay-report/").json()["code"] == "invalid_value"
    )
    assert (
        rita.post(at(origin, "initial") + "replay/").json().get("right") == "steer_run"
    )
    stranger = Client(people.nobody)
    assert stranger.get(f"runs/{made}/replay-report/").status_code == 404
    assert stranger.post(at(origin, "initial") + "replay/").status_code == 404
    assert (
        Client(people.starter, scopes=["read"])
        .post(at(origin, "initial") + "replay/")
        .status_code
        == 403
    )
    assert (
        olive.post(at(origin, "initial") + "replay/", {"patch": {}}).json()["code"]
        == "invalid_body"
    )
    schema = olive.get("schema/").json()
    said = schema["paths"]["/api/v1/runs/{run}/replay-report/"]["get"]["responses"][
        "200"
    ]
    form = {
        **said["content"]["application/json"]["schema"],
        "components": schema["components"],
    }
    assert list(Draft202012Validator(form).iter_errors(report)) == []


def test_a_resume_with_a_patch_goes_on_from_the_newest_checkpoint(
    olive: Client, paused: Run
) -> None:
    answer = olive.post(
        "runs/CLM-1/resume/",
        {"patch": {"scratch": {"notes": ["new"]}}, "reason": "said otherwise"},
    )
    assert answer.status_code == 200
    assert answer.json()["line"] == 2
    assert answer.json()["status"] == "queued"
    assert run_actions.state(runs.advance(paused.id))["notes"] == ["new"]
    assert ApprovalRequest.objects.filter(run=paused, status="open").count() == 1


def test_a_list_of_operations_is_a_patch_too(olive: Client, origin: Run) -> None:
    patch = {"scratch": [{"op": "replace", "path": "/letter", "value": "dear"}]}
    fork = olive.post(at(origin, "step-1") + "fork/", {"patch": patch}).json()
    assert (
        olive.get(f"checkpoints/{fork['head']}/state/").json()["scratch"]["letter"]
        == "dear"
    )


def test_who_may_not_see_the_run_learns_nothing_and_who_may_not_steer_learns_the_right(
    people: People, rita: Client, origin: Run
) -> None:
    places = [
        (at(origin, "step-1") + "plan/", {}),
        (at(origin, "step-1") + "fork/", {}),
        (
            f"runs/{origin.id}/rewind/",
            {"checkpoint": f"{origin.key}:step-1", "reason": "r"},
        ),
        (f"runs/{origin.id}/resume/", {}),
    ]
    stranger = Client(people.nobody)
    for path, body in places:
        assert stranger.post(path, body).status_code == 404
        assert stranger.post(path, body).json()["code"] == "unknown_thing"
    for path, body in places[1:]:
        assert rita.post(path, body).json().get("right") == "steer_run", path
    assert stranger.get("runs/", origin=str(origin.id)).status_code == 404
    assert Run.objects.count() == 1


def test_a_rewind_to_a_checkpoint_that_one_may_not_see_is_a_rewind_to_nowhere(
    olive: Client, people: People, origin: Run
) -> None:
    there = {"checkpoint": f"{origin.key}:step-99", "reason": "r"}
    assert (
        olive.post(f"runs/{origin.id}/rewind/", there).json()["code"] == "unknown_thing"
    )
    other = paid("other", people)
    body = {"checkpoint": f"{other.key}:step-1", "reason": "r"}
    assert (
        olive.post(f"runs/{origin.id}/rewind/", body).json()["code"] == "unknown_thing"
    )


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ({"patch": {"input": {"claim_id": "B"}}}, 422, {"path": "input"}),
        (
            {"patch": {"scratch": {"total": "a lot"}}},
            422,
            {"path": "scratch.total", "value": "a lot"},
        ),
        (
            {"patch": {"scratch": {"letter": 9}}},
            422,
            {"path": "scratch.letter", "value": 9, "mend": "9"},
        ),
        ({"patch": {"scratch": {"nowhere": 1}}}, 422, {"path": "scratch.nowhere"}),
        (
            {"patch": {"scratch": [{"op": "test", "path": "/total", "value": 3}]}},
            422,
            {"path": "scratch[0]"},
        ),
        ({"patch": []}, 400, {"code": "invalid_body"}),
        ({"patch": "x"}, 400, {"code": "invalid_body"}),
        ({"answers": []}, 400, {"code": "invalid_body"}),
        ({"answers": {"ask": {"nothing": 1}}}, 422, {"path": "answers.ask.nothing"}),
        ({"answers": {"ask": 1}}, 422, {"path": "answers.ask"}),
        ({"allow_effects": ["nobody"]}, 422, {"nodes": ["nobody"]}),
        ({"allow_effects": "pay"}, 400, {"code": "invalid_body"}),
        ({"patsh": {}}, 400, {"code": "invalid_body"}),
        (
            {"patch": {"scratch": {"letter": "x" * 5_000_000}}},
            413,
            {"code": "payload_too_large"},
        ),
    ],
)
def test_what_does_not_fit_is_a_problem_that_names_the_place_and_nothing_is_made(
    olive: Client, origin: Run, body: dict[str, Any], status: int, facts: dict[str, Any]
) -> None:
    for verb in ("plan", "fork"):
        answer = olive.post(at(origin, "at-2") + f"{verb}/", body)
        assert answer.status_code == status, answer.json()
        assert answer["Content-Type"] == "application/problem+json"
        assert {name: answer.json().get(name) for name in facts} == facts, answer.json()
    assert Run.objects.count() == 1


def test_a_kind_of_travel_that_there_is_not_a_key_in_use_and_broken_json_are_refused(
    olive: Client, origin: Run
) -> None:
    assert (
        olive.post(at(origin, "step-1") + "plan/", {"how": "sideways"}).json()["code"]
        == "invalid_body"
    )
    taken = olive.post(at(origin, "step-1") + "fork/", {"key": origin.key})
    assert taken.status_code == 409
    assert taken.json()["code"] == "key_conflict"
    address = f"/api/v1/{at(origin, 'step-1')}fork/"
    broken = olive.http.generic(
        "POST", address, b'{"patch": {', content_type="application/json"
    )
    assert broken.status_code == 400
    assert broken.json()["code"] == "parse_error"
    assert (
        olive.post(
            f"runs/{origin.id}/rewind/", {"checkpoint": f"{origin.key}:step-1"}
        ).status_code
        == 400
    )


def test_a_fork_that_is_sent_twice_under_one_key_is_made_once(
    olive: Client, origin: Run
) -> None:
    path = at(origin, "step-1") + "fork/"
    sent = {"Idempotency-Key": "f-1"}
    first, second = (olive.post(path, {"patch": PATCH}, **sent) for _ in range(2))
    assert first.status_code == 201
    assert first.json()["id"] == second.json()["id"]
    assert Run.objects.count() == 2
    assert olive.post(path, {}, **sent).json()["code"] == "idempotency_key_reused"
    back = {"checkpoint": f"{origin.key}:step-1", "reason": "r"}
    lines = [
        olive.post(f"runs/{origin.id}/rewind/", back, **sent).json()["line"]
        for _ in range(2)
    ]
    assert lines == [2, 2]


def test_what_a_plan_and_a_fork_answer_is_what_the_schema_says(
    olive: Client, origin: Run
) -> None:
    schema = olive.get("schema/").json()
    for verb, status in (("plan", "200"), ("fork", "201")):
        content = schema["paths"][f"/api/v1/checkpoints/{{checkpoint}}/{verb}/"]["post"]
        said = content["responses"][status]["content"]["application/json"]["schema"]
        body = olive.post(at(origin, "step-1") + f"{verb}/").json()
        errors = Draft202012Validator(
            {**said, "components": schema["components"]}
        ).iter_errors(body)
        assert [f"{list(e.absolute_path)}: {e.message[:200]}" for e in errors] == []
