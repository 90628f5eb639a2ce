"""A site that clients call, and who works and signs there."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from orchestrator import runs, tokens
from orchestrator.client import Client
from orchestrator.engine import registry
from orchestrator.graphs import approval
from tests.support.api_people import Client as Http
from tests.support.approvals import payers
from tests.support.cast import People
from tests.support.processes import web


@pytest.fixture(scope="session")
def streaming_site(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A web process that streams, on the database of the test. It knows the graphs of
    `tests.graphs_app`.
    """
    with web(tmp_path_factory.mktemp("web") / "web.log") as address:
        yield address


@pytest.fixture
def asked_of_payers(transactional_db: None, people: People) -> None:
    registry.replace(approval)
    payers(people.reviewer)


@pytest.fixture
def token(people: People) -> str:
    """Olive's, who asks."""
    return tokens.make_token(people.starter, scopes=tokens.SCOPES)


@pytest.fixture
def client(live_server: Any, asked_of_payers: None, token: str) -> Iterator[Client]:
    with Client(live_server.url, token=token) as client:
        yield client


Sign = Callable[..., None]


@pytest.fixture
def sign(people: People, asked_of_payers: None) -> Sign:
    """Rita signs, item by item, and a worker goes on: `sign(id, {"verdict": …}, …)`."""
    rita = Http(people.reviewer)

    def act(id: str, *verdicts: dict[str, Any]) -> None:
        runs.advance(id)
        shown = rita.get(f"approvals/{id}/").json()
        decisions = []
        for item, verdict in zip(shown["items"], verdicts, strict=True):
            decisions.append({"write": item["write"], "hash": item["hash"], **verdict})
        path = f"requests/{shown['request']}/decisions/"
        answer = rita.post(path, {"decisions": decisions})
        assert answer.status_code == 200, answer.content
        runs.advance(id)

    return act


@pytest.fixture
def beside() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Do something in a thread beside the test."""
    threads = []

    def begin(act: Callable[[], None]) -> None:
        def go() -> None:
            try:
                act()
            finally:
                connections.close_all()

        thread = threading.Thread(target=go)
        thread.start()
        threads.append(thread)

    yield begin
    for thread in threads:
        thread.join(20)
