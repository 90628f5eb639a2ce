"""Erasure under retention: runs under a legal hold are not erased."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from checkpoints import erasure
from checkpoints.erasure import ErasurePlan
from checkpoints.models import ErasureRecord
from checkpoints.retention.holds import is_held
from checkpoints.retention.rights import require_manager


def erase(
    run_id: UUID | str,
    paths: Sequence[str] | None = None,
    forks: bool = False,
    reason: str = "",
    *,
    by: Any = None,
) -> ErasureRecord:
    """Replace these paths of a run's state, or (None) all its values, by tombstones
    wherever they are stored; with `forks` also in the runs that inherited them. Returns
    the sealed record of it. `by` None is the system.

    Raises, having changed nothing, `UnknownThing` (no such run, or nothing at a path),
    `InvalidValue`, `WrongStatus` (a run can still go on, or is under a legal hold),
    `Erased` (all of it was erased already), `TamperedRow`, `WrongKey`, `Forbidden` (for
    a person who may not manage retention). After a crash a worker completes it, or the
    same call.
    """
    require_manager(by)
    return erasure.erase(
        run_id, paths=paths, forks=forks, reason=reason, by=by, held=is_held
    )


def begin_erasure(
    run_id: UUID | str,
    paths: Sequence[str] | None = None,
    forks: bool = False,
    reason: str = "",
    *,
    by: Any = None,
) -> ErasureRecord:
    """Begin an erasure as `erase` does, but leave the work to a worker. Returns the
    record when the work is queued, and from then on nothing can begin at the run's
    checkpoints; its `ended_at` is set when all is done. Raises as `erase` does, and
    `WrongStatus` while another erasure of the run goes on.
    """
    require_manager(by)
    return erasure.begin_erasure(
        run_id, paths=paths, forks=forks, reason=reason, by=by, held=is_held
    )


def plan_erasure(
    run_id: UUID | str, paths: Sequence[str] | None = None, forks: bool = False
) -> ErasurePlan:
    """Return what `erase` would do, and which runs inherited the values; nothing is
    written. Raises as `erase` does.
    """
    return erasure.plan_erasure(run_id, paths=paths, forks=forks, held=is_held)
