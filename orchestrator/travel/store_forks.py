"""Adoption of forks that a store made: checkpoints without a run, whose run gets its
row when the run id is resumed.

Such a fork is like any other: what the store changed counts as a patch, guarded
channels wait for their signatures, and effects that happened already wait for a yes.
Only the author of the patch is unknown.
"""

from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError

from checkpoints.core.ids import unknown_thing
from checkpoints.core.status import Status
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.models.run_line import Travel
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import WrongStatus
from orchestrator.engine.gates.gate_on_run import asks_four_eyes
from orchestrator.engine.graphs.compile import State
from orchestrator.engine.travel.patch import PARTITIONS
from orchestrator.run_access.act import name_of, sees, sees_all_runs
from orchestrator.travel.departure import load_departure
from orchestrator.travel.overlay import lay_over
from orchestrator.travel.verbs import ForkStart, TravelRequest, open_fork


def adopt_fork(
    run_id: UUID | str,
    *,
    by: AbstractBaseUser | None,
    allow_effects: Collection[str] = (),
    reason: str = "",
) -> Run | None:
    """Return the run of a fork that a store made, queued; None for any other id, and if
    the run has its row already.

    Raises `UnknownThing` to a person who may not see the origin, `WrongStatus` naming
    what prevents it, and as `travel.fork` does. The caller checks the right to steer.
    """
    first = _first_checkpoint(run_id)
    if first is None:
        return None
    rows = reader.range_of(first.id)
    origin, departure = _origin_of(rows)
    if not _sees_fork_of(by, origin):
        raise unknown_thing("run", run_id)
    if origin is None or departure is None:
        raise _refused(
            first,
            "it comes from no run of this installation, so nobody knows what it may do",
        )
    # What the store changed is read from rows that verify, under the origin's keys.
    document = reader.proven(rows, protection_of(origin))
    point = load_departure(departure.id)
    # A migration reads the state that was kept, not what the store made of it.
    if point.steps:
        raise _refused(
            first,
            "the version that it was made with is gone, and a migration sees nothing "
            "of what it changed; "
            f"fork its origin, {origin.key}:at-{departure.seq}, with that as a patch",
        )

    def stored_state(_: State) -> State:
        return {part: document[part] for part in PARTITIONS}

    overlay = lay_over(point, stored_state, by=name_of(by))
    if overlay.change.patched and asks_four_eyes(point.graph, lambda: point.input):
        raise _refused(
            first,
            "a gate of its graph asks for four eyes, "
            "and a store does not know who patched it",
        )

    request = TravelRequest(
        Travel.FORK, allow_effects=allow_effects, reason=reason, by=by
    )
    place = ForkStart(first.run_id, None, Status.QUEUED, follows=first)
    try:
        return open_fork(point, overlay, request, place)
    except IntegrityError:
        # Another process resumed it at the same moment.
        run = Run.objects.filter(id=first.run_id).first()
        if run is None:
            raise
        return run


def _sees_fork_of(by: AbstractBaseUser | None, origin: Run | None) -> bool:
    """Return whether the person sees the fork. Its run has no row yet, so those see it
    who see the run that it left.
    """
    if origin is None:
        return sees_all_runs(by)
    return sees(by, origin)


def _origin_of(rows: Sequence[Any]) -> tuple[Run | None, Checkpoint | None]:
    """Return the run and its kept checkpoint from which a store's rows departed."""
    stored = reader.folded(reader.parts_of(rows))["open"].get("stored", {})
    if not stored.get("run"):
        return None, None
    origin = Run.objects.filter(id=stored["run"]).first()
    if origin is None:
        return None, None
    seq = stored.get("seq")
    return origin, Checkpoint.objects.filter(run=origin, seq=seq, kept=True).first()


def _first_checkpoint(run_id: Any) -> Checkpoint | None:
    """Return the first checkpoint of a fork whose run has no row; None for any other
    id.
    """
    try:
        id = UUID(str(run_id))
    except ValueError:
        return None
    if Run.objects.filter(id=id).exists():
        return None
    firsts = Checkpoint.objects.filter(run=id, seq=0, source=Source.FORK, kept=True)
    return firsts.order_by("seq").first()


def _refused(first: Checkpoint, reason: str) -> WrongStatus:
    return WrongStatus(
        f"fork {first.run_id} cannot be resumed: {reason}",
        run=str(first.run_id),
        reason=reason,
    )
