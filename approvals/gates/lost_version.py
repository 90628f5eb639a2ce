"""Signatures that nothing could apply: a run whose version is gone, and which the version in its place cannot take.

Judged as the worker will judge that takes the run once it is signed. Reads; nothing is written.
"""

from django.db.models import Q

from approvals.gates.reviewed_channels import channels_under_review
from checkpoints import versions
from checkpoints.models import Run
from checkpoints.queue import workers
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING
from orchestrator.engine.errors import IncompatibleGraph, UnknownThing
from orchestrator.engine.judgement import NEEDS_MIGRATION, Judgement
from orchestrator.engine.pending_parts import Pending


def require_signable(run: Run) -> None:
    """Raise `IncompatibleGraph` where a worker would stop the run as incompatible once it is signed."""
    if (refusal := refusal_to_sign(run)) is not None:
        raise refusal


def refusal_to_sign(run: Run) -> IncompatibleGraph | None:
    """The error that names what changed and what to do, where a worker would stop the run as incompatible; else None.

    No query where this process has the version of the run; else at most four.
    """
    if registry.find_graph(run.fingerprint) is not None:
        return None
    at = Pending.from_text(run.pending)
    target = _judging_version(run)
    # Where nobody wrote down at which point the run stands, only its worker, who opens the state, can tell.
    if target is None or at is None:
        return None
    found = versions.judgement_of(run, target, at, held=lambda: _asked_channels(run))
    return None if found.adopted else _refusal(run, target, found)


def _judging_version(run: Run) -> Compiled | None:
    """The version that will judge the run, if it is here: the newest that any process has seen. None while a live
    worker has the run's own version, and where the run is of a later one, which no worker takes back.
    """
    try:
        target = registry.current(run.graph)
    except UnknownThing:
        return None
    newest, later = versions.versions_once_noted({run.graph})
    judges = newest.get(run.graph) == target.fingerprint and run.fingerprint not in later
    if not judges or run.fingerprint in workers.live_fingerprints():
        return None
    return target


def _asked_channels(run: Run) -> set[str]:
    return channels_under_review(Q(run=run.id)).get(run.id, set())


def _refusal(run: Run, target: Compiled, found: Judgement) -> IncompatibleGraph:
    changed = "; ".join(found.said(BREAKING))
    message = (
        f"run {run.key} began with version {run.version} of {run.graph}, which is not here any more,"
        f" and could not go on with version {target.version} once it is signed: {changed}."
        f" Nothing was signed. {_cure(run, target, found)}"
    )
    changes = [difference.to_json() for difference in found.differences]
    return IncompatibleGraph(message, version=target.version, fingerprint=target.fingerprint, changes=changes)


def _cure(run: Run, target: Compiled, found: Judgement) -> str:
    if found.same_version:
        return f"Raise the version of what is here, for it is called {target.version} too; deploy it beside the old one"
    beside = f"Deploy version {run.version} beside version {target.version}"
    if found.verdict == NEEDS_MIGRATION:
        return f"{beside}, or a migration that leads there; then sign again"
    return f"{beside} and sign again, or fork the run from a checkpoint that version {target.version} can take over"
