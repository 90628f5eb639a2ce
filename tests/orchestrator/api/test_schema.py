"""The API describes itself, and the catalogue describes the graphs."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from rest_framework.test import APIClient

from approvals.models import ApprovalRequest
from checkpoints.models import PendingWrite, Run
from orchestrator import runs
from tests.support.api_people import Client
from tests.support.cast import People


def test_the_schema_is_openapi_3_1_and_names_every_endpoint(olive: Client) -> None:
    schema = olive.get("schema/").json()
    assert schema["openapi"].startswith("3.1")
    paths = {path.removeprefix("/api/v1/") for path in schema["paths"]}
    assert paths == {
        "decisions/{decision}/receipt/",
        "runs/{run}/export/",
        "imports/",
        "approvals/",
        "approvals/{run}/",
        "approvals/{run}/cancel/",
        "approvals/{run}/outcomes/",
        "approvals/{run}/stream/",
        "audit/",
        "audit/{number}/",
        "gates/figures/",
        "runs/{run}/stream/",
        "graphs/",
        "graphs/{name}/",
        "figures/",
        "runs/",
        "runs/{run}/",
        "runs/{run}/checkpoints/",
        "runs/{run}/events/",
        "runs/{run}/decisions/",
        "runs/{run}/signatures/",
        "runs/{run}/resume/",
        "runs/{run}/cancel/",
        "runs/{run}/erase/",
        "runs/{run}/settle/",
        "checkpoints/{checkpoint}/",
        "checkpoints/{checkpoint}/state/",
        "checkpoints/{checkpoint}/diff/",
        "runs/{run}/blame/",
        "runs/{run}/history/",
        "runs/{run}/lineage/",
        "runs/{run}/align/",
        "checkpoints/{checkpoint}/plan/",
        "checkpoints/{checkpoint}/fork/",
        "runs/{run}/rewind/",
        "runs/{run}/replay-report/",
        "checkpoints/{checkpoint}/replay/",
        "forks/",
        "forks/{fork}/",
        "forks/{fork}/results/",
        "requests/",
        "requests/{request_id}/",
        "requests/{request_id}/decisions/",
        "uploads/",
        "requests/{request_id}/claim/",
        "requests/{request_id}/reopen/",
        "requests/{request_id}/release/",
        "requests/{request_id}/assign/",
        "requests/{request_id}/comments/",
        "notices/",
        "notices/read/",
        "delegations/",
        "delegations/{delegation}/revoke/",
        "standing-policies/",
        "standing-policies/{standing_policy}/",
        "standing-policies/{standing_policy}/revoke/",
        "approvals/{run}/callback/",
        "doors/{door}/",
        "webhooks/",
        "webhooks/{webhook}/",
        "webhooks/{webhook}/deliveries/",
        "webhooks/{webhook}/deliveries/{delivery}/send/",
        "schema/",
    }
    assert "token" in schema["components"]["securitySchemes"]


def test_the_schema_is_for_people_who_are_logged_in(people: People) -> None:
    assert APIClient().get("/api/v1/schema/").status_code == 401


def test_the_catalogue_lists_graphs_and_one_graph_tells_all(rita: Client) -> None:
    names = [graph["name"] for graph in rita.get("graphs/").json()["results"]]
    assert {"gated", "careful"} <= set(names)
    assert names == sorted(names)
    graph = rita.get("graphs/gated/").json()
    assert "claim_id" in graph["input_schema"]["properties"]
    assert "payout" in graph["state_schema"]["properties"]
    assert [node["name"] for node in graph["nodes"]] == ["fetch", "propose", "finish"]
    assert {"source": "fetch", "target": "propose"}.items() <= graph["edges"][1].items()
    assert graph["mermaid"].startswith("flowchart")
    assert rita.get("graphs/unheard/").json()["code"] == "unknown_thing"


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("graphs/", "graphs/"),
        ("graphs/{name}/", "graphs/gated/"),
        ("runs/", "runs/"),
        ("runs/{run}/", "runs/CLM-1/"),
        ("figures/", "figures/?by=run"),
        ("runs/{run}/checkpoints/", "runs/CLM-1/checkpoints/"),
        ("runs/{run}/events/", "runs/CLM-1/events/"),
        ("runs/{run}/decisions/", "runs/CLM-1/decisions/"),
        ("runs/{run}/blame/", "runs/CLM-1/blame/?path=notes"),
        ("runs/{run}/history/", "runs/CLM-1/history/?path=notes"),
        ("runs/{run}/lineage/", "runs/CLM-1/lineage/"),
        ("runs/{run}/align/", "runs/CLM-1/align/?with=CLM-2"),
        ("checkpoints/{checkpoint}/", "checkpoints/CLM-1:step-2/"),
        ("checkpoints/{checkpoint}/state/", "checkpoints/CLM-1:step-2/state/"),
        ("checkpoints/{checkpoint}/diff/", "checkpoints/CLM-1:step-1/diff/"),
        ("requests/", "requests/"),
        ("requests/{request_id}/", "requests/{request}/"),
    ],
)
def test_what_is_answered_is_what_the_schema_says(
    olive: Client, rita: Client, paused: Run, path: str, address: str
) -> None:
    request = ApprovalRequest.objects.get(run=paused)
    other = runs.fork(
        "CLM-1:step-1", patch={"scratch": {"notes": ["patched"]}}, key="CLM-2"
    )
    runs.advance(other.id)
    write = PendingWrite.objects.filter(run=paused).first()
    assert write is not None
    rita.post(
        f"requests/{request.id}/decisions/",
        {
            "decisions": [
                {"write": str(write.write), "hash": write.hash, "verdict": "approve"}
            ]
        },
    )
    schema = olive.get("schema/").json()
    answer = schema["paths"][f"/api/v1/{path}"]["get"]["responses"]["200"]["content"][
        "application/json"
    ]["schema"]
    body = olive.get(address.format(request=request.id)).json()
    errors = [
        f"{list(e.absolute_path)}: {e.message[:200]}"
        for e in Draft202012Validator(
            {**answer, "components": schema["components"]}
        ).iter_errors(body)
    ]
    assert errors == []


def test_nothing_in_the_schema_had_to_be_guessed(
    olive: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    olive.get("schema/")
    facts = capsys.readouterr().err
    assert "Warning" not in facts
    assert "Error" not in facts


METHODS = {"get", "post"}
WITHOUT_PAGES = {"graphs/"}
"""Lists that are given whole."""


def _operations(client: Client) -> list[tuple[str, str, dict[str, Any]]]:
    paths = client.get("schema/").json()["paths"]
    return [
        (path.removeprefix("/api/v1/"), method, operation)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if method in METHODS
    ]


def _parameters(operation: dict[str, Any]) -> set[str]:
    return {parameter["name"] for parameter in operation.get("parameters", [])}


def test_the_schema_is_valid_by_the_rules_of_openapi(olive: Client) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    schema = olive.get("schema/").json()
    errors = [
        str(error.message)
        for error in validator.OpenAPIV31SpecValidator(schema).iter_errors()
    ]
    assert errors == []


def test_no_type_in_the_schema_is_named_twice(olive: Client) -> None:
    def types(node: Any) -> list[list[str]]:
        if isinstance(node, list):
            return [found for inner in node for found in types(inner)]
        if not isinstance(node, dict):
            return []
        here = [node["type"]] if isinstance(node.get("type"), list) else []
        return here + [found for inner in node.values() for found in types(inner)]

    assert [
        names
        for names in types(olive.get("schema/").json())
        if len(names) != len(set(names))
    ] == []


def test_each_operation_describes_its_refusals_as_problems(olive: Client) -> None:
    for path, method, operation in _operations(olive):
        for status in ("400", "401", "403", "404", "409", "503"):
            content = operation["responses"][status]["content"]
            assert set(content) == {"application/problem+json"}, (path, method, status)


def test_each_post_describes_its_idempotency_key_and_no_get_does(olive: Client) -> None:
    """A message at a door has an id of its own."""
    for path, method, operation in _operations(olive):
        takes_key = method == "post" and path != "doors/{door}/"
        assert ("Idempotency-Key" in _parameters(operation)) == takes_key, path


def test_a_list_declares_paging_and_nothing_else_does(olive: Client) -> None:
    schema = olive.get("schema/").json()
    for path, method, operation in _operations(olive):
        answers = operation["responses"].get("200", {}).get("content", {})
        form = (
            answers.get("application/json", {})
            .get("schema", {})
            .get("$ref", "")
            .rpartition("/")[2]
        )
        members = schema["components"]["schemas"].get(form, {}).get("properties", {})
        pages = method == "get" and {"next", "previous", "results"} <= set(members)
        expected = pages and path not in WITHOUT_PAGES
        assert ({"cursor", "page_size"} <= _parameters(operation)) == expected, (
            path,
            method,
        )


def test_the_schema_answers_to_its_own_media_types(olive: Client) -> None:
    for media_type in ("application/json", "application/vnd.oai.openapi+json"):
        answer = olive.http.get("/api/v1/schema/", headers={"accept": media_type})
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith(media_type)


ADDRESS = {
    "run": "CLM-1",
    "checkpoint": "CLM-1:step-2",
    "name": "gated",
    "number": "1",
    "request_id": "0199aaaa-0000-7000-8000-000000000000",
    "decision": "0199aaaa-0000-7000-8000-000000000000",
    "fork": "0199aaaa-0000-7000-8000-000000000000",
    "delegation": "0199aaaa-0000-7000-8000-000000000000",
    "standing_policy": "0199aaaa-0000-7000-8000-000000000000",
    "door": "bank",
    "webhook": "0199aaaa-0000-7000-8000-000000000000",
    "delivery": "0199aaaa-0000-7000-8000-000000000000",
}


def test_a_parameter_that_is_not_declared_is_refused_everywhere(
    olive: Client, paused: Run
) -> None:
    """Except at a door, which says nothing to a sender without a signature."""
    for path, method, _ in _operations(olive):
        if path == "doors/{door}/":
            continue
        ask = getattr(olive.http, method)
        answer = ask(f"/api/v1/{path.format(**ADDRESS)}?foo=1")
        assert answer.status_code == 400, (path, method, answer.status_code)
        assert answer.json()["errors"][0]["path"] == "foo", (path, method)
