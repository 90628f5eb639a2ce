"""The work that this process can take, by the graphs that it has registered. Read by
broker, watchdog and configuration.
"""

from checkpoints.conf import conf
from checkpoints.queue.due_runs import Claimable
from checkpoints.queue.workers import live_fingerprints
from checkpoints.versions import later_versions, newest_versions
from orchestrator.discovery import missing_secrets
from orchestrator.engine import registry
from orchestrator.engine.graphs.compile import Compiled


def fingerprints() -> list[str]:
    """Return the fingerprints of all registered versions whose secrets are here,
    sorted.
    """
    return sorted(
        {
            compiled.fingerprint
            for compiled in registry.all()
            if not missing_secrets(compiled)
        }
    )


def claimable() -> Claimable:
    """Return what this process may claim: runs of the registered versions, and all runs
    of a graph whose newest version anywhere is registered here.

    So during a rolling deployment an old process leaves new runs alone, and a new one
    judges an old run once no live worker has its version. Runs of a registered version
    whose secrets this process lacks are left to a worker that has them.
    """
    registered = frozenset(fingerprints())
    newest = newest_versions({compiled.name for compiled in registry.all()})
    judged = {
        name: fingerprint
        for name, fingerprint in newest.items()
        if fingerprint in registered
    }
    # They would come in through their graph, if this process judges it.
    lacking = {compiled.fingerprint for compiled, _ in without_secrets()}
    # Runs of versions that a live worker has, or that came later, are left to others.
    others = (live_fingerprints() | later_versions(judged)) - registered
    return Claimable(registered, frozenset(judged), frozenset(others | lacking))


def without_secrets() -> list[tuple[Compiled, list[str]]]:
    """Return the registered versions that this process must not run, with the names of
    the secrets that it lacks.
    """
    secrets_by_graph = [
        (compiled, missing_secrets(compiled)) for compiled in registry.all()
    ]
    return [(compiled, names) for compiled, names in secrets_by_graph if names]


def longest_task_seconds() -> float:
    """Return the longest time that one task of a registered graph may take, with all
    its attempts.
    """
    seconds = [conf().node_timeout]
    for compiled in registry.all():
        for node in compiled.nodes.values():
            timeout = conf().node_timeout
            if node.timeout is not None:
                timeout = float(node.timeout)
            attempts = node.retry.attempts if node.retry else 1
            seconds.append(timeout * attempts)
    return max(seconds)
