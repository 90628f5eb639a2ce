"""People decide on items that a caller names, over the API."""

import threading
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from approvals.models import ApprovalRequest
from checkpoints import retention
from checkpoints.models import Run
from checkpoints.sealing import sealed_columns
from checkpoints.verification import verify_run
from orchestrator import asking, runs
from orchestrator.engine import registry
from orchestrator.graphs import approval
from tests.support.api_people import Client
from tests.support.approvals import BODY, payers
from tests.support.cast import People, UserFactory
from tests.support.forging import tamper

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def asked_of_payers(people: People) -> None:
    registry.replace(approval)
    payers(people.reviewer)


def _asked(olive: Client, **changes: Any) -> dict[str, Any]:
    """Ask, let a worker open the request, and return the approval."""
    answer = olive.post("approvals/", {**BODY, **changes})
    assert answer.status_code == 201, answer.content
    runs.advance(answer.json()["id"])
    return _read(olive, answer.json()["id"])


def _read(client: Client, approval_id: str) -> dict[str, Any]:
    answer = client.get(f"approvals/{approval_id}/")
    assert answer.status_code == 200, answer.content
    shown: dict[str, Any] = answer.json()
    return shown


def _sign(client: Client, asked: dict[str, Any], *verdicts: Any) -> Any:
    decisions = []
    for item, verdict in zip(asked["items"], verdicts, strict=True):
        decisions.append({"write": item["write"], "hash": item["hash"], **verdict})
    return client.post(
        f"requests/{asked['request']}/decisions/", {"decisions": decisions}
    )


def test_what_people_are_asked_comes_back_signed(olive: Client, rita: Client) -> None:
    asked_approval = _asked(olive)
    assert asked_approval["state"] == "open"
    assert [item["label"] for item in asked_approval["items"]] == ["Invoice 1", "inv-2"]
    assert [item["effect"] for item in asked_approval["items"]] == ["external", "write"]
    signed = _sign(
        rita,
        asked_approval,
        {"verdict": "edit", "value": {"amount": "90.00"}},
        {"verdict": "reject", "reason": "twice"},
    )
    assert signed.status_code == 200, signed.content
    runs.advance(asked_approval["id"])
    settled = _read(olive, "INV-7")
    assert settled["state"] == "partial"
    paid, refused = settled["items"]
    assert (paid["verdict"], paid["edited"]) == ("approved", True)
    assert paid["value"] == {"amount": "90.00"}
    assert paid["proposed"] == {"amount": "100.00"}
    assert paid["hash"] != asked_approval["items"][0]["hash"]
    assert (refused["verdict"], refused["reason"]) == ("rejected", "twice")
    assert [row["by"] for row in refused["decisions"]] == ["rita"]
    assert verify_run(asked_approval["id"]) == []


def test_an_edit_must_fit_the_schema_of_its_item(olive: Client, rita: Client) -> None:
    asked_approval = _asked(olive)
    refused = _sign(
        rita,
        asked_approval,
        {"verdict": "edit", "value": {"amount": 90}},
        {"verdict": "approve"},
    )
    assert refused.status_code == 422
    assert refused.json()["path"] == "approved.amount"
    assert _read(olive, asked_approval["id"])["state"] == "open"


def test_the_same_key_and_content_is_the_same_approval(olive: Client) -> None:
    first = olive.post("approvals/", BODY)
    again = olive.post("approvals/", BODY)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert first.json()["state"] == "opening"
    other = olive.post("approvals/", {**BODY, "title": "Pay one"})
    assert other.status_code == 409
    assert other.json()["code"] == "key_conflict"
    assert Run.objects.count() == 1


