"""Who gets in, and how he is turned away."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client as Browser
from django.urls import URLPattern
from django.utils import timezone
from rest_framework.test import APIClient

from checkpoints.models import Run
from orchestrator import tokens, urls_api
from orchestrator.api.doors import DoorMessages
from orchestrator.models import ApiToken
from tests.support.api_people import Client
from tests.support.cast import People

START = {"graph": "gated", "input": {"claim_id": "C"}}


def test_without_a_token_or_a_session_nothing_is_told(people: People) -> None:
    answer = APIClient().get("/api/v1/runs/")
    assert answer.status_code == 401
    assert answer["WWW-Authenticate"] == "Token"
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["code"] == "not_authenticated"


@pytest.mark.parametrize("header", ["Token", "Token wrong", "Token ä", "Token a b"])
def test_a_wrong_token_is_turned_away(people: People, header: str) -> None:
    answer = APIClient().get(
        "/api/v1/runs/", headers={"Authorization": header.encode().decode("latin-1")}
    )
    assert answer.status_code == 401
    assert answer.json()["code"] == "authentication_failed"


def test_a_token_ends_when_it_is_revoked_or_out_of_date(olive: Client) -> None:
    assert olive.get("runs/").status_code == 200
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert olive.get("runs/").status_code == 401
    ApiToken.objects.update(expires_at=None, revoked_at=timezone.now())
    assert olive.get("runs/").status_code == 401


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        ("read", {"read"}),
        ("start", {"start"}),
        ("decide", {"decide"}),
        ("steer", {"steer"}),
        ("export", set()),
    ],
)
def test_a_token_is_good_for_its_scopes_only(
    people: People, paused: Run, scope: str, allowed: set[str]
) -> None:
    people.starter.is_superuser = True
    people.starter.save()
    client = Client(people.starter, [scope])
    answers = {
        "read": client.get("runs/"),
        "start": client.post("runs/", START),
        "decide": client.post("runs/CLM-1/signatures/", {"decisions": []}),
        "steer": client.post("runs/CLM-1/resume/"),
    }
    refused = {name for name, answer in answers.items() if answer.status_code == 403}
    assert refused == set(answers) - allowed
    assert all(answers[name].json()["code"] == "permission_denied" for name in refused)


def test_a_session_may_read_and_needs_the_csrf_token_to_post(people: People) -> None:
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(people.starter)
    assert browser.get("/api/v1/runs/").status_code == 200
    refused = browser.post("/api/v1/runs/", START, content_type="application/json")
    assert refused.status_code == 403
    assert refused.json()["code"] == "permission_denied"
    browser.cookies["csrftoken"] = token = "a" * 32
    answer = browser.post(
        "/api/v1/runs/",
        START,
        content_type="application/json",
        headers={"X-CSRFToken": token},
    )
    assert answer.status_code == 201


def test_every_post_names_a_scope_and_honours_idempotency_keys() -> None:
    """A message at a door is signed instead, and has an id of its own."""
    posting = [
        _view(p)
        for p in urls_api.v1
        if isinstance(p, URLPattern)
        and hasattr(_view(p), "post")
        and not issubclass(_view(p), DoorMessages)
    ]
    assert len(posting) >= 6
    for view in posting:
        assert view.scopes["POST"] in tokens.SCOPES, view
        assert "idempotency" in view.post.__code__.co_filename, view


def _view(pattern: Any) -> Any:
    return pattern.callback.cls
