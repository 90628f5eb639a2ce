"""What the bench counts, it counts exactly."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.counting import durable
from bench.counting.connections import kind
from bench.counting.wire import Wire
from bench.limit import Limit
from bench.places import SERVERS, Place, Postgresql, Server


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    # Not pytest's own folder: a socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="cs-bench-") as folder:
        Path(folder).chmod(0o755)
        database = SERVERS[request.config.option.database](Path(folder))
        database.start()
        yield database
        database.stop()


@pytest.fixture
def place(server: Server) -> Place:
    return server.fresh("counted", ours=False)


def test_each_commit_of_the_limit_is_counted_once(place: Place) -> None:
    limit = Limit(place)
    commits = durable.commits(place)
    limit.commits_per_second(17)
    assert commits.count() == 17
    limit.commits_per_second(5)
    assert commits.count() == 22
    commits.close()
    limit.close()


def test_a_transaction_that_writes_nothing_is_no_commit(place: Place) -> None:
    with closing(place.connect()) as link:
        link.execute("CREATE TABLE numbers (number integer)")
        commits = durable.commits(place)
        link.execute("BEGIN")
        link.execute("SELECT count(*) FROM numbers").fetchall()
        link.execute("COMMIT")
        link.execute("BEGIN")
        link.execute("INSERT INTO numbers VALUES (1)")
        link.execute("ROLLBACK")
        assert commits.count() == 0
        commits.close()


def test_added_milliseconds_reach_every_commit(server: Server) -> None:
    if not isinstance(server, Postgresql):
        pytest.skip("only PostgreSQL can be told to wait before it flushes")
    slow = Limit(server.fresh("slow", ours=False, delay_ms=5.0))
    assert slow.fastest_ms(20) >= 5
    slow.close()


def test_the_proxy_counts_statements_and_round_trips(
    server: Server, place: Place
) -> None:
    if not isinstance(server, Postgresql):
        pytest.skip("SQLite has no wire")
    import psycopg

    wire = Wire(place.folder, server.socket)
    with psycopg.connect(
        f"user=postgres dbname={place.name} host={place.folder}", autocommit=True
    ) as link:
        link.execute("CREATE TABLE numbers (number integer)")
        for number in range(3):
            link.execute("INSERT INTO numbers VALUES (%s)", [number], prepare=True)
        assert link.execute(
            "SELECT count(*) FROM numbers WHERE number >= %s", [0]
        ).fetchone() == (3,)
    wire.close()
    # The insert is prepared once, in a round trip of its own.
    assert wire.counted == {"writes": 4, "reads": 1, "round_trips": 6}


@pytest.mark.parametrize(
    ("sql", "counts_as"),
    [
        ("BEGIN IMMEDIATE", "control"),
        ("-- a trigger's statement", "control"),
        ('SELECT "id"\nFROM "runs"', "reads"),
        ("SELECT pg_notify('countersign', '')", "writes"),
        ("UPDATE runs SET epoch = epoch + 1", "writes"),
        (
            "WITH moved AS (UPDATE runs SET epoch = 2 RETURNING id) SELECT id FROM moved",
            "writes",
        ),
    ],
)
def test_statements_are_told_apart(sql: str, counts_as: str) -> None:
    assert kind(sql) == counts_as
