"""Bulk forks over the API: the dry run, the job, its results, and who may."""

from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator

from checkpoints.models import Job, Run
from orchestrator import runs
from orchestrator.jobs import kinds
from orchestrator.models import BulkFork
from tests.support import api_graphs as graphs
from tests.support.api_people import Client
from tests.support.cast import People

pytestmark = pytest.mark.django_db(transaction=True)

WANTED = {
    "graph": "gated",
    "patch": {"scratch": {"letter": "Dear Kim"}},
    "reason": "the register was closed",
}


@pytest.fixture
def failed(people: People) -> list[Run]:
    """Three runs that failed at their first node, which works again."""
    graphs.broken.add("fetch")
    made = [
        runs.start("gated", {"claim_id": f"C-{n}"}, key=f"C-{n}", by=people.starter)
        for n in range(3)
    ]
    made = [runs.advance(run.id) for run in made]
    assert {run.status for run in made} == {"failed"}
    graphs.broken.clear()
    return made


def test_a_bulk_fork_is_planned_begun_and_told_run_by_run(
    olive: Client, failed: list[Run]
) -> None:
    planned = olive.post("forks/", {**WANTED, "dry_run": True})
    assert planned.status_code == 200
    assert planned.json()["total"] == 3
    assert planned.json()["kinds"][0]["count"] == 3
    assert not Job.objects.exists()
    begun = olive.post("forks/", WANTED)
    assert begun.status_code == 202
    assert begun.json()["status"] == "queued"
    id = begun.json()["id"]
    kinds.advance(UUID(id))
    reported = olive.get(f"forks/{id}/").json()
    assert {
        name: reported[name]
        for name in ("status", "total", "forked", "refused", "waiting")
    } == {
        "status": "done",
        "total": 3,
        "forked": 3,
        "refused": 0,
        "waiting": 0,
    }
    results = olive.get(f"forks/{id}/results/").json()["results"]
    assert [row["origin"] for row in results] == [str(run.id) for run in failed]
    assert all(
        olive.get(f"runs/{row['fork']}/").json()["status"] == "queued"
        for row in results
    )
    assert olive.get(f"forks/{id}/results/", refused="true").json()["results"] == []


def test_a_refused_run_stands_in_the_results_with_its_reason(
    olive: Client, failed: list[Run]
) -> None:
    body = {"graph": "gated", "patch": {"scratch": {"letter": 5}}}
    id = olive.post("forks/", body).json()["id"]
    kinds.advance(UUID(id))
    (row, *others) = olive.get(f"forks/{id}/results/", refused="true").json()["results"]
    assert row["code"] == "invalid_value"
    assert row["fork"] is None
    assert len(others) == 2
    assert "letter" in row["message"]
    (refusal,) = olive.post("forks/", {**body, "dry_run": True}).json()["refusals"]
    assert refusal["count"] == 3
    assert refusal["code"] == "invalid_value"


def test_checkpoints_are_named_by_id_or_alias(olive: Client, failed: list[Run]) -> None:
    body = {"checkpoints": ["C-0:initial", "C-2:initial"]}
    assert olive.post("forks/", {**body, "dry_run": True}).json()["total"] == 2
    assert olive.post("forks/", body).json()["total"] == 2


def test_a_bulk_fork_is_begun_once_under_one_idempotency_key(
    olive: Client, failed: list[Run]
) -> None:
    first, second = (
        olive.post("forks/", WANTED, **{"Idempotency-Key": "b-1"}).json()
        for _ in range(2)
    )
    assert first["id"] == second["id"]
    assert BulkFork.objects.count() == 1


def test_who_does_not_see_all_runs_or_may_not_steer_begins_none_and_sees_none(
    olive: Client, rita: Client, people: People, failed: list[Run]
) -> None:
    assert rita.post("forks/", WANTED).json()["right"] == "steer_run"
    assert Client(people.nobody).post("forks/", WANTED).status_code == 403
    assert (
        Client(people.starter, scopes=["read"]).post("forks/", WANTED).json()["code"]
        == "permission_denied"
    )
    id = olive.post("forks/", WANTED).json()["id"]
    for path in (f"forks/{id}/", f"forks/{id}/results/"):
        assert rita.get(path).json()["code"] == "unknown_thing"
        assert olive.get(path).status_code == 200
    assert (
        olive.get("forks/01a20375-2ef5-7e6f-835d-4878671b73ec/").json()["code"]
        == "unknown_thing"
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"graph": "gated", "checkpoints": ["C-0:initial"]}, 422),
        ({"checkpoints": []}, 400),
        ({"checkpoints": "C-0:initial"}, 400),
        ({"checkpoints": ["C-0:step-99"]}, 404),
        ({"checkpoints": ["C-0:initial", "C-0:initial"]}, 422),
        ({"graph": "gated", "status": "broken"}, 422),
        ({"graph": "gated", "patch": {"input": {}}}, 422),
        ({"graph": "gated", "patch": []}, 400),
    ],
)
def test_what_does_not_fit_is_refused_and_no_job_is_made(
    olive: Client, failed: list[Run], body: dict[str, Any], status: int
) -> None:
    answer = olive.post("forks/", body)
    assert answer.status_code == status, answer.json()
    assert answer["Content-Type"] == "application/problem+json", answer.json()
    assert not Job.objects.exists()


def test_what_is_answered_is_what_the_schema_says(
    olive: Client, failed: list[Run]
) -> None:
    schema = olive.get("schema/").json()
    post = schema["paths"]["/api/v1/forks/"]["post"]["responses"]
    id = olive.post("forks/", WANTED).json()["id"]
    kinds.advance(UUID(id))
    reported = [
        (post["200"], olive.post("forks/", {**WANTED, "dry_run": True}).json()),
        (post["202"], olive.post("forks/", WANTED).json()),
    ]
    for path in ("forks/{fork}/", "forks/{fork}/results/"):
        said = schema["paths"][f"/api/v1/{path}"]["get"]["responses"]["200"]
        reported.append((said, olive.get(path.format(fork=id)).json()))
    for said, body in reported:
        form = {
            **said["content"]["application/json"]["schema"],
            "components": schema["components"],
        }
        assert [
            e.message[:200] for e in Draft202012Validator(form).iter_errors(body)
        ] == []
