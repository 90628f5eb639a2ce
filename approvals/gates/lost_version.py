"""Signatures that nothing could apply: the version of the run is gone, and the version
that is here instead cannot take the run.

Judges as the worker that takes over the signed run will judge. Reads only.
"""

from django.db.models import Q

from approvals.gates.reviewed_channels import (
    channels_under_review,
    nodes_silence_approves,
)
from checkpoints import versions
from checkpoints.models import Run
from checkpoints.queue import workers
from orchestrator.engine import registry
from orchestrator.engine.errors import IncompatibleGraph, UnknownThing
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.versions.differences import BREAKING
from orchestrator.engine.versions.judgement import NEEDS_MIGRATION, Judgement
from orchestrator.engine.versions.pending_parts import Pending


def require_signable(run: Run) -> None:
    """Raise `IncompatibleGraph` if a worker would stop the run as incompatible once it
    is signed.
    """
    refusal = refusal_to_sign(run)
    if refusal is not None:
        raise refusal


def refusal_to_sign(run: Run) -> IncompatibleGraph | None:
    """Return the error that names what changed and what to do, if a worker would stop
    the run as incompatible; else None.

    No query if this process has the version of the run; else at most five.
    """
    if registry.find_graph(run.fingerprint) is not None:
        return None
    pending = Pending.from_text(run.pending)
    target = _judging_version(run)
    # If it was not recorded at which point the run stands, only its worker, which opens
    # the state, can judge.
    if target is None or pending is None:
        return None

    def channels_in_review() -> set[str]:
        return channels_under_review(Q(run=run.id)).get(run.id, set())

    def nodes_silent() -> set[str]:
        return nodes_silence_approves(Q(run=run.id)).get(run.id, set())

    judgement = versions.judgement_of(
        run, target, pending, held=channels_in_review, silent=nodes_silent
    )
    if judgement.adopted:
        return None
    return _refusal(run, target, judgement)


def _judging_version(run: Run) -> Compiled | None:
    """Return the version that will judge the run, if it is here: the newest that any
    process has seen. None while a live worker has the run's own version, and if the run
    is of a later version, from which no worker takes it back.
    """
    try:
        target = registry.current(run.graph)
    except UnknownThing:
        return None
    newest, later = versions.versions_once_noted({run.graph})
    # The worker that has the newest version will judge, and this process has an older.
    if newest.get(run.graph) != target.fingerprint:
        return None
    if run.fingerprint in later:
        return None
    if run.fingerprint in workers.live_fingerprints():
        return None
    return target


def _refusal(run: Run, target: Compiled, judgement: Judgement) -> IncompatibleGraph:
    breaking = "; ".join(judgement.in_words(BREAKING))
    return IncompatibleGraph(
        f"run {run.key} began with version {run.version} of {run.graph}, which is not "
        f"here any more, and could not go on with version {target.version} once it is "
        f"signed: {breaking}. Nothing was signed. {_cure(run, target, judgement)}",
        version=target.version,
        fingerprint=target.fingerprint,
        changes=[difference.to_json() for difference in judgement.differences],
    )


def _cure(run: Run, target: Compiled, judgement: Judgement) -> str:
    if judgement.same_version:
        return (
            "Raise the version of what is here, for it is called "
            f"{target.version} too; deploy it beside the old one"
        )
    beside = f"Deploy version {run.version} beside version {target.version}"
    if judgement.verdict == NEEDS_MIGRATION:
        return f"{beside}, or a migration that leads there; then sign again"
    return (
        f"{beside} and sign again, or fork the run from a checkpoint that "
        f"version {target.version} can take over"
    )
