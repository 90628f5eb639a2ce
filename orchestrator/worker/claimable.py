"""What this process can work on, from the graphs that it has registered. Read by broker, watchdog and configuration."""

from checkpoints.conf import conf
from checkpoints.queue.queue import Claimable
from checkpoints.queue.workers import live_fingerprints
from checkpoints.versions import later_versions, newest_versions
from orchestrator.discovery import missing_secrets
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled


def fingerprints() -> list[str]:
    """Of all registered versions whose secrets are here, sorted."""
    return sorted({compiled.fingerprint for compiled in registry.all() if not missing_secrets(compiled)})


def claimable() -> Claimable:
    """Runs of the registered versions, and all runs of a graph whose newest version anywhere is registered here.

    During a rolling deployment an old process thereby leaves new runs alone, and a new one judges an old run once no
    live worker has its version any more. Runs of a registered version whose secrets are not here are left to a worker
    that has them.
    """
    ours = frozenset(fingerprints())
    newest = newest_versions({compiled.name for compiled in registry.all()})
    judged = {name: fingerprint for name, fingerprint in newest.items() if fingerprint in ours}
    lacking = {compiled.fingerprint for compiled, _ in without_secrets()}
    left = (live_fingerprints() | later_versions(judged)) - ours
    return Claimable(ours, frozenset(judged), frozenset(left | lacking))


def without_secrets() -> list[tuple[Compiled, list[str]]]:
    """The registered versions that this process must not run, with the names of the secrets that it has not."""
    found = [(compiled, missing_secrets(compiled)) for compiled in registry.all()]
    return [(compiled, names) for compiled, names in found if names]


def longest_task_seconds() -> float:
    """The longest that one task of a registered graph may take, with all its attempts."""
    seconds = [conf().node_timeout]
    for compiled in registry.all():
        for node in compiled.nodes.values():
            timeout = conf().node_timeout if node.timeout is None else float(node.timeout)
            seconds.append(timeout * (node.retry.attempts if node.retry else 1))
    return max(seconds)
