"""Tokens that are refused too often: 429 with the time to wait, by address and by
token, for all processes at once.
"""

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone
from rest_framework.test import APIClient

from checkpoints.models import AuditLine
from orchestrator import tokens
from orchestrator.models import ApiToken, FailedAuthentication
from tests.support.api_people import Client
from tests.support.cast import People

pytestmark = pytest.mark.django_db

LIMIT = 3
HERE = "203.0.113.9"
ELSEWHERE = "198.51.100.1"


@pytest.fixture(autouse=True)
def few_failures() -> Any:
    with override_settings(
        COUNTERSIGN={"API_FAILURES": LIMIT, "API_FAILURE_SECONDS": 60}
    ):
        yield


def ask(token: str, *, at: str = HERE) -> Any:
    return APIClient().get(
        "/api/v1/runs/", headers={"Authorization": f"Token {token}"}, REMOTE_ADDR=at
    )


def statuses(*requests: Any) -> list[int]:
    return [answer.status_code for answer in requests]


def test_after_too_many_wrong_tokens_an_address_is_told_to_wait() -> None:
    assert statuses(*(ask(f"cst_{n}wrongwrong") for n in range(LIMIT))) == [401] * LIMIT
    answer = ask("cst_yet_another_one")
    assert answer.status_code == 429
    assert answer["Content-Type"] == "application/problem+json"
    assert 0 < int(answer["Retry-After"]) <= 60
    problem = answer.json()
    assert problem["status"] == 429
    assert problem["code"] == "throttled"
    assert problem["detail"].startswith("too many tokens were refused.")
    assert ask("cst_yet_another_one", at=ELSEWHERE).status_code == 401


def test_a_token_that_is_refused_again_and_again_is_told_to_wait_wherever_it_comes_from(
    people: People,
) -> None:
    revoked = tokens.make_token(people.starter)
    ApiToken.objects.update(revoked_at=timezone.now())
    assert (
        statuses(*(ask(revoked, at=f"192.0.2.{n}") for n in range(LIMIT)))
        == [401] * LIMIT
    )
    assert ask(revoked, at=ELSEWHERE).status_code == 429
    assert ask(revoked[:12] + "tried another end", at=HERE).status_code == 429
    assert ask("cst_somebody_elses", at=ELSEWHERE).status_code == 401


def test_a_good_token_is_served_at_an_address_that_has_to_wait(olive: Client) -> None:
    for n in range(LIMIT + 1):
        APIClient().get(
            "/api/v1/runs/", headers={"Authorization": f"Token cst_{n}wrongwrong"}
        )
    assert (
        APIClient()
        .get("/api/v1/runs/", headers={"Authorization": "Token wrong"})
        .status_code
        == 429
    )
    assert olive.get("runs/").status_code == 200


def test_who_shows_no_token_is_not_counted() -> None:
    assert (
        statuses(*(APIClient().get("/api/v1/runs/") for _ in range(LIMIT * 2)))
        == [401] * LIMIT * 2
    )
    assert not FailedAuthentication.objects.exists()


def test_the_wait_ends_and_counting_begins_anew() -> None:
    for n in range(LIMIT):
        ask(f"cst_{n}wrongwrong")
    assert ask("wrong").status_code == 429
    FailedAuthentication.objects.update(ends_at=timezone.now() - timedelta(seconds=1))
    assert statuses(*(ask(f"cst_{n}wrongwrong") for n in range(LIMIT + 1))) == [
        401
    ] * LIMIT + [429]


@override_settings(
    CACHES={"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
)
def test_failures_are_counted_in_a_table_not_in_a_cache_of_one_process() -> None:
    assert statuses(*(ask(f"cst_{n}wrongwrong") for n in range(LIMIT + 1))) == [
        401
    ] * LIMIT + [429]


def test_what_is_refused_during_the_wait_prolongs_nothing_and_writes_nothing() -> None:
    for n in range(LIMIT):
        ask(f"cst_{n}wrongwrong")
    before = list(FailedAuthentication.objects.order_by("pk").values())
    assert statuses(*(ask(f"cst_{n}other") for n in range(5))) == [429] * 5
    assert list(FailedAuthentication.objects.order_by("pk").values()) == before


def test_rows_out_of_date_are_deleted() -> None:
    ask("cst_1wrongwrong", at=ELSEWHERE)
    FailedAuthentication.objects.update(ends_at=timezone.now() - timedelta(seconds=1))
    ask("cst_2wrongwrong", at=HERE)
    assert FailedAuthentication.objects.count() == 2
    assert not FailedAuthentication.objects.filter(
        subject=f"address:{ELSEWHERE}"
    ).exists()


def test_nothing_of_a_token_is_kept_where_failures_are_counted() -> None:
    ask("cst_secretsecretsecret")
    assert not [
        failure
        for failure in FailedAuthentication.objects.all()
        if "secret" in failure.subject
    ]


def test_the_wait_leaves_one_audit_line_that_names_tokens_and_no_other_secrets(
    people: People,
) -> None:
    for _ in range(LIMIT + 2):
        ask("hunter2hunter2")
    assert [(line.kind, line.facts) for line in AuditLine.objects.all()] == [
        ("tokens_throttled", {"address": HERE, "token": ""})
    ]
    revoked = tokens.make_token(people.starter)
    ApiToken.objects.update(revoked_at=timezone.now())
    for _ in range(LIMIT):
        ask(revoked, at=ELSEWHERE)
    line = AuditLine.objects.latest("id")
    assert line.facts == {"address": ELSEWHERE, "token": revoked[:12]}


@override_settings(
    COUNTERSIGN={"API_FAILURES": LIMIT, "CLIENT_ADDRESS_HEADER": "X-Real-IP"},
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
)
def test_behind_a_proxy_the_address_is_the_one_in_the_named_header() -> None:
    def behind(address: str, n: int) -> Any:
        headers = {"Authorization": f"Token cst_{n}{address}", "X-Real-IP": address}
        return APIClient().get("/api/v1/runs/", headers=headers, REMOTE_ADDR="10.0.0.1")

    assert statuses(*(behind(HERE, n) for n in range(LIMIT + 1))) == [401] * LIMIT + [
        429
    ]
    assert behind(ELSEWHERE, 9).status_code == 401


@override_settings(SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"))
def test_behind_a_proxy_without_one_tokens_alone_are_counted() -> None:
    assert statuses(*(ask(f"cst_{n}wrongwrong") for n in range(LIMIT + 1))) == [401] * (
        LIMIT + 1
    )
    assert statuses(*(ask("cst_always_the_same") for _ in range(LIMIT + 1))) == [
        401
    ] * LIMIT + [429]
