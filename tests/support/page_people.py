"""Who looks at the pages, and at what."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.test import Client

from checkpoints.models import Run
from tests.support import claims
from tests.support.cast import People


@pytest.fixture
def claim_graph(db: None) -> Iterator[None]:
    with claims.registered(
        claims.graph_of(), claims.graph_of("four_eyes", four_eyes=True)
    ):
        yield


@pytest.fixture
def run(claim_graph: None, people: People) -> Run:
    """Olive's run, waiting for a reviewer."""
    return claims.paused("CLM-1", people.starter)


@pytest.fixture
def browse() -> Callable[[User], Client]:
    """A browser in which that person is signed in."""

    def as_(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return as_
