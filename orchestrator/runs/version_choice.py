"""With which version a run goes on that its own is not there for: the ways out, and what a steward's resume does.

Workers go forwards only. After a deployment was taken back, a person says by resuming that the run shall go back too.
"""

from contextlib import suppress
from uuid import UUID

from django.db import Error
from django.db.models import Q

from approvals.gates.reviewed_channels import channels_under_review
from checkpoints import versions
from checkpoints.ledger import head_loader
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run
from checkpoints.queue import leases, workers
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import BROKEN, CountersignError, UnknownThing
from orchestrator.engine.frozen import frozen
from orchestrator.engine.judgement import MIGRATED
from orchestrator.engine.pending_parts import Pending
from orchestrator.execution.adoption import pin
from orchestrator.runs import travel


def is_stranded(run: Run) -> bool:
    """Whether neither this process nor any live worker has the version that a run is pinned to, and this one has
    another version of its graph.
    """
    if registry.find_graph(run.fingerprint) is not None:
        return False
    try:
        registry.current(run.graph)
    except UnknownThing:
        return False
    return run.fingerprint not in workers.live_fingerprints()


def can_adopt(run: Run) -> bool:
    """Whether a run that nobody else can take goes on with the version that is here, migrated and asked as it is. It
    opens the state and runs the author's migrations.
    """
    if not is_stranded(run) or not _resumed(run, registry.current(run.graph)):
        return False
    return _fork(run) is not None


def cure_of_stranded(run: Run) -> str:
    """What helps a run that waits for people while its version is nowhere, as the rest of a sentence; else empty."""
    if not is_stranded(run):
        return ""
    here = registry.current(run.graph).version
    cures = f"register that beside version {here}, or deploy a migration to that that takes the run as it stands"
    return f"; its version {run.version} is not here, so nobody can edit what waits: {cures}"


@frozen
class Ways:
    """How an incompatible run can go on: `resume` says what resuming it does now, `fork` is the checkpoint from which
    the version that is here takes over. Empty and None where there is no such way. `same_version`: what is here is
    called as the version of the run, though it is another one.
    """

    resume: str = ""
    fork: UUID | None = None
    same_version: bool = False


def ways_out(run: Run, *, forks: bool) -> Ways:
    """The ways that exist, seen from this process and the workers that are alive. Only with `forks` it is tried
    whether one is possible, which runs the author's migrations.
    """
    fork = _fork(run) if forks else None
    if registry.find_graph(run.fingerprint) is not None or run.fingerprint in workers.live_fingerprints():
        return Ways(f"Finish on version {run.version}", fork)
    try:
        target = registry.current(run.graph)
    except UnknownThing:
        return Ways()
    return Ways(_resumed(run, target), fork, run.version == target.version)


def _resumed(run: Run, target: Compiled) -> str:
    at = Pending.from_text(run.pending)
    found = versions.judgement_of(
        run, target, at, held=lambda: channels_under_review(Q(run=run.id)).get(run.id, frozenset())
    )
    if not found.adopted or (found.verdict != MIGRATED and _was_refused(run, target)):
        return ""
    if found.verdict == MIGRATED:
        return f"Run the migration {', '.join(step.name for step in found.steps)}"
    return f"Go on with version {target.version}"


def _was_refused(run: Run, target: Compiled) -> bool:
    """Whether this very version was tried, and what stood in the way was no difference that a judgement sees."""
    error = stored_error(run) or {}
    return bool(error.get("because")) and error.get("fingerprint") == target.fingerprint


def _fork(run: Run) -> UUID | None:
    """The newest checkpoint, where a fork from it is possible: its plan is made, as by whoever asks for one. It fails
    where a migration does, or would misread what waits.
    """
    try:
        travel.plan(run.head or "")
    except Error:
        raise  # The database is away, which says nothing of the run.
    except BROKEN:  # Code of the author's is in it, his types and migrations.
        return None
    return run.head


def adopt_current(run: Run) -> None:
    """Pin a queued run to the current version here, where that takes it. Else it stays as it is, for whoever judges."""
    claim = leases.claim_one(run.id)
    lease = leases.begin_lease(claim.id, claim.epoch) if claim else None
    if lease is None:
        return
    try:
        if not lease.cancelling:
            with suppress(CountersignError):
                head, given = head_loader.load_head(lease), head_loader.input_of(lease)
                pin.adopt_version(lease, head, given, registry.current(run.graph))
    finally:
        leases.give_back(lease.id, lease.epoch, counts=False)
