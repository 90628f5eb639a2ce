"""A repeated POST gives the first one's answer, and acts once."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.db import connection, connections
from django.utils import timezone

from approvals.models import ApprovalRequest
from checkpoints.models import AuditLine, Run
from orchestrator.models import IdempotencyRecord
from tests.support import api_graphs as graphs
from tests.support.api_people import Client
from tests.support.cast import People
from tests.support.run_actions import pending

BODY = {"graph": "gated", "input": {"claim_id": "C"}}
KEY = {"Idempotency-Key": "k-1"}


def test_the_same_key_and_body_act_once_and_give_the_same_answer(olive: Client) -> None:
    first = olive.post("runs/", BODY, **KEY)
    second = olive.post("runs/", {"input": {"claim_id": "C"}, "graph": "gated"}, **KEY)
    assert first.status_code == 201
    assert second.status_code == 201
    assert first.json() == second.json()
    assert Run.objects.count() == 1
    assert olive.post("runs/", BODY).json()["id"] != first.json()["id"]


def test_the_same_key_with_another_body_is_refused(olive: Client) -> None:
    olive.post("runs/", BODY, **KEY)
    answer = olive.post("runs/", {**BODY, "input": {"claim_id": "D"}}, **KEY)
    assert answer.status_code == 422
    assert answer.json()["code"] == "idempotency_key_reused"
    assert Run.objects.count() == 1


def test_a_key_belongs_to_one_person_and_one_address(
    olive: Client, people: People
) -> None:
    first = olive.post("runs/", BODY, **KEY).json()["id"]
    second = Client(people.steward).post("runs/", BODY, **KEY).json()["id"]
    assert first != second
    assert olive.post(f"runs/{first}/resume/", BODY, **KEY).status_code == 400


def test_a_refusal_that_may_pass_is_not_kept_and_a_conflict_is(olive: Client) -> None:
    answer = olive.post("runs/", {**BODY, "graph": "later"}, **KEY)
    assert answer.status_code == 404
    assert not IdempotencyRecord.objects.exists()
    graphs.registry.replace(graphs.gated("later"))
    assert olive.post("runs/", {**BODY, "graph": "later"}, **KEY).status_code == 201
    olive.post("runs/", {**BODY, "key": "A"})
    body = {"graph": "gated", "input": {"claim_id": "other"}, "key": "A"}
    key = {"Idempotency-Key": "k-2"}
    first = olive.post("runs/", body, **key)
    second = olive.post("runs/", body, **key)
    assert first.status_code == second.status_code == 409
    assert first.json() == second.json()
    assert second["Content-Type"] == "application/problem+json"


def test_what_the_act_refused_left_nothing_behind(olive: Client) -> None:
    olive.post("runs/", {**BODY, "input": {"claim_id": "C", "amount": "many"}}, **KEY)
    assert not Run.objects.exists()
    assert olive.post("runs/", BODY, **KEY).status_code == 201


def test_answers_are_kept_for_a_week(olive: Client) -> None:
    first = olive.post("runs/", BODY, **KEY).json()["id"]
    IdempotencyRecord.objects.update(
        created_at=timezone.now() - timedelta(days=6, hours=23)
    )
    assert olive.post("runs/", BODY, **KEY).json()["id"] == first
    IdempotencyRecord.objects.update(
        created_at=timezone.now() - timedelta(days=7, hours=1)
    )
    assert olive.post("runs/", BODY, **KEY).json()["id"] != first
    assert IdempotencyRecord.objects.count() == 1


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_has_1_to_200_characters(olive: Client, key: str) -> None:
    assert olive.post("runs/", BODY, **{"Idempotency-Key": key}).status_code == 400


@pytest.mark.django_db(transaction=True)
def test_one_of_two_concurrent_calls_acts_and_both_get_its_answer(
    people: People,
) -> None:
    clients = [Client(people.starter), Client(people.starter)]
    gate = threading.Barrier(2)
    answers = []

    def post(client: Client) -> None:
        gate.wait()
        try:
            answers.append(client.post("runs/", BODY, **KEY))
        finally:
            connections.close_all()

    threads = [threading.Thread(target=post, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert [a.status_code for a in answers] == [201, 201], _bodies(answers)
    assert len({a.json()["id"] for a in answers}) == 1
    assert Run.objects.count() == 1
    connection.close()


def _bodies(answers: list[Any]) -> list[Any]:
    return [answer.json() for answer in answers]


def test_an_answer_is_not_given_again_to_who_may_not_see_the_run_any_more(
    paused: Run, people: People
) -> None:
    request = ApprovalRequest.objects.get(run=paused.id)
    rita = Client(people.reviewer)
    write = pending(paused)[0]
    body = {
        "decisions": [
            {"write": str(write.write), "hash": write.hash, "verdict": "approve"}
        ]
    }
    doors = [f"requests/{request.id}/decisions/", f"runs/{paused.id}/signatures/"]
    first = [rita.post(door, body, **KEY) for door in doors]
    assert [answer.status_code for answer in first] == [200, 409]
    assert [rita.post(door, body, **KEY).json() for door in doors] == [
        answer.json() for answer in first
    ]
    request.reviewers.all().delete()
    again = [rita.post(door, body, **KEY) for door in doors]
    assert [(answer.status_code, "lines" in answer.json()) for answer in again] == [
        (404, False)
    ] * 2
    assert write.label not in "".join(answer.content.decode() for answer in again)


def test_an_answer_is_not_given_again_to_who_lost_the_right_to_act(
    olive: Client, people: People
) -> None:
    assert olive.post("runs/", BODY, **KEY).status_code == 201
    people.starter.groups.clear()
    again = olive.post("runs/", BODY, **KEY)
    assert (again.status_code, again.json()["code"]) == (403, "forbidden")
    # The refusal is answered in the transaction, so that its line stays.
    assert AuditLine.objects.filter(kind="refused_right").count() == 1


def test_a_verb_is_not_answered_again_to_who_lost_its_right(
    paused: Run, people: People
) -> None:
    stella = Client(people.steward)
    path = f"runs/{paused.id}/cancel/"
    first = stella.post(path, {"reason": "No longer needed"}, **KEY)
    assert first.status_code == 200, first.json()
    people.steward.groups.clear()
    people.steward.user_permissions.add(Permission.objects.get(codename="view_run"))
    again = stella.post(path, {"reason": "No longer needed"}, **KEY)
    assert (again.status_code, again.json()["code"]) == (403, "forbidden")
