"""Who opens sockets, and at what."""

import pytest
from django.db import connections

from checkpoints.models import Run
from tests.support.browsers import Browser
from tests.support.cast import People
from tests.support.rows import a_run


@pytest.fixture(autouse=True)
def no_connection_is_left_open(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads that look would keep their connections for a minute, and the test
    database could not be dropped.
    """
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)


@pytest.fixture
def people(transactional_db: None) -> People:
    """The cast, made at once: a socket's test cannot wait for the database."""
    cast = People()
    assert all((cast.starter, cast.auditor, cast.nobody))
    return cast


@pytest.fixture
def run(people: People) -> Run:
    return a_run(started_by=people.starter, label="followed")


@pytest.fixture
def olive(people: People) -> Browser:
    """Return who started the run."""
    return Browser(people.starter)


@pytest.fixture
def ada(people: People) -> Browser:
    """Return who may see every run, as long as she is an auditor."""
    return Browser(people.auditor)
