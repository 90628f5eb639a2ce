"""The step to references of answers: those that are there already are known behind it, encrypted or not."""

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps

from checkpoints.conf import keyring
from orchestrator.models import AnswerReference, IdempotencyRecord
from tests.support import cast, secret_claim
from tests.support.api_people import Client

pytestmark = pytest.mark.django_db(transaction=True)


def step() -> Any:
    return import_module("orchestrator.migrations.0005_answer_references").note_answers_that_are_there


def noted() -> set[tuple[str, Any]]:
    return set(AnswerReference.objects.values_list("record__key", "subject"))


@pytest.mark.parametrize("encrypted", [False, True])
def test_answers_that_are_there_are_found_behind_it(configure: Any, people: cast.People, encrypted: bool) -> None:
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    olive = Client(people.starter)
    olive.post("runs/", {"graph": "secret_claim", "input": {}, "key": "CLM-1"}, **{"Idempotency-Key": "a"})
    olive.post("runs/CLM-1/cancel/", {"reason": "a mistake"}, **{"Idempotency-Key": "b"})
    before = noted()
    assert {key for key, _ in before} == {"a", "b"}
    AnswerReference.objects.all().delete()
    step()(apps, None)
    assert noted() == before


@pytest.mark.parametrize("encrypted", [False, True])
def test_an_answer_that_does_not_open_does_not_stop_it(configure: Any, people: cast.People, encrypted: bool) -> None:
    if encrypted:
        configure(**secret_claim.keys())
    secret_claim.registered(encrypted=encrypted)
    Client(people.starter).post("runs/", {"graph": "secret_claim", "input": {}}, **{"Idempotency-Key": "a"})
    assert bool(keyring().encryption) == encrypted
    IdempotencyRecord.objects.update(answer=b"\xff not what was kept")
    AnswerReference.objects.all().delete()
    step()(apps, None)
    assert noted() == set()
