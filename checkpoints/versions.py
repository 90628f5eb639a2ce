"""Versions of graphs as rows: what each declares, which came first, and what a run of one makes of another.

Whoever has to go on with a run, or shows one, asks here; the judging itself is pure (`orchestrator.engine.judgement`).
"""

import json
from collections.abc import Callable, Collection
from typing import Any, Protocol

from checkpoints.models import GraphVersion, Run
from orchestrator.engine import registry
from orchestrator.engine.canonical import digest
from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.judgement import MIGRATED, Judgement, judge
from orchestrator.engine.pending_parts import Pending

MOST_KEPT = 1000
"""Structures that a process keeps; they never change."""

_structures: dict[str, dict[str, Any]] = {}


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
