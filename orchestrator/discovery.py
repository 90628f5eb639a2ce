"""Finding graphs: each installed app's `graphs.py` is imported, and every module-level
Graph in it registered.

Versions that any process has seen are rows: only a process that has the newest may say
that a run's graph is gone.
"""

from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import apps
from django.db import IntegrityError, transaction
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.models import GraphVersion
from checkpoints.queue.workers import live_fingerprints
from checkpoints.sealing import sealed_rows
from checkpoints.versions import later_versions, newest_versions
from orchestrator import graphs as shipped
from orchestrator.engine import Graph, registry
from orchestrator.engine.errors import InvalidGraph, UnknownThing
from orchestrator.engine.graphs.compile import Compiled

_noted: set[str] = set()


def discover() -> list[Compiled]:
    """Register the graphs of all installed apps, once, when Django is ready. Raises
    `InvalidGraph` naming the graph.
    """
    registered = []
    for config in apps.get_app_configs():
        name = f"{config.name}.graphs"
        # Looked up first, so that an import that fails inside the module is seen.
        if find_spec(name) is not None:
            graphs = [
                value
                for value in vars(import_module(name)).values()
                if isinstance(value, Graph)
            ]
            for graph in graphs:
                _refuse_reserved_name(graph, name)
            registered += [registry.register(graph) for graph in dict.fromkeys(graphs)]
    return registered


def _refuse_reserved_name(graph: Graph, module: str) -> None:
    """Raise `InvalidGraph` for another graph, or another version, under the name of the
    one that the package brings: new runs would be of it.
    """
    if graph.name == shipped.NAME and graph is not shipped.approval:
        raise InvalidGraph(
            f"{module}: the name {shipped.NAME} is reserved", graph=graph.name
        )


def is_encrypted(compiled: Compiled) -> bool:
    """Return whether new runs of a graph are encrypted: as it declares, or as the
    settings say of approvals.
    """
    if compiled.name == shipped.NAME:
        return conf().encrypt_approvals
    return compiled.graph.encrypted


def note_versions() -> None:
    """Write down each registered version that was never seen before. Called when a
    worker starts.
    """
    for compiled in registry.all():
        _note(compiled)


def note_version(compiled: Compiled) -> None:
    """Write down a version, and with it the other registered versions of its graph,
    once a process.

    A version that is noted later counts as newer. One that stands registered beside
    this version must therefore be noted with it: a process that has only that other one
    would otherwise take this version's runs as its own.
    """
    if compiled.fingerprint in _noted:
        return
    beside = [other for other in registry.all() if other.name == compiled.name]
    for version in dict.fromkeys([*beside, compiled]):
        _note(version)


def _note(compiled: Compiled) -> None:
    if compiled.fingerprint in _noted:
        return
    row = {
        "name": compiled.name,
        "version": compiled.version,
        "fingerprint": compiled.fingerprint,
    }
    shown = {
        "current": registry.current(compiled.name) is compiled,
        "structure": compiled.structure_text,
    }
    try:
        with transaction.atomic():
            # A row that is there is not resealed: that would cover up what was done to
            # it.
            if not GraphVersion.objects.filter(**row).update(**shown):
                _insert(GraphVersion(**row, **shown))
    except IntegrityError:
        pass  # Another process wrote the same row first.
    # Only once it is sure to stay: a caller's rollback takes the row with it.
    transaction.on_commit(lambda: _noted.add(compiled.fingerprint))


def _insert(version: GraphVersion) -> None:
    """Record a version after all of its graph that were seen before, whatever the clock
    of this host says.
    """
    last = (
        GraphVersion.objects.filter(name=version.name)
        .order_by("-first_seen_at", "-id")
        .first()
    )
    now = timezone.now()
    version.first_seen_at = (
        max(now, last.first_seen_at + timedelta(microseconds=1)) if last else now
    )
    version.before = last.fingerprint if last else ""
    sealed_rows.seal(version, sealed_rows.PLAIN)
    version.save(force_insert=True)


def forget_noted(**_: Any) -> None:
    """Forget which versions are written down: after a migrate or a flush their rows may
    be gone.
    """
    _noted.clear()


def judging_version(graph: str, pinned: str) -> Compiled | None:
    """Return the version with which this process may take over a run that is pinned to
    another one: the newest that any process has seen, if it is registered here and was
    first seen after the pinned one. Return None if that is for other processes, or if a
    live worker has the run's own version.

    Notes this process's version first, as a worker does when it starts.
    """
    try:
        note_version(registry.current(graph))
    except UnknownThing:
        return None
    newest = registry.find_graph(newest_versions({graph}).get(graph, ""))
    if (
        newest is None
        or pinned in live_fingerprints()
        or pinned in later_versions({graph: newest.fingerprint})
    ):
        return None
    return newest


def is_ours(graph: str, fingerprint: str) -> bool:
    """Return whether this process may take a run that is pinned to this version: to
    work on it, or to judge whether it can go on.
    """
    return (
        registry.find_graph(fingerprint) is not None
        or judging_version(graph, fingerprint) is not None
    )


def missing_secrets(compiled: Compiled) -> list[str]:
    """Return the names of the secrets that a graph needs and this process lacks: those
    that its settings do not name, or leave empty.
    """
    return [name for name in compiled.graph.secrets if not conf().secrets.get(name)]
