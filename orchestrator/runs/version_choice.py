"""A steward's resume lets a run go on with the version that is registered here, also with one that was seen earlier.

Workers go forwards only. After a deployment was taken back, a person says by resuming that the run shall go back too.
"""

from contextlib import suppress

from checkpoints import versions
from checkpoints.ledger import head_loader
from checkpoints.models import Run
from checkpoints.queue import leases
from orchestrator.engine import registry
from orchestrator.engine.errors import CountersignError, UnknownThing
from orchestrator.execution.adoption import pin


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
    return run.fingerprint not in versions.live_fingerprints()


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
