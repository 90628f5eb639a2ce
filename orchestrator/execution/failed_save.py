"""A save that fails. Nothing of the superstep is applied and the run stops; or, where its graph says "continue" and
nothing but a point of its timeline is missing, it goes on without that point, marked as not durable.

The runner and its commits call it. `hold.unsaved` are lines that the next commit carries, whatever it is.
"""

import inspect
from collections.abc import Iterable
from typing import Any

import structlog
from django.db import DataError, Error, IntegrityError, connection

from checkpoints.core.status import Status
from checkpoints.event_log import Draft
from checkpoints.ledger import checkpoint_rows as points
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import Head, Moved, Point, Turn
from checkpoints.queue.leases import Hold
from orchestrator.engine import Task
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import SaveFailed
from orchestrator.engine.plan import Planned
from orchestrator.execution import open_superstep as opened

log = structlog.get_logger(__name__)

_SQLITE = frozenset({8, 10, 13, 18})
"""Primary result codes: READONLY, IOERR, FULL, TOOBIG."""
_POSTGRESQL = ("25006", "53000", "53100", "53200", "53400", "54", "58030")
"""SQLSTATE: read only, out of disk, memory or a configured limit, a row too large, an I/O error."""


def is_refusal(error: BaseException) -> bool:
    """Whether the storage answered, and refused: then nothing was written, and the same would be refused again.

    False for a connection that broke: a commit whose answer was lost may have happened.
    """
    if isinstance(error, SaveFailed | DataError | IntegrityError):
        return True
    cause = error.__cause__
    code, state = getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None)
    return (code is not None and code & 0xFF in _SQLITE) or str(state or "").startswith(_POSTGRESQL)


def error_of(error: BaseException) -> dict[str, Any]:
    """Why the run stopped, with the cure."""
    return opened.error_of(error) | {"code": SaveFailed.code_of_class, "cure": inspect.getdoc(SaveFailed)}


def may_go_on(graph: Compiled, ran: Iterable[Task], turn: Turn, after: Planned) -> bool:
    """Whether the superstep may stay unsaved: the graph says so, it does not end here, and neither it nor the next one
    has a write, external or human task.
    """
    if graph.graph.on_save_error != "continue" or turn.status != Status.RUNNING:
        return False
    names = {task.node for task in ran} | {start.task.node for start in after.starts}
    return not any(graph.nodes[name].journaled or graph.nodes[name].gated for name in names)


def go_on(hold: Hold, head: Head, point: Point, turn: Turn, *, lines: Iterable[Draft], error: BaseException) -> Head:
    """The head in memory after a superstep that was not saved: the next row will hold its change too.

    The run is marked at once, or, where the database itself refuses, by the next commit that succeeds.
    """
    said = f"superstep {point.superstep} was not saved: {opened.error_of(error)['message']}"
    facts = {"code": "not_saved", "superstep": point.superstep, "message": said}
    hold.unsaved += [*lines, Draft("warning", facts)]
    hold.superstep, hold.tape = point.superstep, turn.tape
    log.warning("superstep_not_saved", run=str(hold.id), superstep=point.superstep, error=str(error))
    _mark(hold)
    return points.unsaved(head, point)


def _mark(hold: Hold) -> None:
    while True:
        try:
            return ledger.append(hold, [])
        except Moved:
            ledger.look_again(hold)
            hold.moved = True
        except Error as error:
            log.warning("mark_postponed", run=str(hold.id), error=str(error))
            connection.close()
            return None
