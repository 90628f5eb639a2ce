"""Who comes too often from one address has to wait, before a session is made for them."""

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from orchestrator.company_login import throttle
from orchestrator.models import FailedAuthentication
from tests.support.oidc_provider import CompanyDirectory

HERE = "203.0.113.9"
ELSEWHERE = "198.51.100.1"


@pytest.fixture(autouse=True)
def few_visits(directory: CompanyDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "MOST_VISITS", 2)


def visit(path: str, *, at: str = HERE) -> Any:
    return Client().get(path, REMOTE_ADDR=at)


def test_no_session_is_made_for_an_address_that_comes_too_often() -> None:
    for _ in range(2):
        assert visit("/login/company/").status_code == 302
    answer = visit("/login/company/")
    assert answer.status_code == 429
    assert 0 < int(answer["Retry-After"]) <= 60
    assert "from your network" in answer.content.decode()
    assert Session.objects.count() == 2
    assert visit("/login/company/", at=ELSEWHERE).status_code == 302


def test_the_provider_is_not_asked_for_an_address_that_comes_too_often() -> None:
    statuses = [visit("/login/company/left/").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    # Another page counts for itself.
    assert visit("/login/company/").status_code == 302


def test_visitors_without_an_address_are_not_counted_as_one() -> None:
    statuses = [visit("/login/company/left/", at="").status_code for _ in range(3)]
    assert statuses == [200, 200, 200]
    assert not FailedAuthentication.objects.exists()
