"""The runs that a claim finds: a query that reads as many rows as it returns, however
many runs are due later, and however many are due of graphs that nobody here knows.

The index `run_ready` has the queued and waiting runs of one kind (graph, fingerprint,
priority) side by side, by due time. So the query looks up each kind once, leaves out
those that this process can't work on, and reads the first due rows of the others.
"""

# ruff: noqa: S608 -- the texts are built from names of the model; each value is a
# parameter.

import re
from functools import lru_cache
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone

from checkpoints.core.status import Status
from checkpoints.db.rows import to_driver
from checkpoints.models import Run
from orchestrator.engine.frozen import frozen

TABLE = Run._meta.db_table
KIND = "graph, fingerprint, priority"
WAITING = f"'{Status.QUEUED}', '{Status.WAITING}'"
"""The statuses of the index, as its condition has them."""
INDEX = "run_ready"
"""The index of the queued and waiting runs, by kind and due time."""
OF_STATUS = "run_due"
"""The index of the same runs, by status and due time."""
OTHERS_AT_ONCE = 64
"""How many more rows of a kind are read than are taken: other workers may be taking the
first ones.
"""


@frozen
class Claimable:
    """The runs that this process can work on: those of fingerprints that it has
    registered, and of graphs whose current version it has, without the fingerprints
    that it leaves to others.
    """

    fingerprints: frozenset[str]
    graphs: frozenset[str]
    excluded: frozenset[str] = frozenset()

    def condition(self) -> tuple[str, list[str]]:
        """Return the condition on the columns `graph` and `fingerprint`, as SQL and its
        parameters.
        """
        judged, params = _is_in("graph", self.graphs)
        if self.excluded:
            excluded, excluded_params = _is_in("fingerprint", self.excluded)
            judged = f"{judged} AND NOT {excluded}"
            params += excluded_params
        registered, registered_params = _is_in("fingerprint", self.fingerprints)
        return f"({registered} OR ({judged}))", [*registered_params, *params]


def _is_in(column: str, values: frozenset[str]) -> tuple[str, list[str]]:
    if not values:
        return "1 = 0", []
    places = ", ".join(["%s"] * len(values))
    return f"{column} IN ({places})", sorted(values)


def first_due(limit: int, only: Claimable | None) -> tuple[str, list[Any]]:
    """Return the query for the ids of the first `limit` runs that need a worker, in the
    order of claims, as SQL and its parameters.
    """
    return _query(limit, only, timezone.now(), ordered=True)


def any_due(only: Claimable | None) -> tuple[str, list[Any]]:
    """Return a query that yields a row if and only if `first_due` would; its rows are
    in no order.
    """
    return _query(1, only, timezone.now(), ordered=False)


def _query(
    limit: int, only: Claimable | None, moment: Any, *, ordered: bool
) -> tuple[str, list[Any]]:
    condition, condition_params = only.condition() if only else ("1 = 1", [])
    vendor = connections[DEFAULT_DB_ALIAS].vendor
    text, places = _text(limit, condition, vendor, ordered=ordered)
    params: list[Any] = []
    for place in places:
        if place == CONDITION:
            params += condition_params
        else:
            params.append(to_driver(moment, vendor))
    return text, params


CONDITION = "?condition?"
NOW = "?now?"
"""Stand in a text for the condition of a `Claimable`, and for the moment."""


@lru_cache(maxsize=500)
def _text(
    limit: int, condition: str, vendor: str, *, ordered: bool
) -> tuple[str, list[str]]:
    """Return the text, and in order what its parameters are: `CONDITION` or `NOW`."""
    text = _any_due_text(limit, vendor)
    if ordered:
        text = _first_due_text(text, limit, vendor)
    places = re.findall(r"\?condition\?|\?now\?", text)
    text = text.replace(CONDITION, condition)
    if vendor == "postgresql":
        text = text.replace(NOW, "STATEMENT_TIMESTAMP()")
        places = [place for place in places if place != NOW]
    return text.replace(NOW, "%s"), places


def _any_due_text(limit: int, vendor: str) -> str:
    """Return a query for ids of due runs, at least the first `limit` of each kind."""
    # SQLite has no LATERAL. It evaluates the list for each kind, and looks up its ids.
    joined = "CROSS JOIN LATERAL ({rows}) AS run"
    if vendor == "sqlite":
        joined = "JOIN {table} AS run ON run.id IN ({rows})"
    rows = _first_of_kind_text(limit, vendor)
    return f"""
        WITH RECURSIVE {kinds_text(vendor)},
        claimable AS (SELECT * FROM kinds WHERE {CONDITION})
        SELECT run.id FROM claimable {joined.format(table=TABLE, rows=rows)}
        UNION ALL
        SELECT id FROM {TABLE} WHERE {_expired_text()} AND {CONDITION}
    """


