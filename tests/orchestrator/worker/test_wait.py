"""The pusher's wait for work on SQLite: it ends soon after another process has committed,
and never without a pause.
"""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from orchestrator.worker import wait
from orchestrator.worker.shared_state import SharedState
from orchestrator.worker.wait import Listener

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(
        connection.vendor != "sqlite", reason="PostgreSQL notifies of what is due"
    ),
]
LONG = 60.0
"""Seconds between two polls; a test that waited for one would fail by its time limit."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queue.sqlite3"


@pytest.fixture
def own_connection(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BaseDatabaseWrapper]:
    """The connection of the pusher, to a database in a file."""
    own = connection.copy()
    own.settings_dict["NAME"] = str(file)
    with own.cursor() as cursor:
        cursor.execute("CREATE TABLE runs (id integer)")
    monkeypatch.setattr(wait, "connection", own)
    yield own
    own.close()


@pytest.fixture
def state() -> Iterator[SharedState]:
    state = SharedState(1)
    yield state
    state.close()


def _commit_elsewhere(file: Path) -> None:
    other = sqlite3.connect(file)
    with other:
        other.execute("INSERT INTO runs VALUES (1)")
    other.close()


def test_a_commit_of_another_process_ends_the_wait(
    file: Path, own_connection: BaseDatabaseWrapper, state: SharedState, configure
) -> None:
    configure(POLL_SECONDS=LONG)
    listener = Listener()
    listener.listen()
    _commit_elsewhere(file)
    assert not listener.wait(state)


def test_a_commit_between_look_and_wait_is_not_missed_and_one_of_its_own_is_none(
    file: Path, own_connection: BaseDatabaseWrapper, state: SharedState, configure
) -> None:
    configure(POLL_SECONDS=0.5)
    listener = Listener()
    listener.listen()
    with own_connection.cursor() as cursor:
        cursor.execute("INSERT INTO runs VALUES (2)")
    began = time.monotonic()
    listener.wait(state)
    assert time.monotonic() - began >= 0.5


def test_there_is_a_pause_before_each_look_however_busy_others_are(
    own_connection: BaseDatabaseWrapper,
    state: SharedState,
    configure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(POLL_SECONDS=LONG)
    versions = iter(range(100))
    monkeypatch.setattr(wait, "_version_of_sqlite", lambda: next(versions))
    pauses: list[float] = []
    monkeypatch.setattr(state, "wait", lambda seconds: pauses.append(seconds))
    listener = Listener()
    for _ in range(3):
        listener.listen()
        listener.wait(state)
    assert pauses == [wait.GLANCE_SECONDS] * 3


def test_a_slot_that_becomes_free_ends_the_wait(
    own_connection: BaseDatabaseWrapper, state: SharedState, configure
) -> None:
    configure(POLL_SECONDS=LONG)
    listener = Listener()
    listener.listen()
    state.ring()
    assert not listener.wait(state)
