"""Numbers of due runs, for people and probes. Like a claim, a query for numbers looks up
the kinds of queued and waiting runs in the index, and reads the first due runs of each.
"""

# ruff: noqa: S608 -- the texts are built from names of the model; each value is a
# parameter.

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from checkpoints.core.status import Status
from checkpoints.db import counts
from checkpoints.db.large_reads import first_rows
from checkpoints.db.rows import to_driver
from checkpoints.queue.due_runs import (
    OF_STATUS,
    TABLE,
    WAITING,
    first_kinds_text,
    kinds_text,
    runs_by_index,
)
from orchestrator.engine.frozen import frozen

VERSION = "graph, version, fingerprint"
OF_KIND = f"""
    other.graph = kinds.graph AND other.fingerprint = kinds.fingerprint
    AND other.priority = kinds.priority AND other.status IN ({WAITING})
"""
QUEUED = f"other.status = '{Status.QUEUED}'"
IN_LINE = f"other.status IN ({WAITING})"
IS_DUE = "other.due_at <= %(now)s"


@frozen
class QueuedVersion:
    """A version of a graph with `runs` that are queued and due: at most one more than
    `MOST_COUNTED` of each priority.
    """

    graph: str
    version: str
    fingerprint: str
    runs: int


@frozen
class DueGraph:
    """The runs of a graph that need a worker, queued or after their waiting time. The
    oldest has been due for this many seconds.
    """

    graph: str
    runs: int
    oldest_seconds: float


@frozen
class DueQueue:
    """The graphs with runs that are due, the one whose run has been due the longest
    first. `is_cut` says that there are more graphs, or kinds of runs, than were read.
    """

    graphs: list[DueGraph]
    is_cut: bool


def due_by_graph(*, most: int, most_kinds: int, most_of_kind: int) -> DueQueue:
    """Return the queue of at most so many graphs. Reads the first `most_kinds` kinds of
    queued and waiting runs (graph, version, priority), by the name of the graph, and of
    each counts up to one more than `most_of_kind` runs. One query.
    """
    moment = timezone.now()
    counted = _first_due_text("id", IN_LINE, most=most_of_kind + 1)
    kinds_read = first_kinds_text(most_kinds + 1, connection.vendor)
    text = f"""
        WITH RECURSIVE {kinds_read}
        SELECT graph, SUM(runs), MIN(oldest), SUM(COUNT(*)) OVER () FROM (
          SELECT
            kinds.graph AS graph,
            (SELECT COUNT(*) FROM ({counted}) AS counted) AS runs,
            ({_oldest_text()}) AS oldest
          FROM kinds
        ) AS by_kind
        GROUP BY graph
        ORDER BY SUM(runs) = 0, MIN(oldest) IS NULL, MIN(oldest), graph
        LIMIT {int(most) + 1}
    """
    due: list[DueGraph] = []
    kinds = 0
    for graph, runs, oldest, kinds_in_all in _select(text):
        kinds = int(kinds_in_all)
        # Its runs wait for a time that is still to come.
        if not runs:
            continue
        since = _moment(oldest) or moment
        seconds = max(0.0, (moment - since).total_seconds())
        due.append(DueGraph(graph, int(runs), seconds))
    return DueQueue(due[:most], is_cut=kinds > most_kinds or len(due) > most)


def count_queued() -> int:
    """Return the number of runs that are queued and due, at most one more than
    `MOST_COUNTED`. One query.
    """
    most = counts.MOST_COUNTED + 1
    rows = _select_of_kinds(f"""
        SELECT COUNT(*)
        FROM (SELECT run.id FROM kinds {_queued_text()} LIMIT {most}) AS counted
    """)
    return int(rows[0][0])


def oldest_queued() -> datetime | None:
    """Return since when the run is due that is queued for the longest; None if none is
    due. One query.
    """
    return _oldest(Status.QUEUED)


def oldest_due() -> datetime | None:
    """Return since when the queued or waiting run is due that waits for the longest;
    None if none is due. One query.
    """
    return _oldest(Status.QUEUED, Status.WAITING)


