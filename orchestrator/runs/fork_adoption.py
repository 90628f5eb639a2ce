"""A fork that a store made is a checkpoint without a run. Resuming its run id gives it the run's row, here.

It is a fork like any other: what the store changed is a patch, guarded channels wait for their signatures, and effects
that happened already wait for a yes. Only who made it is not known.
"""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from django.contrib.auth.models import AbstractBaseUser
from django.db import IntegrityError

from checkpoints.core.status import Status
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.models.run_line import Travel
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.errors import WrongStatus
from orchestrator.engine.patch import PARTITIONS
from orchestrator.runs.act import name_of
from orchestrator.runs.departure import load_departure
from orchestrator.runs.overlay import lay_over
from orchestrator.runs.travel import Place, Wanted, open_fork


def adopt_fork(
    run_id: UUID | str, *, by: AbstractBaseUser | None, allow_effects: Collection[str] = (), reason: str = ""
) -> Run | None:
    """The run of a fork that a store made, queued. None for any other id, and where it has its row already.

    Raises `WrongStatus` naming what stands against it, and as `travel.fork` does.
    """
    first = _first(run_id)
    if first is None:
        return None
    rows = reader.range_of(first.id)
    about = reader.folded(reader.parts_of(rows))["open"].get("stored", {})
    origin = Run.objects.filter(id=about.get("run")).first() if about.get("run") else None
    departure = Checkpoint.objects.filter(run=origin, seq=about.get("seq"), kept=True).first() if origin else None
    if departure is None or origin is None:
        raise _refused(first, "it comes from no run of this installation, so nobody knows what it may do")
    document = reader.proven(rows, protection_of(origin))
    point = load_departure(departure.id)
    if point.steps:
        raise _refused(
            first,
            "the version that it was made with is gone, and a migration sees nothing of what it changed;"
            f" fork its origin, {origin.key}:at-{departure.seq}, with that as a patch",
        )
    overlay = lay_over(point, lambda _: {part: document[part] for part in PARTITIONS}, by=name_of(by))
    if overlay.change.patched and any(node.gate and node.gate.four_eyes for node in point.graph.nodes.values()):
        raise _refused(first, "a gate of its graph asks for four eyes, and a store does not know who patched it")
    wanted = Wanted(Travel.FORK, allow_effects=allow_effects, reason=reason, by=by)
    try:
        return open_fork(point, overlay, wanted, Place(first.run_id, None, Status.QUEUED, first))
    except IntegrityError:
        if there := Run.objects.filter(id=first.run_id).first():
            return there  # somebody else resumed it at the same moment
        raise


def _first(run_id: Any) -> Checkpoint | None:
    try:
        id = UUID(str(run_id))
    except ValueError:
        return None
    if Run.objects.filter(id=id).exists():
        return None
    return Checkpoint.objects.filter(run=id, seq=0, source=Source.FORK, kept=True).order_by("seq").first()


def _refused(first: Checkpoint, reason: str) -> WrongStatus:
    return WrongStatus(f"fork {first.run_id} cannot be resumed: {reason}", run=str(first.run_id), reason=reason)
