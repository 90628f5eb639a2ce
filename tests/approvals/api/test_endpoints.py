"""Requests over the API, and decisions on what they ask."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalRequest, Decision
from checkpoints.models import AuditLine, Run
from checkpoints.sealing.sealed_columns import pack_json
from orchestrator import runs
from tests.support import run_actions
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.confirmed_graphs import gated
from tests.support.rows import a_request, a_run
from tests.support.small_graphs import advanced
from tests.support.statements import counted


def request_of(client: Client) -> dict[str, Any]:
    (line,) = client.get("requests/", waiting="me").json()["results"]
    body: dict[str, Any] = client.get(f"requests/{line['id']}/").json()
    return body


def decisions(request: dict[str, Any], *verdicts: str, **extra: Any) -> dict[str, Any]:
    signed = [
        {"write": write["id"], "hash": write["hash"], "verdict": verdict, **extra}
        for write, verdict in zip(request["writes"], verdicts, strict=False)
    ]
    return {"decisions": signed}


def test_a_request_shows_each_write_with_its_current_value_and_its_hash(
    rita: Client, paused: Run
) -> None:
    request = request_of(rita)
    assert request["title"] == "Pay the claim?"
    assert request["run"] == str(paused.id)
    assert request["run_key"] == "CLM-1"
    assert request["graph"] == "gated"
    assert request["node"] == "propose"
    assert request["visit"] == 1
    assert request["index"] == 0
    assert request["kind"] == "writes"
    assert request["reviewers"] == ["user:rita"]
    assert request["quorum"] == 1
    assert request["deadline"] is None
    assert request["on_deadline"] == ""
    assert request["tiers"] == []
    assert request["may_decide"] == {"yes": True, "why_not": ""}
    payout, letter, notes = request["writes"]
    assert payout["position"] == 0
    assert payout["channel"] == "payout"
    assert payout["value"] == {"amount": 40}
    assert payout["current"] == {}
    assert payout["bound"] is True
    assert payout["revision"] == 1
    assert payout["settled"] == ""
    assert payout["verdicts"] == []
    assert letter["value"] == "Dear Marta"
    assert letter["current"] == ""
    assert notes["bound"] is False
    assert notes["current"] == ["claim CLM-1"]
    assert len({write["hash"] for write in request["writes"]}) == 3


def test_a_request_says_what_its_proposal_was_made_from(
    rita: Client, paused: Run
) -> None:
    request = request_of(rita)
    approval_request = ApprovalRequest.objects.get(id=request["id"])
    assert request["ordinal"] == 0
    assert request["input_hash"] == approval_request.input_hash
    before = rita.get(f"checkpoints/{request['prepared_from']}/").json()
    assert before["run"] == str(paused.id)
    assert before["alias"] == "CLM-1:at-1"
    assert before["state"]["scratch"]["notes"] == ["claim CLM-1"]


def test_writes_are_decided_one_by_one_and_the_run_goes_on_with_exactly_that(
    rita: Client, paused: Run
) -> None:
    request = request_of(rita)
    path = f"requests/{request['id']}/decisions/"
    receipt = rita.post(path, decisions(request, "approve")).json()
    assert [(line["result"], line["verdict"]) for line in receipt["lines"]] == [
        ("counted", "approve")
    ]
    assert receipt["by"] == "rita"
    rest = decisions(request, "approve", "reject", "edit")["decisions"][1:]
    rest[1]["value"] = ["corrected"]
    assert rita.post(path, {"decisions": rest}).status_code == 200
    run = runs.advance(paused.id)
    assert run.status == "completed"
    state = rita.get("checkpoints/CLM-1:step-3/state/").json()["scratch"]
    assert state == {
        "payout": {"amount": 40},
        "letter": "",
        "notes": ["claim CLM-1", "corrected", "finished"],
    }


def test_the_verdicts_so_far_stand_beside_each_write(rita: Client, paused: Run) -> None:
    request = request_of(rita)
    rita.post(
        f"requests/{request['id']}/decisions/",
        decisions(request, "reject", reason="too much"),
    )
    payout = rita.get(f"requests/{request['id']}/").json()["writes"][0]
    assert payout["settled"] == "rejected"
    (verdict,) = payout["verdicts"]
    assert verdict["verdict"] == "reject"
    assert verdict["by"] == "rita"
    assert verdict["reason"] == "too much"


def test_under_four_eyes_a_write_says_to_its_editor_why_he_may_not_decide_it(
    rita: Client, people: People
) -> None:
    runs.advance(
        runs.start(
            "careful",
            {"claim_id": "CLM-9", "amount": 40},
            key="CLM-9",
            by=people.starter,
        ).id
    )
    request = request_of(rita)
    path = f"requests/{request['id']}/decisions/"
    receipt = rita.post(path, decisions(request, "edit", value={"amount": 1}))
    assert [(line["result"], line["why"]) for line in receipt.json()["lines"]] == [
        ("kept", "four_eyes")
    ]
    payout, letter, _ = rita.get(f"requests/{request['id']}/").json()["writes"]
    assert payout["label"] == "Payout: amount 1"
    assert payout["why_not"][:22] == "You edited this write,"
    assert letter["why_not"] == ""
    refused = rita.post(path, decisions({"writes": [payout]}, "reject"))
    assert refused.status_code == 403
    assert refused.json()["code"] == "not_a_reviewer"


def test_signatures_decide_over_several_requests_of_a_run(
    rita: Client, paused: Run
) -> None:
    request = request_of(rita)
    receipt = rita.post(
        "runs/CLM-1/signatures/", decisions(request, "approve", "approve", "approve")
    )
    assert receipt.status_code == 200
    assert runs.advance(paused.id).status == "completed"
    listed = rita.get("runs/CLM-1/decisions/").json()["results"]
    assert [(d["channel"], d["verdict"], d["by"]) for d in listed] == [
        ("payout", "approve", "rita"),
        ("letter", "approve", "rita"),
        ("notes", "approve", "rita"),
    ]
    assert listed[0]["proposed_value"] == listed[0]["final_value"] == {"amount": 40}
    assert listed[0]["old_value"] == {}


def test_an_undecided_run_stays_paused_whatever_is_tried(
    olive: Client, paused: Run
) -> None:
    assert olive.post("runs/CLM-1/resume/").status_code == 409
    assert (
        olive.post(
            "runs/",
            {
                "graph": "gated",
                "input": {"claim_id": "CLM-1", "amount": 40},
                "key": "CLM-1",
            },
        ).status_code
        == 200
    )
    assert runs.advance(paused.id).status == "paused"


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"write": "6b1f1f3e-0000-4000-8000-000000000000"}, 404, "unknown_thing"),
        ({"write": "no id"}, 400, "invalid_body"),
        ({"hash": "0" * 64}, 409, "stale_proposal"),
        ({"verdict": "maybe"}, 400, "invalid_body"),
        ({"verdict": "edit", "value": {"amount": "much"}}, 422, "invalid_value"),
        ({"verdict": "edit"}, 422, "invalid_value"),
        ({"colour": "red"}, 400, "invalid_body"),
    ],
)
def test_a_bad_decision_is_refused_by_name_and_nothing_is_decided(
    rita: Client, paused: Run, change: dict[str, Any], status: int, code: str
) -> None:
    request = request_of(rita)
    body = decisions(request, "approve")
    body["decisions"][0] |= change
    answer = rita.post(f"requests/{request['id']}/decisions/", body)
    assert answer.status_code == status, answer.json()
    assert answer.json()["code"] == code, answer.json()
    assert not Decision.objects.exists()


def test_an_act_of_signing_needs_a_decision(rita: Client, paused: Run) -> None:
    path = f"requests/{request_of(rita)['id']}/decisions/"
    for body in ({}, {"decisions": []}, {"decisions": {}}, {"decisions": ["approve"]}):
        assert rita.post(path, body).status_code == 400


def test_deciding_what_is_settled_names_who_settled_it(
    rita: Client, paused: Run
) -> None:
    request = request_of(rita)
    path = f"requests/{request['id']}/decisions/"
    rita.post(path, decisions(request, "approve"))
    answer = rita.post(path, decisions(request, "reject"))
    assert answer.status_code == 409
    assert answer.json()["code"] == "already_decided"
    assert answer.json()["by"] == ["rita"]
    rita.post(
        path,
        {
            "decisions": decisions(request, "approve", "approve", "approve")[
                "decisions"
            ][1:]
        },
    )
    assert (
        rita.post(path, decisions(request, "reject")).json()["code"]
        == "already_decided"
    )


def test_who_may_see_but_is_no_reviewer_is_refused_and_audited(
    olive: Client, paused: Run
) -> None:
    (line,) = olive.get("requests/").json()["results"]
    request = olive.get(f"requests/{line['id']}/").json()
    assert request["may_decide"] == {
        "yes": False,
        "why_not": "You are not one of its reviewers.",
    }
    for key in ({}, {"Idempotency-Key": "k1"}):
        answer = olive.post(
            f"requests/{line['id']}/decisions/", decisions(request, "approve"), **key
        )
        assert answer.status_code == 403
        assert answer.json()["code"] == "not_a_reviewer"
    assert (
        AuditLine.objects.filter(
            kind="refused_not_a_reviewer", actor_name="olive"
        ).count()
        == 2
    )
    assert not Decision.objects.exists()


def test_a_request_that_one_may_not_see_does_not_exist(
    nobody: Client, rita: Client, paused: Run
) -> None:
    request = request_of(rita)
    assert nobody.get("requests/").json()["results"] == []
    assert nobody.get(f"requests/{request['id']}/").status_code == 404
    assert (
        nobody.post(
            f"requests/{request['id']}/decisions/", decisions(request, "approve")
        ).status_code
        == 404
    )
    assert (
        nobody.post("runs/CLM-1/signatures/", decisions(request, "approve")).status_code
        == 404
    )


def test_requests_are_narrowed_by_run_and_graph(rita: Client, olive: Client) -> None:
    run = a_run(graph="one")
    two = a_run(graph="two")
    first = a_request(run, "user:rita")
    second = a_request(two, "user:ravi")
    assert [r["id"] for r in olive.get("requests/").json()["results"]] == [
        str(second.id),
        str(first.id),
    ]
    assert [r["id"] for r in olive.get("requests/", graph="one").json()["results"]] == [
        str(first.id)
    ]
    assert [r["id"] for r in olive.get("requests/", run=two.key).json()["results"]] == [
        str(second.id)
    ]
    assert [r["id"] for r in rita.get("requests/", waiting="me").json()["results"]] == [
        str(first.id)
    ]
    assert rita.get("requests/", waiting="you").status_code == 400


def test_lists_and_single_requests_take_a_constant_number_of_queries(
    rita: Client, people: People
) -> None:
    def count(path: str, **query: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert rita.get(path, **query).status_code == 200
        return len(captured)

    run = a_run()
    a_request(run, "user:rita")
    few = count("requests/"), count("requests/", waiting="me")
    for _ in range(15):
        a_request(a_run(), "user:rita", "group:reviewer")
    assert (count("requests/"), count("requests/", waiting="me")) == few


def test_one_request_takes_as_many_queries_for_three_writes_as_for_one(
    rita: Client, paused: Run
) -> None:
    path = f"requests/{request_of(rita)['id']}/"
    with CaptureQueriesContext(connection) as captured:
        rita.get(path)
    # The token, groups and permissions, the request, its writes, decisions twice, the
    # state now (its row, then its checkpoints), and who may decide.
    assert len(captured) <= 13


@pytest.mark.parametrize(
    ("stored", "shown"),
    [("It is much", "It is much"), ({"code": "x"}, '{"code": "x"}')],
)
def test_why_people_are_asked_is_a_sentence_whatever_a_bundle_brought(
    stored: Any, shown: str, rita: Client
) -> None:
    request = a_request(a_run(), "group:reviewer", why=pack_json(stored))
    assert rita.get(f"requests/{request.id}/").json()["why"] == shown


def test_who_reads_a_request_whole_has_looked_at_it_where_its_gate_asks(
    people: People,
) -> None:
    reviewer = run_actions.reviewer(people.reviewer)
    client = Client(reviewer)
    run = advanced(gated("looked_at", considered="opened"))
    other = advanced(gated("not_looked_at"))
    here = f"requests/{run_actions.request(run).id}/"
    there = f"requests/{run_actions.request(other).id}/"
    request = client.get("requests/", run=run.key).json()["results"][0]
    (row,) = run_actions.pending(run)
    body = {
        "decisions": [{"write": str(row.write), "hash": row.hash, "verdict": "approve"}]
    }
    # Neither a list, nor a look at whether it is there, nor one by somebody else, nor by
    # a program that may not sign.
    client.http.head(f"/api/v1/{here}")
    assert Client(reviewer, ["read"]).get(here).status_code == 200
    Client(people.steward).get(here)
    refused = client.post(f"{here}decisions/", body)
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["code"] == "not_considered"
    assert problem["writes"] == [str(row.write)]
    assert (problem["seconds"], problem["unopened"]) == (0, 1)
    assert request["status"] == "open"

    assert client.get(here).json()["policy"]["considered"] == "opened"
    assert client.post(f"{here}decisions/", body).status_code == 200
    with counted() as sent:
        client.get(there)
    assert not [query for query in sent if "approvals_sighting" in query]
