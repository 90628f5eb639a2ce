"""Clients of the API: people with tokens, and people in a browser."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from orchestrator import runs, tokens
from tests.support import api_graphs as graphs
from tests.support.cast import People


@pytest.fixture(autouse=True)
def api_graphs_are_registered() -> None:
    graphs.register()


class Client:
    """One person's token at the API. Paths begin below /api/v1/."""

    def __init__(self, user: User, scopes: list[str] | None = None) -> None:
        self.http = APIClient(raise_request_exception=True)
        self.http.credentials(
            HTTP_AUTHORIZATION=f"Token {tokens.make_token(user, scopes=scopes or tokens.SCOPES)}"
        )

    def get(self, path: str, /, **query: Any) -> Any:
        return self.http.get(f"/api/v1/{path}", query)

    def delete(self, path: str) -> Any:
        return self.http.delete(f"/api/v1/{path}")

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        return self.http.post(
            f"/api/v1/{path}",
            body if body is not None else {},
            format="json",
            headers=headers,
        )


@pytest.fixture
def olive(people: People) -> Client:
    """Starts and steers."""
    return Client(people.starter)


@pytest.fixture
def rita(people: People) -> Client:
    """A person who decides."""
    return Client(people.reviewer)


@pytest.fixture
def nobody(people: People) -> Client:
    """A person without any right."""
    return Client(people.nobody)


@pytest.fixture
def paused(people: People) -> Any:
    """A run that waits for rita."""
    run = runs.advance(
        runs.start(
            "gated", {"claim_id": "CLM-1", "amount": 40}, key="CLM-1", by=people.starter
        ).id
    )
    assert run.status == "paused", run.error_code
    return run
