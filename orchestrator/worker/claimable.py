"""What this process can work on, from the graphs that it has registered. Read by broker, watchdog and configuration."""

from checkpoints.conf import conf
from checkpoints.queue.queue import Claimable
from checkpoints.versions import live_fingerprints
from orchestrator.discovery import newest_versions
from orchestrator.engine import registry


def fingerprints() -> list[str]:
    """Of all registered versions, sorted."""
    return sorted({compiled.fingerprint for compiled in registry.all()})


def claimable() -> Claimable:
    """Runs of the registered versions, and all runs of a graph whose newest version anywhere is registered here.

    During a rolling deployment an old process thereby leaves new runs alone, and a new one judges an old run once no
    live worker has its version any more.
    """
    ours = frozenset(fingerprints())
    newest = newest_versions({compiled.name for compiled in registry.all()})
    judged = frozenset(name for name, fingerprint in newest.items() if fingerprint in ours)
    return Claimable(ours, judged, frozenset(live_fingerprints() - ours))


def longest_task_seconds() -> float:
    """The longest that one task of a registered graph may take, with all its attempts."""
    seconds = [conf().node_timeout]
    for compiled in registry.all():
        for node in compiled.nodes.values():
            timeout = conf().node_timeout if node.timeout is None else float(node.timeout)
            seconds.append(timeout * (node.retry.attempts if node.retry else 1))
    return max(seconds)
