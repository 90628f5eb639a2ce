"""Runs over the API: start, list, one, their parts, and what steers them."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from checkpoints.models import Run, RunMetadata, TaskResult
from checkpoints.sealing.sealed_columns import pack_json, read_value
from orchestrator import runs
from orchestrator.engine import END, START, Gate
from orchestrator.engine.values.identity import Task, idempotency_key
from tests.support import api_graphs as graphs
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.rows import START as STARTED_AT
from tests.support.rows import a_run
from tests.support.small_graphs import graph, registered

BODY = {"graph": "gated", "input": {"claim_id": "CLM-9", "amount": 10}, "key": "CLM-9"}


def test_a_run_is_started_once_for_a_key_and_the_same_input(olive: Client) -> None:
    first = olive.post("runs/", BODY)
    second = olive.post("runs/", BODY)
    assert first.status_code == 201
    assert second.status_code == 200
    assert first.json()["id"] == second.json()["id"]
    assert first.json()["input"] == {
        "claim_id": "CLM-9",
        "amount": 10,
        "evidence": None,
    }
    assert first.json()["status"] == "queued"
    assert first.json()["started_by"] == "olive"
    assert Run.objects.count() == 1


def test_a_child_says_which_task_of_its_parent_started_it_and_on_which_line(
    olive: Client,
) -> None:
    parent = a_run()
    child = a_run(parent_run=parent.id, parent_line=2, parent_task="call:1:0")
    for run, ties in (
        (child, (str(parent.id), 2, "call:1:0")),
        (parent, (None, 0, "")),
    ):
        shown = olive.get(f"runs/{run.id}/").json()
        assert (shown["parent_run"], shown["parent_line"], shown["parent_task"]) == ties


def test_another_input_for_the_key_is_a_conflict_that_names_the_run(
    olive: Client,
) -> None:
    first = olive.post("runs/", BODY).json()
    answer = olive.post("runs/", {**BODY, "input": {"claim_id": "CLM-10"}})
    assert answer.status_code == 409
    assert answer.json()["code"] == "key_conflict"
    assert answer.json()["run"] == first["id"]


def test_the_key_of_a_run_that_one_may_not_see_is_a_conflict_without_facts(
    olive: Client, people: People
) -> None:
    olive.post("runs/", BODY)
    people.nobody.user_permissions.set(_permission("start_run"))
    for body in (BODY, {**BODY, "input": {"claim_id": "x"}}):
        answer = Client(people.nobody).post("runs/", body)
        assert answer.status_code == 409
        assert set(answer.json()) == {"type", "title", "status", "code", "detail"}
        assert answer.json()["detail"] == "this key is taken"


def _permission(codename: str) -> Any:
    from django.contrib.auth.models import Permission

    return Permission.objects.filter(codename=codename)


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"graph": "no such"}, 404, "unknown_thing"),
        ({"input": {"amount": 10}}, 422, "invalid_value"),
        ({"input": {"claim_id": "CLM-9", "amount": "many"}}, 422, "invalid_value"),
        ({"input": {"claim_id": "CLM-9", "colour": "red"}}, 422, "invalid_value"),
        ({"input": ["CLM-9"]}, 422, "invalid_value"),
        ({"input": {"claim_id": "CLM-9", "amount": 2**60}}, 422, "invalid_value"),
        ({"key": "a/b"}, 422, "invalid_value"),
        ({"key": "x" * 201}, 400, "invalid_body"),
        ({"colour": "red"}, 400, "invalid_body"),
        ({"on_behalf_of": "stranger"}, 422, "invalid_value"),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_started(
    olive: Client, change: dict[str, Any], status: int, code: str
) -> None:
    answer = olive.post("runs/", {**BODY, **change})
    assert answer.status_code == status, answer.json()
    assert answer.json()["code"] == code, answer.json()
    assert answer["Content-Type"] == "application/problem+json"
    assert not Run.objects.exists()


def test_an_unknown_field_is_named(olive: Client) -> None:
    answer = olive.post("runs/", {**BODY, "colour": "red"}).json()
    assert answer["errors"] == [
        {"path": "colour", "message": "There is no such field."}
    ]


def test_a_server_path_is_no_file(olive: Client) -> None:
    for path in ("/etc/passwd", "../../secret", "file:///etc/passwd"):
        file = {"file": path, "name": "x", "size": 1, "sha256": "0" * 64}
        answer = olive.post(
            "runs/", {**BODY, "input": {"claim_id": "C", "evidence": file}}
        )
        assert answer.status_code == 422
        assert "is no uploaded file" in answer.json()["detail"]
    assert not Run.objects.exists()


def test_whoever_may_not_start_is_told_which_right_he_lacks(rita: Client) -> None:
    answer = rita.post("runs/", BODY)
    assert answer.status_code == 403
    assert answer.json()["code"] == "forbidden"
    assert answer.json()["right"] == "start_run"


def test_a_token_must_say_for_whom_it_starts_where_a_gate_has_four_eyes(
    olive: Client, people: People
) -> None:
    body = {**BODY, "graph": "careful"}
    assert olive.post("runs/", body).json()["path"] == "on_behalf_of"
    answer = olive.post("runs/", {**body, "on_behalf_of": people.steward.username})
    assert answer.status_code == 201
    assert answer.json()["on_behalf_of"] == "stella"


@pytest.mark.parametrize("folder", ["two", "unknown"])
def test_four_eyes_may_be_in_the_terms_of_a_gate(olive: Client, folder: str) -> None:
    flow = graph("careful-terms")

    def terms(asked: Any) -> dict[str, Any]:
        # With an unknown folder they fail, and nobody knows what they would ask for.
        return {"four_eyes": {"one": False, "two": True}[asked.folder]}

    gate = Gate(reviewers=["group:claims"], terms=terms)
    flow.node("propose", effect="human", gate=gate)(lambda state, ctx: {"letter": ""})
    flow.edge(START, "propose")
    flow.edge("propose", END)
    registered(flow)
    body = {"graph": flow.name, "input": {"folder": folder}}
    refused = olive.post("runs/", body)
    assert (refused.status_code, refused.json()["path"]) == (422, "on_behalf_of")
    assert olive.post("runs/", {**body, "input": {"folder": "one"}}).status_code == 201


def test_a_run_is_one_by_id_and_by_key_and_nothing_to_whoever_may_not_see_it(
    olive: Client, nobody: Client, paused: Run
) -> None:
    by_key = olive.get("runs/CLM-1/").json()
    by_id = olive.get(f"runs/{paused.id}/").json()
    assert by_key == by_id
    assert by_key["paused"][0]["task"] == "propose:1:0"
    assert by_key["paused"][0]["title"] == "Pay the claim?"
    for part in ("", "checkpoints/", "events/", "decisions/"):
        answer = nobody.get(f"runs/CLM-1/{part}")
        assert answer.status_code == 404
        assert answer.json()["code"] == "unknown_thing"


def test_the_list_is_narrowed_by_graph_status_key_and_time(olive: Client) -> None:
    first = a_run(key="A", graph="one", status="failed")
    second = a_run(key="B", graph="two", status="queued")
    third = a_run(key="C", graph="two", status="paused")

    def keys(**query: str) -> list[str]:
        return [run["key"] for run in olive.get("runs/", **query).json()["results"]]

    assert keys() == ["C", "B", "A"]
    assert keys(graph="two") == ["C", "B"]
    assert keys(status="failed,queued") == ["B", "A"]
    assert keys(key="A") == [first.key]
    assert keys(since=second.created_at.isoformat()) == ["C", "B"]
    assert keys(since=third.created_at.isoformat(), status="failed") == []


@pytest.mark.parametrize(
    "query",
    [
        {"status": "happy"},
        {"since": "yesterday"},
        {"colour": "red"},
        {"page_size": "0"},
    ],
)
def test_a_filter_that_cannot_be_read_is_an_error(
    olive: Client, query: dict[str, str]
) -> None:
    answer = olive.get("runs/", **query)
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_body"


def test_the_list_is_paged_by_cursor_and_a_new_run_shifts_nothing(
    olive: Client,
) -> None:
    keys = [a_run().key for _ in range(5)]
    page = olive.get("runs/", page_size="2").json()
    a_run(created_at=STARTED_AT.replace(year=2030))
    seen = [run["key"] for run in page["results"]]
    while page["next"]:
        page = olive.http.get(page["next"]).json()
        seen += [run["key"] for run in page["results"]]
    assert seen == keys[::-1]


def test_the_list_takes_as_many_queries_for_many_runs_as_for_one_and_reads_no_payload(
    olive: Client, people: People
) -> None:
    def queries() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            assert olive.get("runs/").status_code == 200
        return [query["sql"] for query in captured]

    a_run(started_by=people.starter)
    few = queries()
    for _ in range(20):
        a_run(started_by=people.starter, on_behalf_of=people.steward)
    many = queries()
    assert len(few) == len(many)
    assert len(many) <= 5
    assert not [
        sql
        for sql in many
        if '"checkpoints_run"."input"' in sql or '"checkpoints_run"."error"' in sql
    ]


def test_the_checkpoints_of_a_run_are_listed_without_their_payloads(
    olive: Client, paused: Run
) -> None:
    with CaptureQueriesContext(connection) as captured:
        listed = olive.get("runs/CLM-1/checkpoints/").json()["results"]
    assert [c["seq"] for c in listed] == sorted(
        (c["seq"] for c in listed), reverse=True
    )
    assert listed[-1]["alias"] == "CLM-1:initial"
    assert "fetch" in {node["node"] for c in listed for node in c["nodes"]}
    assert not [
        q for q in captured if '"checkpoints_checkpoint"."snapshot"' in q["sql"]
    ]


def test_the_log_goes_on_after_the_line_that_was_seen_last(
    olive: Client, paused: Run
) -> None:
    lines = olive.get("runs/CLM-1/events/").json()["results"]
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["type"] == "run_started"
    assert olive.get("runs/CLM-1/events/", after="2").json()["results"] == lines[2:]
    page = olive.get("runs/CLM-1/events/", page_size="2").json()
    assert olive.http.get(page["next"]).json()["results"] == lines[2:4]


def test_a_failed_run_is_resumed_and_nothing_else_is(
    olive: Client, rita: Client, people: People
) -> None:
    graphs.broken.add("fetch")
    run = runs.advance(
        runs.start("gated", {"claim_id": "CLM-2"}, key="CLM-2", by=people.starter).id
    )
    assert olive.get("runs/CLM-2/").json()["error"]["node"] == "fetch"
    graphs.broken.clear()
    assert olive.post("runs/CLM-2/resume/").json()["status"] == "queued"
    assert runs.advance(run.id).status == "paused"
    answer = olive.post("runs/CLM-2/resume/")
    assert answer.status_code == 409
    assert answer.json()["code"] == "wrong_status"
    assert answer.json()["actual_status"] == "paused"
    assert rita.post("runs/CLM-2/resume/").json()["code"] == "forbidden"
    assert Client(people.nobody).post("runs/CLM-2/resume/").status_code == 404


def test_settling_what_is_not_unknown_is_refused(olive: Client, paused: Run) -> None:
    body = {"task": "fetch:1:0", "happened": True, "reason": "seen"}
    answer = olive.post("runs/CLM-1/settle/", body)
    assert answer.status_code == 404
    assert answer.json()["code"] == "unknown_thing"
    assert olive.post("runs/CLM-1/settle/", {"task": "fetch:1:0"}).status_code == 400


@pytest.fixture
def unknown(people: People) -> Run:
    """A run whose payment may have happened."""
    graphs.broken.add("pay")
    run = runs.advance(
        runs.start(
            "paying", {"claim_id": "P", "amount": 7}, key="P", by=people.starter
        ).id
    )
    graphs.broken.clear()
    assert run.status == "unknown"
    return run


def test_an_unknown_outcome_is_shown_with_the_key_that_the_call_carried(
    olive: Client, unknown: Run
) -> None:
    (task,) = olive.get("runs/P/").json()["unknown"]
    assert task["task"] == "pay:1:0"
    assert task["attempt"] == 1
    assert task["idempotency_key"] == idempotency_key(unknown.id, 1, Task("pay", 1))


def test_what_happened_is_settled_with_its_output_and_the_call_is_not_repeated(
    olive: Client, unknown: Run
) -> None:
    body = {
        "task": "pay:1:0",
        "happened": True,
        "output": {"payout": {"amount": 7}},
        "reason": "the bank says so",
    }
    assert (
        olive.post("runs/P/settle/", {**body, "output": {"payout": "seven"}}).json()[
            "code"
        ]
        == "invalid_value"
    )
    answer = olive.post("runs/P/settle/", body)
    assert answer.status_code == 200
    assert answer.json()["status"] == "queued"
    assert answer.json()["unknown"] == []
    graphs.broken.add("pay")
    assert runs.advance(unknown.id).status == "completed"
    assert olive.get("checkpoints/P:step-1/state/").json()["scratch"]["payout"] == {
        "amount": 7
    }
    results = olive.get("checkpoints/P:step-1/").json()["node_results"]
    assert [(result["task"], result["effect"]) for result in results] == [
        ("pay:1:0", "external")
    ]


def test_a_recorded_result_carries_what_its_node_returned(
    olive: Client, people: People
) -> None:
    run = runs.advance(
        runs.start("paying", {"claim_id": "CLM-2"}, key="CLM-2", by=people.starter).id
    )
    row = TaskResult.objects.get(run=run.id)
    (result,) = olive.get(f"checkpoints/{run.head}/").json()["node_results"]
    assert result["output"] is not None
    assert result["output"] == read_value(row, "output")


def test_what_did_not_happen_runs_again(olive: Client, unknown: Run) -> None:
    body = {"task": "pay:1:0", "happened": False, "reason": "the bank knows nothing"}
    assert olive.post("runs/P/settle/", body).json()["status"] == "queued"
    assert runs.advance(unknown.id).status == "completed"


def test_settling_needs_the_right_to_and_a_reason(
    olive: Client, rita: Client, unknown: Run, people: People
) -> None:
    body = {"task": "pay:1:0", "happened": False, "reason": "seen"}
    assert rita.post("runs/P/settle/", body).status_code == 404
    assert (
        Client(people.auditor).post("runs/P/settle/", body).json()["right"]
        == "settle_task"
    )
    assert olive.post("runs/P/settle/", {**body, "reason": " "}).status_code == 400


# Metadata


CUSTOMER = {"customer": "ACME", "tries": 3}


def test_a_run_is_started_with_metadata_and_shows_it(olive: Client) -> None:
    started = olive.post("runs/", {**BODY, "metadata": CUSTOMER}).json()
    assert started["metadata"] == CUSTOMER
    assert olive.get(f"runs/{started['id']}/").json()["metadata"] == CUSTOMER


def test_metadata_that_was_changed_in_the_database_is_not_shown_as_it_stands(
    olive: Client,
) -> None:
    started = olive.post("runs/", {**BODY, "metadata": {"customer": "ACME"}}).json()
    RunMetadata.objects.filter(run=started["id"]).update(value=pack_json("Other"))
    shown = olive.get(f"runs/{started['id']}/").json()["metadata"]["customer"]
    assert list(shown) == ["refused"]


def test_metadata_that_cannot_be_kept_is_refused_by_name_and_nothing_starts(
    olive: Client,
) -> None:
    answer = olive.post("runs/", {**BODY, "metadata": {"customer": ["ACME"]}})
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid_value"
    assert "metadata.customer" in answer.json()["detail"]
    assert not Run.objects.exists()


def test_the_list_is_narrowed_to_runs_with_this_metadata(olive: Client) -> None:
    first = olive.post("runs/", {**BODY, "metadata": CUSTOMER}).json()
    olive.post("runs/", {**BODY, "key": "CLM-10", "metadata": {"customer": "Other"}})
    listed = olive.get("runs/?metadata.customer=ACME&metadata.tries=3").json()[
        "results"
    ]
    assert [run["id"] for run in listed] == [first["id"]]
    assert (
        olive.get("runs/?metadata.customer=ACME&metadata.tries=4").json()["results"]
        == []
    )


@pytest.mark.parametrize("query", ["metadata.=x", "metadata.a%20b=x", "metadata.a=%00"])
def test_a_filter_by_metadata_that_no_run_can_have_is_refused(
    olive: Client, query: str
) -> None:
    assert olive.get(f"runs/?{query}").status_code == 422
