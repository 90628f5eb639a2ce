"""What a kept answer tells of is known by the ids in it: an erasure finds the answers
about a run among all others.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from checkpoints import retention
from checkpoints.models import Run
from orchestrator import erasure
from orchestrator.answer_references import answers_about
from orchestrator.models import AnswerReference, IdempotencyRecord
from tests.support import cast, secret_claim
from tests.support.api_people import Client
from tests.support.statements import counted

pytestmark = pytest.mark.django_db(transaction=True)


def started(client: Client, key: str) -> Run:
    answer = client.post(
        "runs/",
        {"graph": "secret_claim", "input": {}, "key": key},
        **{"Idempotency-Key": key},
    )
    return Run.objects.get(id=answer.json()["id"])


def asked(client: Client, key: str, what: str = "cancel") -> Any:
    return client.post(
        f"runs/{key}/{what}/",
        {"reason": "a mistake"},
        **{"Idempotency-Key": f"{what} {key}"},
    )


@pytest.fixture
def olive(people: cast.People, configure: Any) -> Client:
    """A person who starts runs of the graph `secret_claim`, whose answers are
    encrypted.
    """
    configure(**secret_claim.keys())
    secret_claim.registered(encrypted=True)
    return Client(people.starter)


def test_the_answers_about_a_run_are_found_by_its_id_and_by_its_key_in_the_address(
    olive: Client,
) -> None:
    run = started(olive, "CLM-1")
    other = started(olive, "CLM-2")
    assert asked(olive, "CLM-1").status_code == 200
    assert asked(olive, str(other.id)).status_code == 200
    keys = {record.key for record in answers_about([run.id])}
    assert keys == {"CLM-1", "cancel CLM-1"}
    assert {record.key for record in answers_about([other.id])} == {
        "CLM-2",
        f"cancel {other.id}",
    }
    assert answers_about([]).count() == 0


def test_an_erasure_opens_no_answer_and_costs_nothing_because_of_those_about_others(
    olive: Client, people: cast.People, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [started(olive, f"CLM-{n}") for n in range(12)]
    for run in runs[:2]:
        assert asked(olive, run.key).status_code == 200
    sent = []
    for run, more in ((runs[0], 10), (runs[1], 0)):
        with counted() as here:
            erasure._answers(run).count()
            erasure._erase_answers(
                run, retention.erase(run.id, by=people.steward), None
            )  # type: ignore[arg-type]
        sent.append(
            [
                sql
                for sql in here
                if "orchestrator_" in sql and '"orchestrator_bulk' not in sql
            ]
        )
        if more:
            IdempotencyRecord.objects.filter(
                key__in=[run.key for run in runs[2:]]
            ).delete()
    assert len(sent[0]) == len(sent[1])
    assert not [
        sql
        for query in sent
        for sql in query
        if sql.startswith("SELECT") and '"answer"' in sql.split(" FROM ")[0]
    ]


def test_references_go_with_their_answers(olive: Client) -> None:
    started(olive, "CLM-1")
    before = list(AnswerReference.objects.values_list("id", flat=True))
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(days=8))
    started(olive, "CLM-1")
    assert before
    assert AnswerReference.objects.exists()
    assert not AnswerReference.objects.filter(id__in=before).exists()


def test_a_post_looks_for_no_answers_but_those_under_its_key(olive: Client) -> None:
    started(olive, "CLM-1")
    IdempotencyRecord.objects.update(created_at=timezone.now() - timedelta(days=8))
    with counted() as sent:
        started(olive, "CLM-2")
    looked = [
        sql
        for sql in sent
        if '"orchestrator_idempotencyrecord"."created_at" <' in sql.split("WHERE")[-1]
    ]
    assert looked
    assert all('"key" = ' in sql for sql in looked)
    assert IdempotencyRecord.objects.count() == 2, (
        "those out of date go with a standing job"
    )


def test_what_is_refused_and_not_kept_leaves_none(olive: Client) -> None:
    assert asked(olive, "CLM-0").status_code == 404
    assert not AnswerReference.objects.exists()