def test_two_clients_that_ask_at_once_ask_once(people: People) -> None:
    clients = [Client(people.starter), Client(people.starter)]
    barrier = threading.Barrier(2)
    answers = []

    def post(client: Client) -> None:
        barrier.wait()
        try:
            answers.append(client.post("approvals/", BODY))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=post, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(answer.status_code for answer in answers) == [200, 201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Run.objects.count() == 1


def test_the_answer_that_was_lost_is_given_again(olive: Client) -> None:
    once = {"Idempotency-Key": "k-1"}
    body = {name: value for name, value in BODY.items() if name != "key"}
    first = olive.post("approvals/", body, **once)
    again = olive.post("approvals/", body, **once)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert Run.objects.count() == 1


def test_a_question_that_was_asked_stays_though_its_reviewers_left(
    olive: Client, people: People
) -> None:
    first = olive.post("approvals/", BODY)
    people.reviewer.groups.all().delete()
    assert olive.post("approvals/", BODY).json()["id"] == first.json()["id"]


def test_a_stranger_finds_no_approval(
    olive: Client, rita: Client, nobody: Client
) -> None:
    asked_approval = _asked(olive)
    assert rita.get("approvals/INV-7/").status_code == 200
    for path in (f"approvals/{asked_approval['id']}/", "approvals/INV-7/"):
        assert nobody.get(path).status_code == 404
        assert nobody.post(f"{path}cancel/").status_code == 404
    assert nobody.get("approvals/").json()["results"] == []
    assert nobody.post("approvals/", BODY).status_code == 403


def test_a_run_of_another_graph_is_no_approval(olive: Client, paused: Run) -> None:
    assert olive.get(f"approvals/{paused.id}/").status_code == 404
    assert olive.post(f"approvals/{paused.id}/cancel/").status_code == 404


def test_approvals_are_listed_by_state_and_key(olive: Client) -> None:
    asked_approval = _asked(olive)
    olive.post("approvals/", {**BODY, "key": "INV-8"})
    lines = olive.get("approvals/").json()["results"]
    assert [(line["key"], line["state"]) for line in lines] == [
        ("INV-8", "opening"),
        ("INV-7", "open"),
    ]
    assert lines[1]["title"] == BODY["title"]
    by_key = olive.get("approvals/", key="INV-7").json()["results"]
    assert [line["id"] for line in by_key] == [asked_approval["id"]]
    waiting = olive.get("approvals/", status="paused").json()["results"]
    assert [line["key"] for line in waiting] == ["INV-7"]


def test_a_question_is_taken_back(olive: Client, rita: Client) -> None:
    asked_approval = _asked(olive)
    assert rita.post("approvals/INV-7/cancel/").status_code == 403
    taken = olive.post("approvals/INV-7/cancel/", {"reason": "paid already"})
    assert taken.json()["state"] == "cancelled"
    approve = {"verdict": "approve"}
    assert _sign(rita, asked_approval, approve, approve).status_code == 409


def _report(client: Client, **outcome: Any) -> Any:
    items = asking.approval_of(Run.objects.get(key="INV-7")).items
    hashes = {item.id: item.hash or "0" * 64 for item in items}
    outcome = {"item": "inv-1", "result": "done", **outcome}
    outcomes = [{"hash": hashes[outcome["item"]], **outcome}]
    return client.post("approvals/INV-7/outcomes/", {"outcomes": outcomes})


def test_whoever_acts_on_an_item_reports_what_came_of_it(
    olive: Client, rita: Client, nobody: Client, people: People
) -> None:
    asked_approval = _asked(olive, reports=True)
    assert asked_approval["reports"] is True
    assert _report(olive).status_code == 409
    approve = {"verdict": "approve"}
    _sign(rita, asked_approval, approve, {"verdict": "reject"})
    runs.advance(asked_approval["id"])
    before = _read(olive, "INV-7")
    assert [item["outcome"] for item in before["items"]] == [None, None]

    statement = {"result": "failed", "detail": "closed"}
    user = UserFactory.create()
    user.groups.add(*people.starter.groups.all())
    assert _report(Client(user), **statement).status_code == 403
    answer = _report(olive, **statement)
    assert answer.status_code == 200, answer.content
    assert answer.json() == _read(olive, "INV-7") == _report(olive, **statement).json()
    outcome = answer.json()["items"][0]["outcome"]
    assert outcome.pop("at") is not None
    by = people.starter.get_username()
    assert outcome == {"result": "failed", "detail": "closed", "by": by}

    assert _report(Client(people.steward), **statement).status_code == 200
    # A further attempt may succeed, and what is done stays done.
    assert _report(olive).status_code == 200
    other = _report(olive, **statement)
    assert (other.status_code, other.json()["code"]) == (409, "already_reported")
    assert other.json()["item"] == "inv-1"
    refused = _report(olive, item="inv-2")
    assert (refused.status_code, refused.json()["item"]) == (409, "inv-2")
    assert _report(olive, hash="0" * 64).status_code == 409
    assert _report(olive, hash="").status_code == 400
    assert _report(olive, result="paid").status_code == 400
    assert _report(rita, result="unknown").status_code == 403
    assert _report(nobody).status_code == 404
    reader = Client(people.starter, scopes=["read", "steer"])
    assert _report(reader).status_code == 403


def test_what_moved_is_not_signed(olive: Client, rita: Client) -> None:
    asked_approval = _asked(olive)
    asked_approval["items"][0]["hash"] = "0" * 64
    approve = {"verdict": "approve"}
    stale = _sign(rita, asked_approval, approve, approve).json()
    lines = {line["write"]: line["result"] for line in stale["lines"]}
    assert lines[asked_approval["items"][0]["write"]] == "came_back"


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"reviewers": ["user:nobody-there"]}, "reviewers"),
        ({"reviewers": ["group:nobody-there"]}, "reviewers"),
        ({"reviewers": ["perm:approvals.nothing"]}, "reviewers"),
        ({"reviewers": ["everybody"]}, "reviewers"),
        ({"reviewers": []}, "reviewers"),
        ({"reviewers": ["user:rita"], "quorum": 2}, "reviewers"),
        ({"deadline": "2020-01-01T00:00:00Z"}, "deadline"),
        ({"deadline": 0}, "deadline"),
        ({"deadline": "2100-01-01T00:00:00Z"}, "deadline"),
        ({"deadline": "0001-01-01T00:00:00+14:00"}, "deadline"),
        ({"key": "a/b"}, "key"),
        ({"items": [{"id": "a", "value": 1}, {"id": "a", "value": 2}]}, "items[1].id"),
        (
            {"items": [{"id": "a", "value": 1, "schema": {"type": "string"}}]},
            "items[0].value",
        ),
        (
            {"items": [{"id": "a", "value": 1, "schema": {"$ref": "http://x/y"}}]},
            "items[0].schema.$ref",
        ),
        (
            {"items": [{"id": "a", "value": 1, "schema": "print(1)"}]},
            "items[0].schema",
        ),
        (
            {"items": [{"id": "a", "value": "", "schema": {"pattern": "(a+)+$"}}]},
            "items[0].schema.pattern",
        ),
    ],
)
def test_a_question_that_nobody_could_answer_is_refused(
    olive: Client, changes: dict[str, Any], path: str
) -> None:
    answer = olive.post("approvals/", {**BODY, **changes})
    assert answer.status_code == 422, answer.content
    assert answer.json()["path"] == path
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"title": ""}, "title"),
        ({"items": []}, "items"),
        ({"items": [{"id": "a"}]}, "items[0].value"),
        ({"items": [{"id": "a", "value": 1, "effect": "payment"}]}, "items[0].effect"),
        ({"deadline": "tomorrow"}, "deadline"),
        ({"on_deadline": "approve"}, "on_deadline"),
        ({"quorum": 0}, "quorum"),
        ({"graph": "other"}, "graph"),
    ],
)
def test_a_body_that_is_none_is_refused_by_name(
    olive: Client, changes: dict[str, Any], path: str
) -> None:
    answer = olive.post("approvals/", {**BODY, **changes})
    assert answer.status_code == 400, answer.content
    assert path in str(answer.json()["errors"])
    assert not Run.objects.exists()


