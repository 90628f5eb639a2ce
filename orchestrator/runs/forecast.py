"""What a deployment will do to the runs that are under way: read from columns, judged as a worker with this code will.

Runs that are at the same place of the same version share one judgement, so the cost grows with the places, not with the
runs. No payload is opened.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db.models import CharField, Count, Min, Q, Value
from django.db.models.functions import Cast, Coalesce

from approvals.gates.reviewed_channels import channels_under_review, count_signed
from checkpoints import versions
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Run
from checkpoints.versions import versions_once_noted
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING, WEIGHTS, Difference
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.frozen import frozen
from orchestrator.engine.gate_differences import asks_as_much
from orchestrator.engine.judgement import (
    GOES_ON,
    MIGRATED,
    NEEDS_MIGRATION,
    STUCK,
    WARNED,
    Judgement,
    judge,
)
from orchestrator.engine.pending_parts import Pending

UNFINISHED = tuple(sorted(status for status in Status if status not in ENDS))
GOING_ON = Q(status__in=UNFINISHED, imported=False)
"""The runs that some worker may take; one that was imported stays as it came."""
STAYS = "stays"
"""The version of the run is registered here too, and the run ends on it."""
OLDER = "is registered here in an older version than others have had, so no worker judges"
VERDICTS = (STAYS, GOES_ON, WARNED, MIGRATED, NEEDS_MIGRATION, STUCK)
MOST_EXAMPLES = 3
_ALL = 2**31
"""More than any place has runs."""


@frozen
class Place:
    """Where runs are that share a judgement."""

    graph: str
    version: str
    fingerprint: str
    pending: str

    @property
    def at(self) -> Pending | None:
        return Pending.from_text(self.pending)


@dataclass
class Group:
    """Runs of one version that share a fate: how many, why, and the ids of a few. `signed`: how many of them hold a
    value that people must sign, and no gate of the version that is here asks as much; a migration must not change it.
    `waiting`: of how many that go on by a migration values wait to be written, whose meaning it must not change.
    """

    graph: str
    version: str
    fingerprint: str
    judgement: Judgement
    number: int = 0
    signed: int = 0
    waiting: int = 0
    examples: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """{verdict, version, fingerprint, runs, signed, waiting, same_version, breaking, warning, harmless, migrations,
        examples}.
        """
        found = self.judgement
        return {
            "verdict": found.verdict,
            "version": self.version,
            "fingerprint": self.fingerprint,
            "runs": self.number,
            "signed": self.signed,
            "waiting": self.waiting,
            "same_version": found.same_version,
            **{weight: found.said(weight) for weight in WEIGHTS},
            "migrations": [step.name for step in found.steps],
            "examples": sorted(self.examples),
        }


def forecast_runs() -> list[Group]:
    """What becomes of every run that has not ended when workers have this process's graphs and no others, by graph.

    A statement for the runs, two for the versions; two more for each place that goes on by a migration, and one where
    the new version has no gate any more that asks as much.
    """
    places: dict[Place, tuple[int, str]] = {}
    for *place, number, example in _rows():
        places[Place(*place)] = number, str(UUID(example))
    versions.read_structures({place.fingerprint for place in places})
    targets = _targets({place.graph for place in places})
    found: dict[Any, Group] = {}
    for place, (number, example) in sorted(places.items(), key=lambda one: str(one[0])):
        for one in _judged(place, number, example, targets[place.graph]):
            key = (place.graph, place.version, place.fingerprint, one.judgement.verdict, one.judgement.differences)
            group = found.setdefault(key, Group(place.graph, place.version, place.fingerprint, one.judgement))
            group.number += one.number
            group.signed += min(one.number, _signed(place, targets[place.graph], one.judgement))
            group.waiting += one.waiting
            group.examples = [*group.examples, *one.examples][:MOST_EXAMPLES]
    return sorted(found.values(), key=lambda one: (one.graph, VERDICTS.index(one.judgement.verdict), one.version))


def _rows() -> Any:
    """(graph, version, fingerprint, pending, number, example) of each place. The index by status finds the runs; an
    expression keeps SQLite from walking through all runs in the order of their graphs instead.
    """
    rows = Run.objects.filter(GOING_ON).order_by().annotate(of=Coalesce("graph", Value("")))
    grouped = rows.values_list("of", "version", "fingerprint", "pending")
    return grouped.annotate(number=Count("id"), example=Min(Cast("id", CharField())))


@frozen
class _Target:
    """The version by which the runs of a graph will be judged, but for those of `later` ones; or why none will be."""

    compiled: Compiled | None
    why_not: str = ""
    later: frozenset[str] = frozenset()


def _targets(names: Collection[str]) -> dict[str, _Target]:
    """The version of each graph that will be judged by: the newest as soon as a worker with these graphs has started,
    which writes down which of its versions are current.
    """
    newest, later = versions_once_noted(names)
    return {name: _target(name, newest.get(name), frozenset(later)) for name in names}


def _target(name: str, newest: str | None, later: frozenset[str]) -> _Target:
    try:
        current = registry.current(name)
    except UnknownThing:
        return _Target(None, "is not registered here")
    return _Target(current, later=later) if newest == current.fingerprint else _Target(current, OLDER)


@frozen
class _Share:
    """Of the runs at one place those that share a judgement."""

    judgement: Judgement
    number: int
    examples: Collection[str]
    waiting: int = 0


def _judged(place: Place, number: int, example: str, target: _Target) -> Iterator[_Share]:
    """The judgements of the runs at one place."""
    if registry.find_graph(place.fingerprint) is not None:
        yield _Share(Judgement(STAYS, ()), number, [example])
        return
    why_not = OLDER if place.fingerprint in target.later else target.why_not
    if target.compiled is None or why_not:
        reason = Difference(BREAKING, f"graph `{place.graph}`", why_not)
        yield _Share(Judgement(STUCK, (reason,)), number, [example])
        return
    old, migrations = versions.structure_of(place.fingerprint), registry.migrations(place.graph)
    found = judge(old, place.version, target.compiled, place.at, migrations=migrations)
    holding = _holding(place, found) if found.verdict == MIGRATED else {}
    for channels, runs in holding.items():
        other = judge(old, place.version, target.compiled, place.at, migrations=migrations, held=channels)
        waiting = len(runs) if other.verdict == MIGRATED else 0
        yield _Share(other, len(runs), sorted(runs)[:MOST_EXAMPLES], waiting)
    left = number - sum(map(len, holding.values()))
    if left:
        told = {run for runs in holding.values() for run in runs}
        keeps = found.verdict == MIGRATED and (place.at is None or bool(place.at.writes))
        named = example if example not in told else _example(place, told)
        yield _Share(found, left, [named] if named else [], left if keeps else 0)


def _signed(place: Place, target: _Target, found: Judgement) -> int:
    """How many runs at a place hold values that a migration must not change, for nobody could be asked to sign them."""
    old = versions.structure_of(place.fingerprint)
    if found.verdict not in (MIGRATED, NEEDS_MIGRATION) or old is None or target.compiled is None:
        return 0
    there = {node["name"]: node for node in target.compiled.structure["nodes"]}
    lost = [one for one in old["nodes"] if one["gate"] and not asks_as_much(one, there.get(one["name"]))]
    if any(one["gate"]["writes"] for one in lost):
        return _ALL
    return count_signed(_of_runs_at(place), [one["name"] for one in lost]) if lost else 0


def _of_runs_at(place: Place) -> Q:
    """The condition on rows that are of the runs at a place."""
    at = {"run__graph": place.graph, "run__fingerprint": place.fingerprint, "run__pending": place.pending}
    return Q(**at, run__status__in=UNFINISHED, run__imported=False)


def _example(place: Place, told: Collection[str]) -> str | None:
    """The first run at a place that is none of these. It reads one id more than there are of them."""
    at = Q(graph=place.graph, version=place.version, fingerprint=place.fingerprint, pending=place.pending)
    ids = Run.objects.filter(GOING_ON & at).order_by("id").values_list("id", flat=True)
    return next((str(id) for id in ids[: len(told) + 1] if str(id) not in told), None)


def _holding(place: Place, found: Judgement) -> dict[frozenset[str], list[str]]:
    """The runs at a place of which people are asked about channels, by those of them whose change a migration answers
    for.
    """
    by_channels: dict[frozenset[str], list[str]] = defaultdict(list)
    for run, channels in channels_under_review(_of_runs_at(place)).items():
        by_channels[frozenset(channels & found.migrated_channels)].append(str(run))
    return by_channels
