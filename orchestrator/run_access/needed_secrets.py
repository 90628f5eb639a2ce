"""The secrets that a graph needs, without which a run is not started or continued.

They come from settings, so each process has its own. A worker that lacks some takes no
run of the graph. Its row lists the graphs that it can run, from which other processes
see that a worker has the secrets.
"""

from checkpoints.models import Run
from checkpoints.queue import leases, workers
from orchestrator.discovery import judging_version, missing_secrets
from orchestrator.engine import registry
from orchestrator.engine.errors import MissingSecrets, UnknownThing
from orchestrator.engine.graphs.compile import Compiled


def require_secrets(graph: Compiled) -> None:
    """Raise `MissingSecrets` if neither this process nor a live worker has the secrets
    of the graph. One query; none if this process has them.
    """
    missing = missing_secrets(graph)
    if missing and not workers.any_can_run(graph.fingerprint):
        reason = "neither this process nor a live worker has them"
        raise _refusal(graph, missing, reason)


def require_own_secrets(run: Run) -> None:
    """Raise `MissingSecrets` if this process, which would take the run now, lacks the
    secrets of the run's version, or of the version that replaces it if that is gone.
    One query; none if this process has them.
    """
    graph = registry.find_graph(run.fingerprint)
    if graph is None:
        graph = judging_version(run.graph, run.fingerprint)
    if graph is None:
        return
    missing = missing_secrets(graph)
    # A run that is not due is not taken, whatever this process has.
    if missing and leases.RUNS.is_due(run.id):
        raise _refusal(graph, missing, "this process does not have them")


def graph_of(run: Run) -> Compiled | None:
    """Return the version with which the run would go on here: its own, or the current
    one if its own is not here; None if neither is.
    """
    try:
        return registry.find_graph(run.fingerprint) or registry.current(run.graph)
    except UnknownThing:
        return None


def _refusal(graph: Compiled, missing: list[str], reason: str) -> MissingSecrets:
    plural = "s" if len(missing) > 1 else ""
    message = (
        f"graph {graph.name} needs the secret{plural} {', '.join(missing)}, "
        f"and {reason}; put them into COUNTERSIGN['SECRETS'] of the workers "
        "and start those anew"
    )
    return MissingSecrets(message, graph=graph.name, secrets=missing)
