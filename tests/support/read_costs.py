"""What a piece of work reads in the database, counted by the database itself and not
timed.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db import connection, transaction

EVERY_STEPS = 10
"""SQLite reports its progress each so many steps of its virtual machine."""
EXPLAIN = "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "
PASSES_ON = ("CTE Scan", "Subquery Scan")
"""Scans of rows that another scan below has looked at already."""
READING = ("SELECT", "WITH", "UPDATE", "DELETE")


@dataclass
class ReadCost:
    """`statements`, and what they read: on PostgreSQL rows that scans looked at and
    `buffers` of 8 KB, on SQLite `steps` of its virtual machine.
    """

    statements: int = 0
    rows: int = 0
    buffers: int = 0
    steps: int = 0

    @property
    def reads(self) -> dict[str, int]:
        """The figures that grow with the rows that are read."""
        if connection.vendor == "postgresql":
            return {"rows": self.rows, "buffers": self.buffers}
        return {"steps": self.steps}


def cost_of(act: Callable[[], Any]) -> ReadCost:
    """Do it, and return what its statements on Django's cursors read. On PostgreSQL
    each statement is executed once more, to be explained, and undone.
    """
    with counting() as cost:
        act()
    return cost


@contextmanager
def counting() -> Iterator[ReadCost]:
    """Count what the block reads."""
    cost = ReadCost()
    if connection.vendor == "postgresql":
        with connection.execute_wrapper(_Explained(cost)):
            yield cost
        return
    connection.ensure_connection()

    def step() -> int:
        cost.steps += EVERY_STEPS
        return 0

    connection.connection.set_progress_handler(step, EVERY_STEPS)
    try:
        with connection.execute_wrapper(_Counted(cost)):
            yield cost
    finally:
        connection.connection.set_progress_handler(None, 0)


class _Counted:
    def __init__(self, cost: ReadCost) -> None:
        self._cost = cost

    def __call__(
        self, execute: Any, sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        self._cost.statements += 1
        return execute(sql, params, many, context)


class _Explained(_Counted):
    """Explains each statement before it is executed."""

    explaining = False

    def __call__(
        self, execute: Any, sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if self.explaining:
            return execute(sql, params, many, context)
        if sql.lstrip(" \n(").startswith(READING) and not many:
            self.explaining = True
            try:
                self._explain(sql, params)
            finally:
                self.explaining = False
        return super().__call__(execute, sql, params, many, context)

    def _explain(self, sql: str, params: Any) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(EXPLAIN + sql, params)
            plan = cursor.fetchone()[0]
            # An explained UPDATE is executed.
            transaction.set_rollback(True)
        if isinstance(plan, str):
            plan = json.loads(plan)
        root = plan[0]["Plan"]
        self._cost.buffers += root["Shared Hit Blocks"] + root["Shared Read Blocks"]
        self._cost.rows += _rows_of_scans(root)


def _rows_of_scans(node: dict[str, Any]) -> int:
    """Return how many rows the scans of a plan looked at, with those they left out."""
    rows = 0
    kind = node["Node Type"]
    if "Scan" in kind and kind not in PASSES_ON:
        each_time = (
            node["Actual Rows"]
            + node.get("Rows Removed by Filter", 0)
            + node.get("Rows Removed by Index Recheck", 0)
        )
        rows = round(each_time * node["Actual Loops"])
    below = sum(map(_rows_of_scans, node.get("Plans", ())))
    if kind == "Bitmap Heap Scan":
        # The rows that its indices found are looked at in the table, not once more.
        return max(rows, below)
    return rows + below