def runs_by_index(vendor: str, index: str = INDEX) -> str:
    """Return the table of runs as `other`, to be read by an index. Each query that reads
    it has a condition on `status IN (WAITING)`, like both indexes.
    """
    # SQLite, which gathers no statistics by itself, expects few runs of a status. It
    # would read all that are queued, and sort them for each kind.
    if vendor == "sqlite":
        return f"{TABLE} AS other INDEXED BY {index}"
    return f"{TABLE} AS other"


def kinds_text(vendor: str) -> str:
    """Return the recursive part `kinds` of a query: a row for each kind of the queued
    and waiting runs.
    """
    return f"""kinds ({KIND}) AS (
          SELECT * FROM ({_first_kind_text(vendor)}) AS first_kind
          UNION ALL
          SELECT run.graph, run.fingerprint, run.priority
          FROM kinds JOIN {TABLE} AS run ON run.id = {_next_kind_text(vendor)}
        )"""


def first_kinds_text(most: int, vendor: str) -> str:
    """Return the part `kinds` of a query like `kinds_text`, which ends after so many."""
    # They are numbered, for PostgreSQL has no LIMIT in a recursive part.
    return f"""kinds ({KIND}, number) AS (
          SELECT first_kind.*, 1 FROM ({_first_kind_text(vendor)}) AS first_kind
          UNION ALL
          SELECT run.graph, run.fingerprint, run.priority, kinds.number + 1
          FROM kinds JOIN {TABLE} AS run ON run.id = {_next_kind_text(vendor)}
          WHERE kinds.number < {int(most)}
        )"""


def _first_kind_text(vendor: str) -> str:
    return f"""
        SELECT {KIND} FROM {runs_by_index(vendor)}
        WHERE status IN ({WAITING}) ORDER BY {KIND} LIMIT 1
    """


def _next_kind_text(vendor: str) -> str:
    """Return an expression for the id of a run of the kind after that of the row of
    `kinds`; NULL after the last one.
    """
    # Three looks at the index. As a comparison of rows it would be one, but SQLite
    # would then walk through all runs of the graph.
    same_graph = "other.graph = kinds.graph"
    same_version = f"{same_graph} AND other.fingerprint = kinds.fingerprint"
    conditions = [
        f"{same_version} AND other.priority > kinds.priority",
        f"{same_graph} AND other.fingerprint > kinds.fingerprint",
        "other.graph > kinds.graph",
    ]
    looks = []
    for condition in conditions:
        looks.append(f"""(
          SELECT id FROM {runs_by_index(vendor)}
          WHERE {condition} AND status IN ({WAITING}) ORDER BY {KIND} LIMIT 1
        )""")
    return f"COALESCE({', '.join(looks)})"


def _first_of_kind_text(limit: int, vendor: str) -> str:
    """Return a query for the ids of the first due runs of the kind of the row of
    `claimable`. Those without a due time come first.
    """
    of_kind = """
        other.graph = claimable.graph AND other.fingerprint = claimable.fingerprint
        AND other.priority = claimable.priority
    """
    return f"""
        SELECT id FROM (
          SELECT id FROM {runs_by_index(vendor)}
          WHERE {of_kind} AND status IN ({WAITING})
          AND status = '{Status.QUEUED}' AND due_at IS NULL
          ORDER BY created_at LIMIT {limit + OTHERS_AT_ONCE}
        ) AS without_time
        UNION ALL
        SELECT id FROM (
          SELECT id FROM {runs_by_index(vendor)}
          WHERE {of_kind} AND status IN ({WAITING}) AND due_at <= {NOW}
          ORDER BY due_at, created_at LIMIT {limit + OTHERS_AT_ONCE}
        ) AS with_time
    """


def _first_due_text(any_due_text: str, limit: int, vendor: str) -> str:
    ids = f"IN ({any_due_text})"
    if vendor == "postgresql":
        # As an array: the planner expects few ids in it, and looks each of them up.
        ids = f"= ANY (ARRAY ({any_due_text}))"
    # SQLite uses no index for an expression. By that of the status it would read all
    # runs that are queued, instead of looking up the ids.
    status = "+status" if vendor == "sqlite" else "status"
    # PostgreSQL looks at a row that another worker just took once more: it must still
    # be due then.
    return f"""
        SELECT id FROM {TABLE}
        WHERE id {ids}
        AND (
          {status} = '{Status.QUEUED}' AND (due_at IS NULL OR due_at <= {NOW})
          OR {status} = '{Status.WAITING}' AND due_at <= {NOW}
          OR {_expired_text(status)}
        )
        ORDER BY priority DESC, due_at IS NULL DESC, due_at, created_at
        LIMIT {limit}
    """


def _expired_text(status: str = "status") -> str:
    return f"{status} = '{Status.RUNNING}' AND lease_until < {NOW}"
