"""A save that fails. Nothing of the superstep is applied and the run stops; or, if its
graph says "continue" and nothing but a point of its timeline is missing, it goes on
without that point, marked as not durable.

The runner and its commits call it. `lease.unsaved` holds the events that the next
commit writes, of whichever kind it is.
"""

from collections.abc import Iterable
from typing import Any

import structlog
from django.db import DataError, Error, IntegrityError, connection

from checkpoints.core.status import Status
from checkpoints.event_log import NOT_SAVED, NewEvent
from checkpoints.ledger import checkpoint_rows
from checkpoints.ledger import commit as ledger
from checkpoints.ledger.commit import ConcurrentUpdate, Head, NewCheckpoint, RunUpdate
from checkpoints.queue.leases import Lease
from orchestrator.engine import Task
from orchestrator.engine.errors import SaveFailed
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.step.plan import Planned
from orchestrator.execution import open_superstep

log = structlog.get_logger(__name__)

_SQLITE = frozenset({8, 10, 13, 18})
"""Primary result codes: READONLY, IOERR, FULL, TOOBIG."""
_POSTGRESQL = ("25006", "53000", "53100", "53200", "53400", "54", "58030")
"""SQLSTATE: read only, out of disk, memory or a configured limit, a row too large, an
I/O error.
"""


def is_refusal(error: BaseException) -> bool:
    """Return whether the storage answered with a refusal: then nothing was written, and
    the same would be refused again.

    False for a connection that broke: a commit whose answer was lost may have happened.
    """
    if isinstance(error, SaveFailed | DataError | IntegrityError):
        return True
    cause = error.__cause__
    code = getattr(cause, "sqlite_errorcode", None)
    # An extended result code has the primary one in its low byte.
    if code is not None and code & 0xFF in _SQLITE:
        return True
    state = getattr(cause, "sqlstate", None)
    return str(state or "").startswith(_POSTGRESQL)


def save_error(error: BaseException) -> dict[str, Any]:
    """Return why the run stopped, with the cure."""
    return open_superstep.error_json(error) | {
        "code": SaveFailed.code_of_class,
        "cure": open_superstep.cure_of(SaveFailed),
    }


def may_continue(
    graph: Compiled, ran: Iterable[Task], run_update: RunUpdate, after: Planned
) -> bool:
    """Return whether the superstep may stay unsaved: the graph permits it, the run does
    not end here, and neither this superstep nor the next one has a write, external or
    human task.
    """
    if graph.graph.on_save_error != "continue" or run_update.status != Status.RUNNING:
        return False
    # Also of the next superstep: an effect must not rest on a state that may be lost.
    names = {task.node for task in ran} | {start.task.node for start in after.starts}
    return not any(
        graph.nodes[name].journaled or graph.nodes[name].gated for name in names
    )


def continue_unsaved(
    lease: Lease,
    head: Head,
    checkpoint: NewCheckpoint,
    run_update: RunUpdate,
    *,
    events: Iterable[NewEvent],
    error: BaseException,
) -> Head:
    """Return the head in memory after a superstep that was not saved: the next row will
    hold its change too.

    The run is marked at once, or, if the database itself refuses, by the next commit
    that succeeds.
    """
    content = (
        f"superstep {checkpoint.superstep} was not saved:"
        f" {open_superstep.error_json(error)['message']}"
    )
    facts = {"code": NOT_SAVED, "superstep": checkpoint.superstep, "message": content}
    lease.unsaved += [*events, NewEvent("warning", facts)]
    lease.superstep = checkpoint.superstep
    lease.tape = run_update.tape
    log.warning(
        "superstep_not_saved",
        run=str(lease.id),
        superstep=checkpoint.superstep,
        error=str(error),
    )
    _mark(lease)
    return checkpoint_rows.head_without_row(head, checkpoint)


def _mark(lease: Lease) -> None:
    while True:
        try:
            # No further event: `lease.unsaved` goes with it and marks the run.
            return ledger.append_events(lease, [])
        except ConcurrentUpdate:
            ledger.refresh_lease(lease)
            lease.moved = True
        except Error as error:
            # The database refuses everything; the next commit carries the mark.
            log.warning("mark_postponed", run=str(lease.id), error=str(error))
            connection.close()
            return None