def queued_versions(without: Collection[str], *, most: int) -> list[QueuedVersion]:
    """Return the first `most` versions that have queued and due runs, in order of their
    names, `without` these fingerprints. One query.
    """
    fingerprints = {}
    for number, fingerprint in enumerate(sorted(without)):
        fingerprints[f"fingerprint_{number}"] = fingerprint
    of_others = "1 = 1"
    if fingerprints:
        places = ", ".join(f"%({name})s" for name in fingerprints)
        of_others = f"kinds.fingerprint NOT IN ({places})"
    rows = _select_of_kinds(
        f"""
        SELECT run.graph, run.version, run.fingerprint, COUNT(*)
        FROM kinds {_queued_text()}
        WHERE {of_others}
        GROUP BY run.graph, run.version, run.fingerprint
        ORDER BY run.graph, run.version LIMIT {int(most)}
        """,
        **fingerprints,
    )
    return [QueuedVersion(*row) for row in rows]


def _oldest(*statuses: Status) -> datetime | None:
    """Return since when the run of these statuses is due that is due the longest. Looks
    once at the index for each status, however many kinds of runs there are.
    """
    # Both conditions, since SQLite takes an index only under its own.
    looks = [
        f"""
        SELECT MIN(other.due_at) AS due_at FROM {runs_by_index(connection.vendor, OF_STATUS)}
        WHERE other.status IN ({WAITING}) AND other.status = '{status}' AND {IS_DUE}
        """
        for status in statuses
    ]
    rows = _select(f"SELECT MIN(due_at) FROM ({' UNION ALL '.join(looks)}) AS oldest")
    return _moment(rows[0][0])


def _oldest_text() -> str:
    """Return the query for the due time of the run of a kind that is due the longest."""
    return f"""
        SELECT other.due_at FROM {runs_by_index(connection.vendor)}
        WHERE {OF_KIND} AND {IN_LINE} AND {IS_DUE}
        ORDER BY other.due_at LIMIT 1
    """


def _moment(value: Any) -> datetime | None:
    # SQLite keeps times as text, in UTC.
    if isinstance(value, str):
        moment = parse_datetime(value)
        return moment and moment.replace(tzinfo=UTC)
    return value  # type: ignore[no-any-return]


def _queued_text() -> str:
    """Return the join of `kinds` with the first queued runs of each that are due, as
    `run`.
    """
    most = counts.MOST_COUNTED + 1
    # SQLite has no LATERAL. It evaluates the list for each kind, and looks up its ids.
    if connection.vendor == "sqlite":
        ids = _first_due_text("id", QUEUED, most=most)
        return f"JOIN {TABLE} AS run ON run.id IN ({ids})"
    columns = f"id, {VERSION}"
    rows = _first_due_text(columns, QUEUED, most=most)
    return f"CROSS JOIN LATERAL ({rows}) AS run"


def _first_due_text(columns: str, status: str, *, most: int) -> str:
    """Return the query for the first due runs of a kind: at most so many of those with
    a due time, and of those without one.
    """
    return f"""
        SELECT {columns} FROM (
          SELECT {columns} FROM {runs_by_index(connection.vendor)}
          WHERE {OF_KIND} AND {status} AND other.due_at IS NULL LIMIT {most}
        ) AS without_time
        UNION ALL
        SELECT {columns} FROM (
          SELECT {columns} FROM {runs_by_index(connection.vendor)}
          WHERE {OF_KIND} AND {status} AND {IS_DUE} LIMIT {most}
        ) AS with_time
    """


def _select_of_kinds(text: str, **params: str) -> Sequence[tuple[Any, ...]]:
    """Return the rows of a query that reads from `kinds`."""
    return _select(f"WITH RECURSIVE {kinds_text(connection.vendor)} {text}", **params)


def _select(text: str, **params: str) -> Sequence[tuple[Any, ...]]:
    now = to_driver(timezone.now(), connection.vendor)
    with first_rows():
        return counts.select_rows(text, {"now": now, **params})
