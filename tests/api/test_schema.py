"""The API describes itself, and the catalogue describes the graphs."""

from rest_framework.test import APIClient

from tests.api.conftest import Client
from tests.cast import People


def test_the_schema_is_openapi_3_1_and_names_every_endpoint(olive: Client) -> None:
    schema = olive.get("schema/").json()
    assert schema["openapi"].startswith("3.1")
    paths = {path.removeprefix("/api/v1/") for path in schema["paths"]}
    assert paths == {
        "graphs/", "graphs/{name}/", "runs/", "runs/{run}/", "runs/{run}/checkpoints/", "runs/{run}/events/",
        "runs/{run}/decisions/", "runs/{run}/signatures/", "runs/{run}/resume/", "runs/{run}/settle/",
        "checkpoints/{checkpoint}/", "checkpoints/{checkpoint}/state/", "checkpoints/{checkpoint}/diff/",
        "requests/", "requests/{request_id}/", "requests/{request_id}/decisions/", "uploads/", "schema/",
    }  # fmt: skip
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