def test_four_eyes_exclude_for_whom_a_token_asks(
    olive: Client, rita: Client, people: People
) -> None:
    body = {**BODY, "four_eyes": True}
    assert olive.post("approvals/", body).json()["path"] == "on_behalf_of"
    asked_approval = _asked(
        olive, four_eyes=True, on_behalf_of=people.reviewer.username
    )
    approve = {"verdict": "approve"}
    assert _sign(rita, asked_approval, approve, approve).status_code == 403
    alone = {**body, "key": "B", "reviewers": ["user:rita"], "on_behalf_of": "rita"}
    assert olive.post("approvals/", alone).status_code == 422


def test_nobody_starts_the_shipped_graph_past_the_question(olive: Client) -> None:
    body = {"graph": approval.name, "input": {}}
    assert olive.post("runs/", body).status_code == 422
    names = [graph["name"] for graph in olive.get("graphs/").json()["results"]]
    assert approval.name not in names


def test_a_fork_and_a_rewind_ask_the_same_people_for_the_same(
    olive: Client, people: People
) -> None:
    asked_approval = _asked(olive, quorum=2)
    forked = olive.post("checkpoints/INV-7:initial/fork/", {})
    assert forked.status_code == 201, forked.content
    runs.advance(forked.json()["id"])
    shown = _read(olive, forked.json()["id"])
    assert (shown["state"], shown["quorum"]) == ("open", 2)
    runs.rewind(
        asked_approval["id"], "INV-7:initial", by=User.objects.get(username="olive")
    )
    runs.advance(asked_approval["id"])
    again = _read(olive, asked_approval["id"])
    assert again["state"] == "open"
    assert again["request"] != asked_approval["request"]
    assert verify_run(asked_approval["id"]) == []


