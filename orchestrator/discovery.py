"""Finding graphs: each installed app's `graphs.py` is imported, and every module-level Graph in it registered.

Versions that any process has seen are rows: only a process that has the newest may say that a run's graph is gone.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import structlog
from django.apps import apps
from django.db import IntegrityError, transaction
from django.utils import timezone

from checkpoints.conf import conf
from checkpoints.models import GraphVersion
from checkpoints.queue.workers import live_fingerprints
from checkpoints.sealing import sealed_rows
from checkpoints.verification.graph_versions import faults_among
from orchestrator.engine import Graph, registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.errors import UnknownThing

_noted: set[str] = set()
_refused: set[str] = set()
"""Rows of versions that are not as they were sealed, of which this process has told."""
log = structlog.get_logger(__name__)


def discover() -> list[Compiled]:
    """Register the graphs of all installed apps, once, when Django is ready. Raises `InvalidGraph` naming the graph."""
    found = []
    for config in apps.get_app_configs():
        name = f"{config.name}.graphs"
        if find_spec(name) is not None:
            graphs = [value for value in vars(import_module(name)).values() if isinstance(value, Graph)]
            found += [registry.register(graph) for graph in dict.fromkeys(graphs)]
    return found


def note_versions() -> None:
    """Write down each registered version that was never seen before. Called when a worker starts."""
    for compiled in registry.all():
        _note(compiled)


def note_version(compiled: Compiled) -> None:
    """Write down a version, and with it the other registered versions of its graph, once a process.

    A version that is noted later counts as newer. One that stands registered beside this version must therefore be
    noted with it: a process that has only that other one would otherwise take this version's runs as its own.
    """
    if compiled.fingerprint in _noted:
        return
    beside = [other for other in registry.all() if other.name == compiled.name]
    for version in dict.fromkeys([*beside, compiled]):
        _note(version)


def _note(compiled: Compiled) -> None:
    if compiled.fingerprint in _noted:
        return
    row = {"name": compiled.name, "version": compiled.version, "fingerprint": compiled.fingerprint}
    shown = {"current": registry.current(compiled.name) is compiled, "structure": compiled.structure_text}
    try:
        with transaction.atomic():
            # A row that is there is not sealed anew: that would cover up what was done to it.
            if not GraphVersion.objects.filter(**row).update(**shown):
                _insert(GraphVersion(**row, **shown))
    except IntegrityError:
        pass  # Another process wrote the same row first.
    # Only once it is sure to stay: a caller's rollback takes the row with it.
    transaction.on_commit(lambda: _noted.add(compiled.fingerprint))


def _insert(version: GraphVersion) -> None:
    """Write a version down behind all of its graph that were seen before, whatever the clock of this host says."""
    last = GraphVersion.objects.filter(name=version.name).order_by("-first_seen_at", "-id").first()
    now = timezone.now()
    version.first_seen_at = max(now, last.first_seen_at + timedelta(microseconds=1)) if last else now
    version.before = last.fingerprint if last else ""
    sealed_rows.seal(version, sealed_rows.PLAIN)
    version.save(force_insert=True)


def forget_noted(**_: Any) -> None:
    """Take nothing for written down any more: rows may be gone after a migrate or a flush."""
    _noted.clear()


def newest_versions(names: Collection[str]) -> dict[str, str]:
    """The fingerprint of each of these graphs that was first seen last, of those that are current where they are.
    One query; few rows, one a change.
    """
    return _newest(_seen(names))


def later_versions(newest: Mapping[str, str]) -> set[str]:
    """What was first seen after these versions of their graphs: nobody takes a run back from it unasked. One query."""
    return _later(_seen(newest), newest)


def versions_once_noted(names: Collection[str]) -> tuple[dict[str, str], set[str]]:
    """The newest versions of these graphs, and what was first seen after them, as they will be when a process with
    these graphs has started and written down its own. Nothing is written. One query.
    """
    rows = _seen(names)
    known = {(name, fingerprint) for name, fingerprint, _ in rows}
    ours = [one for one in registry.all() if one.name in names]
    rows += [(one.name, one.fingerprint, False) for one in ours if (one.name, one.fingerprint) not in known]
    current = {(one.name, one.fingerprint): registry.current(one.name) is one for one in ours}
    noted = [(name, fingerprint, current.get((name, fingerprint), is_it)) for name, fingerprint, is_it in rows]
    newest = _newest(noted)
    return newest, _later(noted, newest)


_Seen = list[tuple[str, str, bool]]


def _newest(seen: _Seen) -> dict[str, str]:
    return {name: fingerprint for name, fingerprint, current in seen if current}


def _later(seen: _Seen, newest: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    passed: set[str] = set()
    for name, fingerprint, _ in seen:
        if name in passed:
            found.add(fingerprint)
        elif fingerprint == newest.get(name):
            passed.add(name)
    return found


def _seen(names: Collection[str]) -> _Seen:
    """(name, fingerprint, current) of every version of these graphs, in the order in which they were first seen. None
    of a graph of which a version is not as it was sealed, or was deleted: nobody can tell which is newer.
    """
    rows = list(GraphVersion.objects.filter(name__in=names).defer("structure").order_by("first_seen_at", "id"))
    tampered = dict(faults_among(rows))
    for name, fault in tampered.items():
        if fault.what not in _refused:
            _refused.add(fault.what)
            log.error("graph_version_tampered", graph=name, row=fault.what, error=fault.reason)
    return [(row.name, row.fingerprint, row.current) for row in rows if row.name not in tampered]


def judging_version(graph: str, pinned: str) -> Compiled | None:
    """The version by which this process judges a run that is pinned to another one: the newest that any process has
    seen, where it is registered here and was first seen later. None: others judge, or a live worker has the run's own.

    A process writes down its own first, as a worker that starts.
    """
    try:
        note_version(registry.current(graph))
    except UnknownThing:
        return None
    newest = registry.find_graph(newest_versions({graph}).get(graph, ""))
    if newest is None or pinned in live_fingerprints() or pinned in later_versions({graph: newest.fingerprint}):
        return None
    return newest


def is_ours(graph: str, fingerprint: str) -> bool:
    """Whether this process may take a run that is pinned to this: to work on it, or to judge whether it can go on."""
    return registry.find_graph(fingerprint) is not None or judging_version(graph, fingerprint) is not None


def missing_secrets(compiled: Compiled) -> list[str]:
    """The names of the secrets that a graph needs and this process has not: not in its settings, or empty there."""
    return [name for name in compiled.graph.secrets if not conf().secrets.get(name)]
