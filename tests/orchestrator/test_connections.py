"""A web process gives its connections back, a worker keeps its own, and each says at
the database which it is.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from django.db import connection, connections

from checkpoints.models import Run
from orchestrator import runs
from orchestrator.connections import keep_open, label_connections, role_of_process
from tests.support.processes import until, web, worker

REQUESTS = 120
AT_ONCE = 16


@pytest.fixture
def on_postgresql(transactional_db: None) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("about connections to a server")


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The options of the default database, empty, of which what a test changes is
    undone.
    """
    changed: dict[str, Any] = {}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", changed)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 0)
    return changed


class Server:
    """The connections to the database of this test, without those that were there
    before it.
    """

    def __init__(self) -> None:
        self._earlier = self._processes("%")

    def connections(self, role: str) -> int:
        return len(self._processes(f"countersign {role}") - self._earlier)

    def _processes(self, name: str) -> set[int]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE %s",
                [name],
            )
            return {int(row[0]) for row in cursor.fetchall()}


@pytest.fixture
def server(on_postgresql: None) -> Server:
    return Server()


def _read(address: str) -> int:
    with urlopen(f"{address}/readyz", timeout=30) as answer:
        return int(answer.status)


def test_a_web_process_holds_no_connection_once_its_requests_are_answered(
    tmp_path: Path, server: Server
) -> None:
    with web(tmp_path / "web.log") as address, ThreadPoolExecutor(AT_ONCE) as visitors:
        statuses = list(visitors.map(lambda _: _read(address), range(REQUESTS)))
        assert statuses == [200] * REQUESTS
        until(
            lambda: server.connections("web") == 0,
            what="the connections of the web process to be closed",
        )


def test_a_worker_keeps_its_connections_and_says_that_it_is_one(
    tmp_path: Path, server: Server
) -> None:
    with worker(tmp_path / "worker.log"):
        until(lambda: server.connections("worker"), what="a connection of the worker")
        assert server.connections("web") == 0


def test_a_worker_has_two_connections_and_one_for_each_worker_process(
    tmp_path: Path, server: Server
) -> None:
    with worker(tmp_path / "worker.log", COUNTERSIGN_WORKERS="2"):
        until(lambda: server.connections("worker"), what="a connection of the worker")
        for _ in range(8):
            runs.start("loop_every", {"folder": str(tmp_path)})
        until(
            lambda: Run.objects.filter(status="completed").count() == 8,
            seconds=90,
            what="the runs",
        )
        assert 3 <= server.connections("worker") <= 2 + 2


def test_a_pool_in_the_settings_serves_web_and_is_left_out_by_a_worker(
    tmp_path: Path, server: Server
) -> None:
    pool = {"COUNTERSIGN_DATABASE_POOL": "3"}
    with worker(tmp_path / "worker.log", **pool):
        until(lambda: server.connections("worker"), what="a connection of the worker")
        with (
            web(tmp_path / "web.log", **pool) as address,
            ThreadPoolExecutor(AT_ONCE) as visitors,
        ):
            statuses = list(visitors.map(lambda _: _read(address), range(REQUESTS)))
            assert statuses == [200] * REQUESTS
            assert 1 <= server.connections("web") <= 3
    assert "pool" not in (tmp_path / "worker.log").read_text()


def test_a_worker_keeps_connections_whatever_age_the_settings_name(
    options: dict[str, Any],
) -> None:
    keep_open()
    assert connection.settings_dict["CONN_MAX_AGE"] == 60


def test_a_worker_keeps_connections_for_as_long_as_the_settings_name(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", 300)
    keep_open()
    assert connection.settings_dict["CONN_MAX_AGE"] == 300


def test_a_worker_leaves_a_pool_of_the_settings_to_the_web_processes(
    options: dict[str, Any],
) -> None:
    options["pool"] = {"max_size": 4}
    keep_open()
    assert "pool" not in options


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["/srv/manage.py", "fork_run", "CLM-1"], "command"),
        (["/usr/bin/django-admin", "migrate"], "command"),
        (["/lib/django/__main__.py", "migrate"], "command"),
        (["manage.py", "worker"], "worker"),
        (["manage.py", "qcluster"], "worker"),
        (["manage.py", "runserver"], "web"),
        (["/lib/daphne/__main__.py", "orchestrator.asgi:application"], "web"),
        (["/usr/bin/gunicorn", "host.wsgi"], "web"),
        (["manage.py"], "command"),
    ],
)
def test_a_process_knows_its_role_by_the_words_it_was_started_with(
    words: list[str], role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", words)
    assert role_of_process() == role


@pytest.fixture
def as_postgresql(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Label the connections as on PostgreSQL, and say what the options of the database
    are then.
    """

    def label(**arguments: Any) -> dict[str, Any]:
        options.update(arguments)
        monkeypatch.setattr(type(connections["default"]), "vendor", "postgresql")
        label_connections("web")
        return options

    return label


def test_a_connection_says_its_role(
    as_postgresql: Callable[..., dict[str, Any]],
) -> None:
    assert as_postgresql() == {"application_name": "countersign web"}


def test_a_name_that_the_project_gave_its_connections_stays(
    as_postgresql: Callable[..., dict[str, Any]],
) -> None:
    assert as_postgresql(application_name="theirs") == {"application_name": "theirs"}


def test_a_name_in_the_environment_stays(
    as_postgresql: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGAPPNAME", "theirs")
    assert as_postgresql() == {}
