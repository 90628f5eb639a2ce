"""The choice of another version for a run whose own is not registered: the ways that
exist, and what a steward's resume does.

Workers go forwards only. After a deployment was rolled back, a person who resumes a run
decides that the run goes back too.
"""

from collections.abc import Collection
from contextlib import suppress
from uuid import UUID

from django.db import Error
from django.db.models import Q

from approvals.gates.reviewed_channels import (
    channels_under_review,
    nodes_silence_approves,
)
from checkpoints import versions
from checkpoints.ledger import head_loader
from checkpoints.ledger.run_error import stored_error
from checkpoints.models import Run
from checkpoints.queue import leases, workers
from orchestrator.engine import registry
from orchestrator.engine.errors import BROKEN, CountersignError, UnknownThing
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.versions.judgement import MIGRATED
from orchestrator.engine.versions.pending_parts import Pending
from orchestrator.execution.adoption import pin
from orchestrator.travel import verbs as travel


def is_stranded(run: Run) -> bool:
    """Return whether neither this process nor any live worker has the version that a
    run is pinned to, while this process has another version of its graph.
    """
    if registry.find_graph(run.fingerprint) is not None:
        return False
    try:
        registry.current(run.graph)
    except UnknownThing:
        return False
    # Last, because it is the one that costs a query.
    return run.fingerprint not in workers.live_fingerprints()


def can_adopt(run: Run) -> bool:
    """Return whether a run that no other process can take can continue with this
    process's version, migrated and with its people asked. Opens the state and runs the
    author's migrations.
    """
    if not is_stranded(run):
        return False
    if not _action_of_resume(run, registry.current(run.graph)):
        return False
    return _checkpoint_to_fork(run) is not None


def cure_of_stranded(run: Run) -> str:
    """Return the remedy for a run that waits for people while no process has its
    version, as the rest of a sentence; else empty.
    """
    if not is_stranded(run):
        return ""
    current = registry.current(run.graph).version
    return (
        f"; its version {run.version} is not here, so nobody can edit what waits: "
        f"register that beside version {current}, "
        "or deploy a migration to that that takes the run as it stands"
    )


@frozen
class ContinuationWays:
    """The ways in which an incompatible run can continue: `resume` is what resuming it
    does now, `fork` the checkpoint from which this process's version takes over. They
    are empty and None if there is no such way. `same_version`: this process's version
    has the same name as the run's, although it is another one.
    """

    resume: str = ""
    fork: UUID | None = None
    same_version: bool = False


def ways_out(run: Run, *, forks: bool) -> ContinuationWays:
    """Return the ways that exist, with this process and the live workers as they are
    now. Tries whether a fork is possible only with `forks`, because that runs the
    author's migrations.
    """
    fork = _checkpoint_to_fork(run) if forks else None
    if (
        registry.find_graph(run.fingerprint) is not None
        or run.fingerprint in workers.live_fingerprints()
    ):
        return ContinuationWays(f"Finish on version {run.version}", fork)
    try:
        target = registry.current(run.graph)
    except UnknownThing:
        return ContinuationWays()
    resume = _action_of_resume(run, target)
    return ContinuationWays(resume, fork, run.version == target.version)


def _action_of_resume(run: Run, target: Compiled) -> str:
    """Return what a resume would do to bring the run onto this version; empty if it
    cannot.
    """

    def channels_waiting() -> Collection[str]:
        return channels_under_review(Q(run=run.id)).get(run.id, frozenset())

    def nodes_silent() -> Collection[str]:
        return nodes_silence_approves(Q(run=run.id)).get(run.id, frozenset())

    at = Pending.from_text(run.pending)
    judgement = versions.judgement_of(
        run, target, at, held=channels_waiting, silent=nodes_silent
    )
    if not judgement.adopted:
        return ""
    if judgement.verdict == MIGRATED:
        return f"Run the migration {', '.join(step.name for step in judgement.steps)}"
    if _was_refused(run, target):
        return ""
    return f"Go on with version {target.version}"


def _was_refused(run: Run, target: Compiled) -> bool:
    """Return whether this very version was tried before and refused, for a reason that
    a judgement does not see.
    """
    error = stored_error(run) or {}
    return bool(error.get("because")) and error.get("fingerprint") == target.fingerprint


def _checkpoint_to_fork(run: Run) -> UUID | None:
    """Return the newest checkpoint, if a fork from it is possible. That is tried by
    making its plan, which fails if a migration does, or would misread what waits.
    """
    try:
        travel.plan(run.head or "")
    except Error:
        # The database is unavailable, which means nothing for the run.
        raise
    except BROKEN:
        # The plan runs the author's code: types and migrations.
        return None
    return run.head


def adopt_current(run: Run) -> None:
    """Pin a queued run to this process's current version, if that can take it. Else the
    run stays as it is, for a worker to judge.
    """
    claim = leases.claim_one(run.id)
    if claim is None:
        return
    lease = leases.begin_lease(claim.id, claim.epoch)
    if lease is None:
        return
    try:
        # A run that is to be cancelled needs no version.
        if not lease.cancelling:
            with suppress(CountersignError):
                head = head_loader.load_head(lease)
                run_input = head_loader.input_of(lease)
                current = registry.current(run.graph)
                pin.adopt_version(lease, head, run_input, current)
    finally:
        leases.give_back(lease.id, lease.epoch, counts=False)
