"""Versions of graphs as rows: what each declares, which came first, and what a run of one makes of another.

Whoever has to go on with a run, or shows one, asks here; the judging itself is pure (`orchestrator.engine.judgement`).
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Protocol

import structlog

from checkpoints.models import GraphVersion, Run
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.seal_fault import SealFault, fault_of
from orchestrator.engine import registry
from orchestrator.engine.canonical import digest
from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING
from orchestrator.engine.errors import TamperedRow, UnknownThing
from orchestrator.engine.judgement import MIGRATED, Judgement, judge
from orchestrator.engine.pending_parts import Pending

MOST_KEPT = 1000
"""Structures that a process keeps; they never change."""

_structures: dict[str, dict[str, Any]] = {}
_refused: set[str] = set()
"""Rows of versions that are not as they were sealed, which this process has logged."""
log = structlog.get_logger(__name__)


class Pinned(Protocol):
    """A run, or whoever holds one: what it is pinned to."""

    @property
    def graph(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...


def structure_of(fingerprint: str) -> dict[str, Any] | None:
    """What a version declares; None where nobody wrote it down, or its row is not what the fingerprint stands for."""
    if (known := registry.find_graph(fingerprint)) is not None:
        return known.structure
    if fingerprint not in _structures:
        read_structures([fingerprint])
    return _structures.get(fingerprint)


def read_structures(fingerprints: Collection[str]) -> None:
    """Read what these versions declare, for `structure_of`. One query."""
    if len(_structures) >= MOST_KEPT:
        _structures.clear()
    rows = GraphVersion.objects.filter(fingerprint__in=fingerprints).values_list("fingerprint", "structure")
    for fingerprint, text in rows:
        if digest(text.encode()) == fingerprint:
            _structures[fingerprint] = json.loads(text)


def judgement_of(
    run: Pinned, target: Compiled, at: Pending | None, *, held: Callable[[], Collection[str]] = frozenset
) -> Judgement:
    """What becomes of a run that stands at this point where it goes on with `target`. `held` gives the channels that
    people are asked about now; it is asked where a migration changes some. At most one query of its own.
    """
    old, migrations = structure_of(run.fingerprint), registry.migrations(run.graph)
    found = judge(old, run.version, target, at, migrations=migrations)
    if found.verdict != MIGRATED or not found.said(BREAKING):
        return found
    return judge(old, run.version, target, at, migrations=migrations, held=held())


def graph_for(run: Run) -> Compiled | None:
    """The graph that reads what a run shows and asks, in this process: the one that it is pinned to; else the current
    version, where that takes the run as it stands, so its types are the same. None where there is neither. It says
    nothing of who may go on with the run, which `discovery.judging_version` does.
    """
    pinned = registry.find_graph(run.fingerprint)
    if pinned is not None:
        return pinned
    try:
        target = registry.current(run.graph)
    except UnknownThing:
        return None
    found = judgement_of(run, target, Pending.from_text(run.pending))
    return target if found.adopted and found.verdict != MIGRATED else None


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
    tampered = dict(version_faults(rows))
    for name, fault in tampered.items():
        if fault.row not in _refused:
            _refused.add(fault.row)
            log.error("graph_version_tampered", graph=name, row=fault.row, error=fault.reason)
    return [(row.name, row.fingerprint, row.current) for row in rows if row.name not in tampered]


def version_faults(rows: Iterable[GraphVersion]) -> Iterator[tuple[str, SealFault]]:
    """Yield (name of the graph, fault) for each version that is not as it was sealed, or that was seen after one that
    is gone. `rows` are in the order in which they were first seen.
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
        reason = f"{name} was seen after {row.before}, which is gone or stands behind it"
        return SealFault(TamperedRow.code_of_class, name, reason)
    return None