def test_what_was_asked_is_read_only_as_it_was_sealed(
    olive: Client, rita: Client
) -> None:
    asked_approval = _asked(olive)
    _sign(
        rita,
        asked_approval,
        {"verdict": "approve"},
        {"verdict": "reject", "reason": "no"},
    )
    runs.advance(asked_approval["id"])
    run = Run.objects.get(id=asked_approval["id"])
    question = sealed_columns.read_value(run, "input")
    first, second = question["items"]
    # The item that was refused takes the name of the one that was approved.
    first["id"], second["id"] = second["id"], first["id"]
    tamper(run, input=sealed_columns.pack_json(question))
    answer = olive.get(f"approvals/{run.id}/")
    assert (answer.status_code, answer.json()["code"]) == (409, "tampered_row")


def test_the_state_is_what_people_signed_whatever_a_column_says(
    olive: Client, rita: Client
) -> None:
    asked_approval = _asked(olive)
    reject = {"verdict": "reject", "reason": "no"}
    _sign(rita, asked_approval, reject, reject)
    runs.advance(asked_approval["id"])
    tamper(
        ApprovalRequest.objects.get(id=asked_approval["request"]), outcome="approved"
    )
    assert _read(olive, asked_approval["id"])["state"] == "rejected"


@pytest.mark.parametrize("paths", [None, ["input.items"], ["input.title"]])
def test_an_approval_whose_values_were_erased_is_gone(
    olive: Client, people: People, paths: list[str] | None
) -> None:
    asked_approval = _asked(olive)
    olive.post("approvals/INV-7/cancel/")
    retention.erase(asked_approval["id"], paths, by=people.steward)
    answers = [
        olive.get("approvals/INV-7/"),
        olive.post("approvals/", BODY),
        olive.post("approvals/INV-7/cancel/"),
    ]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (410, "erased")
    [line] = olive.get("approvals/").json()["results"]
    assert line["state"] == "cancelled"


