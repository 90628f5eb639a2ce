"""Versions of graphs as rows: what each declares, which came first, and what becomes of
a run of one version under another.

Workers that go on with a run, and pages that show one, use it; the judging itself is
pure (`orchestrator.engine.versions.judgement`).
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol

import structlog

from checkpoints.models import GraphVersion, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import SealFault, fault_of
from orchestrator.engine import registry
from orchestrator.engine.errors import TamperedRow, UnknownThing
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.values.canonical import digest
from orchestrator.engine.versions.differences import BREAKING
from orchestrator.engine.versions.judgement import (
    MIGRATED,
    Judgement,
    depends_on_silence,
    judge,
)
from orchestrator.engine.versions.pending_parts import Pending

MOST_KEPT = 1000
"""The most structures that a process keeps; they never change."""

_structures: dict[str, dict[str, Any]] = {}
_refused: set[str] = set()
"""Rows of versions that do not match their seals, which this process has logged."""
log = structlog.get_logger(__name__)


class Pinned(Protocol):
    """A run, or a lease on one, with the version that it is pinned to."""

    @property
    def graph(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


def structure_of(fingerprint: str) -> dict[str, Any] | None:
    """Return what a version declares; None if it was not recorded, or its row is not
    what the fingerprint stands for.
    """
    registered = registry.find_graph(fingerprint)
    if registered is not None:
        return registered.structure
    if fingerprint not in _structures:
        read_structures([fingerprint])
    return _structures.get(fingerprint)


def read_structures(fingerprints: Collection[str]) -> None:
    """Read what these versions declare, for `structure_of`. One query."""
    if len(_structures) >= MOST_KEPT:
        _structures.clear()
    rows = GraphVersion.objects.filter(fingerprint__in=fingerprints).values_list(
        "fingerprint", "structure"
    )
    for fingerprint, text in rows:
        # No seal covers the structure: the fingerprint is its hash, and proves it.
        if digest(text.encode()) == fingerprint:
            _structures[fingerprint] = json.loads(text)


def judgement_of(
    run: Pinned,
    target: Compiled,
    at: Pending | None,
    *,
    held: Callable[[], Collection[str]] = frozenset,
    silent: Callable[[], Collection[str]] | None = None,
) -> Judgement:
    """Return what becomes of a run at this point if it goes on with `target`. `held`
    returns the channels that people are asked about now; it is called where a migration
    changes some. `silent` returns the nodes at which people are asked now and whose
    deadline approves; it is called where that would let something act. At most one query
    besides those.
    """
    old = structure_of(run.fingerprint)
    judge_run = partial(
        judge, old, run.version, target, at, migrations=registry.migrations(run.graph)
    )
    if silent is not None and depends_on_silence(old, target, at):
        judge_run = partial(judge_run, silent=silent())
    judgement = judge_run()
    if judgement.verdict != MIGRATED or not judgement.in_words(BREAKING):
        return judgement
    return judge_run(held=held())


def graph_for(run: Run) -> Compiled | None:
    """Return the graph with which this process reads a run's values and requests: the
    version that the run is pinned to; else the current version, where that takes the
    run as it stands, so its types are the same. None if there is neither. Which version
    goes on with the run is determined by `discovery.judging_version` instead.
    """
    pinned = registry.find_graph(run.fingerprint)
    if pinned is not None:
        return pinned
    try:
        target = registry.current(run.graph)
    except UnknownThing:
        return None
    judgement = judgement_of(run, target, Pending.from_text(run.pending))
    if not judgement.adopted or judgement.verdict == MIGRATED:
        return None
    return target


def newest_versions(names: Collection[str]) -> dict[str, str]:
    """Return for each of these graphs the fingerprint that was first seen last, among
    those that are current in a process. One query; few rows, one for each change.
    """
    return _newest(_seen(names))


def later_versions(newest: Mapping[str, str]) -> set[str]:
    """Return the versions that were first seen after these of their graphs: no run goes
    back from one unless a person wants it. One query.
    """
    return _later(_seen(newest), newest)


def versions_once_noted(names: Collection[str]) -> tuple[dict[str, str], set[str]]:
    """Return the newest versions of these graphs, and those first seen after them, as
    they will be once a process with these graphs has started and recorded its own.
    Nothing is written. One query.
    """
    rows = _seen(names)
    recorded = {(name, fingerprint) for name, fingerprint, _ in rows}
    is_current_here: dict[tuple[str, str], bool] = {}
    for graph in registry.all():
        if graph.name not in names:
            continue
        version = (graph.name, graph.fingerprint)
        is_current_here[version] = registry.current(graph.name) is graph
        # Added at the end, for it will be seen after all that are recorded.
        if version not in recorded:
            rows.append((*version, False))
    noted = [
        (name, fingerprint, is_current_here.get((name, fingerprint), current))
        for name, fingerprint, current in rows
    ]
    newest = _newest(noted)
    return newest, _later(noted, newest)


_Seen = list[tuple[str, str, bool]]


def _newest(seen: _Seen) -> dict[str, str]:
    # In the order in which they were seen, so the last one of a name stays.
    return {name: fingerprint for name, fingerprint, current in seen if current}


def _later(seen: _Seen, newest: Mapping[str, str]) -> set[str]:
    later: set[str] = set()
    # The graphs whose newest version has come in this order.
    passed: set[str] = set()
    for name, fingerprint, _ in seen:
        if name in passed:
            later.add(fingerprint)
        elif fingerprint == newest.get(name):
            passed.add(name)
    return later


def _seen(names: Collection[str]) -> _Seen:
    """Return (name, fingerprint, current) of every version of these graphs, in the
    order in which they were first seen; none of a graph with a version that does not
    match its seal or was deleted: nobody can tell which is newer.
    """
    rows = list(
        GraphVersion.objects.filter(name__in=names)
        .defer("structure")
        .order_by("first_seen_at", "id")
    )
    tampered = dict(version_faults(rows))
    for name, fault in tampered.items():
        if fault.row not in _refused:
            _refused.add(fault.row)
            log.error(
                "graph_version_tampered", graph=name, row=fault.row, error=fault.reason
            )
    return [
        (row.name, row.fingerprint, row.current)
        for row in rows
        if row.name not in tampered
    ]


def version_faults(rows: Iterable[GraphVersion]) -> Iterator[tuple[str, SealFault]]:
    """Yield (name of the graph, fault) for each version that does not match its seal,
    or that was seen after one that is gone. `rows` are in the order in which they were
    first seen.
    """
    seen: dict[str, set[str]] = {}
    for row in rows:
        earlier = seen.setdefault(row.name, set())
        fault = _version_fault(row, earlier)
        if fault is not None:
            yield row.name, fault
        earlier.add(row.fingerprint)


def _version_fault(row: GraphVersion, earlier: Collection[str]) -> SealFault | None:
    fault = fault_of(row, sealed_rows.PLAIN)
    if fault is not None:
        return fault
    # Two that are noted at once may name the same version before them, or none.
    if row.before and row.before not in earlier:
        name = sealed_rows.name_of(row)
        reason = (
            f"{name} was seen after {row.before}, which is gone or stands behind it"
        )
        return SealFault(TamperedRow.code_of_class, name, reason)
    return None
