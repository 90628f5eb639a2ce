"""The secrets that a graph needs: nothing makes a run go on where nobody has them.

Settings give them, so each process has its own. A worker that lacks some takes no run of the graph; what it can run
stands in its row, which is how another process knows that a worker has them.
"""

from checkpoints.models import Run
from checkpoints.queue import leases, workers
from orchestrator.discovery import judging_version, missing_secrets
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import MissingSecrets, UnknownThing


def require_secrets(graph: Compiled) -> None:
    """Raise `MissingSecrets` where neither this process nor a live worker has what the graph needs. One query, none
    where they are here.
    """
    missing = missing_secrets(graph)
    if missing and not workers.any_can_run(graph.fingerprint):
        raise _refused(graph, missing, "neither this process nor a live worker has them")


def require_own_secrets(run: Run) -> None:
    """Raise `MissingSecrets` where this process itself, which would take the run now, lacks what its version needs, or
    that which takes its place where its own is gone. One query, none where they are here.
    """
    graph = registry.find_graph(run.fingerprint) or judging_version(run.graph, run.fingerprint)
    missing = missing_secrets(graph) if graph else []
    if graph and missing and leases.RUNS.is_due(run.id):
        raise _refused(graph, missing, "this process does not have them")


def graph_of(run: Run) -> Compiled | None:
    """The version with which the run would go on here: its own, else the current one; None where neither is here."""
    try:
        return registry.find_graph(run.fingerprint) or registry.current(run.graph)
    except UnknownThing:
        return None


def _refused(graph: Compiled, missing: list[str], why: str) -> MissingSecrets:
    needed = f"graph {graph.name} needs the secret{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    message = f"{needed}, and {why}; put them into COUNTERSIGN['SECRETS'] of the workers and start those anew"
    return MissingSecrets(message, graph=graph.name, secrets=missing)