def test_a_rewind_leaves_no_verdict_standing(
    olive: Client, rita: Client, people: People
) -> None:
    asked_approval = _asked(olive)
    approve = {"verdict": "approve"}
    _sign(rita, asked_approval, approve, approve)
    runs.advance(asked_approval["id"])
    assert _state(olive) == "approved"
    runs.rewind(asked_approval["id"], "INV-7:at-0", by=people.starter)
    assert _state(olive) == "opening"
    runs.advance(asked_approval["id"])
    assert _state(olive) == "open"
    # Back to behind the decision, past the request that another line asked.
    runs.rewind(asked_approval["id"], "INV-7:at-2", by=people.starter)
    assert _state(olive) == "approved"
    runs.advance(asked_approval["id"])
    assert _state(olive) == "approved"
    assert _read(olive, asked_approval["id"])["request"] == asked_approval["request"]
    assert verify_run(asked_approval["id"]) == []


def _state(olive: Client) -> str:
    """Return the state of INV-7, as it reads by itself and in the list alike."""
    alone = _read(olive, "INV-7")["state"]
    [line] = olive.get("approvals/").json()["results"]
    assert line["state"] == alone
    return str(alone)


def test_a_list_reads_no_values(olive: Client) -> None:
    _asked(olive)
    with CaptureQueriesContext(connection) as captured:
        olive.get("approvals/")
    about_requests = []
    for query in captured.captured_queries:
        if 'FROM "approvals_approvalrequest"' in query["sql"]:
            about_requests.append(query["sql"])
    assert about_requests
    assert not [sql for sql in about_requests if '"facts"' in sql or '"why"' in sql]


def test_a_callback_is_named_with_the_question_and_its_secret_shown_once(
    olive: Client, rita: Client, people: People, configure: Any
) -> None:
    configure(CALLBACK_HOSTS=["hooks.example.org"])
    stella = Client(people.steward)
    body = {**BODY, "callback": {"url": "https://hooks.example.org/a"}}
    header = {"Idempotency-Key": "k-1"}
    first = olive.post("approvals/", body, **header)
    assert first.status_code == 201, first.content
    assert first.json()["callback_secret"].startswith("whsec_")
    for again in (
        olive.post("approvals/", body, **header),
        olive.post("approvals/", body),
    ):
        assert again.json()["id"] == first.json()["id"]
        assert "callback_secret" not in again.json()
    other = {**body, "callback": {"url": "https://hooks.example.org/b"}}
    for changed in (other, BODY, {**BODY, "callback": None}):
        refused = olive.post("approvals/", changed)
        assert (refused.status_code, refused.json()["code"]) == (409, "key_conflict")
    path = f"approvals/{first.json()['id']}/callback/"
    for client in (olive, stella):
        shown = client.get(path).json()
        assert (shown["url"], shown["deliveries"]) == (
            "https://hooks.example.org/a",
            [],
        )
        assert "secret" not in shown
    runs.advance(first.json()["id"])
    assert rita.get(f"approvals/{first.json()['id']}/").status_code == 200
    assert rita.get(path).status_code == 404
    assert stella.get("webhooks/").json()["results"] == []
    assert stella.delete(f"webhooks/{shown['id']}/").status_code == 409


@pytest.mark.parametrize(
    ("callback", "status"),
    [
        ({"url": "https://elsewhere.example.org/"}, 422),
        ({"url": "http://127.0.0.1/"}, 422),
        ({"url": ""}, 400),
        ({}, 400),
        ({"url": "https://hooks.example.org/", "secret": "mine"}, 400),
        ("https://hooks.example.org/", 400),
    ],
)
def test_what_is_no_callback_asks_nobody(
    olive: Client, configure: Any, callback: Any, status: int
) -> None:
    configure(CALLBACK_HOSTS=["hooks.example.org"])
    answer = olive.post("approvals/", {**BODY, "callback": callback})
    assert answer.status_code == status, answer.content
    assert "elsewhere" not in answer.content.decode()
    assert not Run.objects.exists()
