"""The forecast of a deployment: what becomes of the unfinished runs, read from columns
and judged as a worker with this code will judge.

Runs at the same place of the same version share one judgement, so the cost grows with
the places, not with the runs. No payload is opened.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import CharField, Count, Min, Q, Value
from django.db.models.functions import Cast, Coalesce

from approvals.gates.reviewed_channels import (
    channels_under_review,
    count_signed,
    nodes_silence_approves,
)
from checkpoints import versions
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Run
from checkpoints.threads import FINGERPRINT
from checkpoints.versions import versions_once_noted
from orchestrator.engine import registry
from orchestrator.engine.errors import UnknownThing
from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.versions.differences import BREAKING, WEIGHTS, Difference
from orchestrator.engine.versions.gate_differences import asks_as_much
from orchestrator.engine.versions.judgement import (
    GOES_ON,
    MIGRATED,
    NEEDS_MIGRATION,
    STUCK,
    WARNED,
    Judgement,
    depends_on_silence,
    judge,
)
from orchestrator.engine.versions.pending_parts import Pending

UNFINISHED = tuple(sorted(status for status in Status if status not in ENDS))
GOING_ON = Q(status__in=UNFINISHED, imported=False) & ~Q(fingerprint=FINGERPRINT)
"""The runs that a worker may take; an imported run stays as it came, and no worker
drives a thread of another engine.
"""
STAYS = "stays"
"""The version of the run is registered here too, and the run ends on it."""
OLDER = (
    "is registered here in an older version than others have had, so no worker judges"
)
VERDICTS = (STAYS, GOES_ON, WARNED, MIGRATED, NEEDS_MIGRATION, STUCK)
MOST_EXAMPLES = 3
_ALL = 2**31
"""More runs than any place has."""


@frozen
class ForecastPlace:
    """The place of runs that share a judgement."""

    graph: str
    version: str
    fingerprint: str
    pending: str

    @property
    def at(self) -> Pending | None:
        return Pending.from_text(self.pending)


@dataclass
class RunGroup:
    """Runs of one version that share a fate: how many, why, and the ids of a few.

    `signed` counts those that hold a value that people must sign, while no gate of the
    version that is here asks as much; a migration must not change that value. `waiting`
    counts those that continue by a migration while values wait to be written, whose
    meaning it must not change.
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
        """Return {verdict, version, fingerprint, runs, signed, waiting, same_version,
        breaking, warning, harmless, migrations, examples}.
        """
        judgement = self.judgement
        return {
            "verdict": judgement.verdict,
            "version": self.version,
            "fingerprint": self.fingerprint,
            "runs": self.number,
            "signed": self.signed,
            "waiting": self.waiting,
            "same_version": judgement.same_version,
            **{weight: judgement.in_words(weight) for weight in WEIGHTS},
            "migrations": [step.name for step in judgement.steps],
            "examples": sorted(self.examples),
        }


def forecast_runs() -> list[RunGroup]:
    """Return by graph what becomes of every run that has not ended when workers have
    this process's graphs and no others.

    A statement for the runs, two for the versions; two more for each place that
    continues by a migration, one for each where silence could let something act, and
    one for each share of its runs if the new version lacks a gate that asks as much.
    """
    places: dict[ForecastPlace, tuple[int, str]] = {}
    for *place, number, example in _rows():
        places[ForecastPlace(*place)] = number, str(UUID(example))
    # Read for all places at once; `structure_of` finds them in memory then.
    versions.read_structures({place.fingerprint for place in places})
    targets = _targets({place.graph for place in places})

    groups: dict[Any, RunGroup] = {}
    for place in sorted(places, key=str):
        number, example = places[place]
        target = targets[place.graph]
        for share in _judged(place, number, example, target):
            group = _group_of(groups, place, share.judgement)
            group.number += share.number
            # `_signed` may return more than there are.
            group.signed += min(share.number, _signed(place, target, share))
            group.waiting += share.waiting
            group.examples = [*group.examples, *share.examples][:MOST_EXAMPLES]
    return sorted(groups.values(), key=_order)


def _group_of(
    groups: dict[Any, RunGroup], place: ForecastPlace, judgement: Judgement
) -> RunGroup:
    """Return the group of runs with this version and this judgement, new if need be."""
    version = (place.graph, place.version, place.fingerprint)
    key = (*version, judgement.verdict, judgement.differences)
    if key not in groups:
        groups[key] = RunGroup(*version, judgement)
    return groups[key]


def _order(group: RunGroup) -> tuple[str, int, str]:
    return group.graph, VERDICTS.index(group.judgement.verdict), group.version


def _rows() -> Any:
    """Return (graph, version, fingerprint, pending, number, example) of each place. The
    index by status finds the runs; an expression keeps SQLite from walking through all
    runs in the order of their graphs instead.
    """
    rows = (
        Run.objects.filter(GOING_ON)
        .order_by()
        .annotate(of=Coalesce("graph", Value("")))
    )
    grouped = rows.values_list("of", "version", "fingerprint", "pending")
    return grouped.annotate(number=Count("id"), example=Min(Cast("id", CharField())))


@frozen
class _Target:
    """The version that will judge the runs of a graph, except those of `later`
    versions; or the reason why none will be.
    """

    compiled: Compiled | None
    why_not: str = ""
    later: frozenset[str] = frozenset()


def _targets(names: Collection[str]) -> dict[str, _Target]:
    """Return for each graph the version that will judge its runs: the newest one after
    a worker with these graphs has started and noted its current versions.
    """
    newest, later = versions_once_noted(names)
    return {name: _target(name, newest.get(name), frozenset(later)) for name in names}


def _target(name: str, newest: str | None, later: frozenset[str]) -> _Target:
    try:
        current = registry.current(name)
    except UnknownThing:
        return _Target(None, "is not registered here")
    if newest == current.fingerprint:
        return _Target(current, later=later)
    return _Target(current, OLDER)


@frozen
class _Share:
    """Those runs at one place that share a judgement. `only` is the condition (on
    `run`) that distinguishes them from the others there.
    """

    judgement: Judgement
    number: int
    examples: Collection[str]
    waiting: int = 0
    only: Q = Q()


def _judged(
    place: ForecastPlace, number: int, example: str, target: _Target
) -> Iterator[_Share]:
    """Yield the judgements of the runs at one place."""
    if registry.find_graph(place.fingerprint) is not None:
        yield _Share(Judgement(STAYS, ()), number, [example])
        return
    # A process never judges a version that was first seen after its own.
    why_not = OLDER if place.fingerprint in target.later else target.why_not
    if target.compiled is None or why_not:
        reason = Difference(BREAKING, f"graph `{place.graph}`", why_not)
        yield _Share(Judgement(STUCK, (reason,)), number, [example])
        return

    old = versions.structure_of(place.fingerprint)
    judge_place = partial(
        judge,
        old,
        place.version,
        target.compiled,
        place.at,
        migrations=registry.migrations(place.graph),
    )
    judgement = judge_place(silent=frozenset())
    # Runs in which people are asked may be judged otherwise.
    runs_by_question = _runs_by_question(
        place,
        judgement,
        on_silence=depends_on_silence(old, target.compiled, place.at),
    )
    judged_apart: set[str] = set()
    for (channels, silent), runs in runs_by_question.items():
        other = judge_place(held=channels, silent=silent)
        waiting = len(runs) if other.verdict == MIGRATED else 0
        examples = sorted(runs)[:MOST_EXAMPLES]
        yield _Share(other, len(runs), examples, waiting, only=Q(run__in=runs))
        judged_apart.update(runs)

    remaining = number - len(judged_apart)
    if remaining:
        yield _share_of_others(place, judgement, remaining, example, judged_apart)


def _share_of_others(
    place: ForecastPlace,
    judgement: Judgement,
    number: int,
    example: str,
    judged_apart: Collection[str],
) -> _Share:
    """Return the share of the runs at a place that are not judged apart."""
    waiting = 0
    # Without a record of its pending parts, a run may have values that wait unseen.
    if judgement.verdict == MIGRATED and (place.at is None or place.at.writes):
        waiting = number
    only = Q()
    if judged_apart:
        only = ~Q(run__in=judged_apart)
    if example not in judged_apart:
        return _Share(judgement, number, [example], waiting, only)
    other_example = _example(place, judged_apart)
    examples = [other_example] if other_example else []
    return _Share(judgement, number, examples, waiting, only)


def _signed(place: ForecastPlace, target: _Target, share: _Share) -> int:
    """Return how many runs of a share hold values that a migration must not change,
    because nobody could be asked to sign them.
    """
    if share.judgement.verdict not in (MIGRATED, NEEDS_MIGRATION):
        return 0
    old = versions.structure_of(place.fingerprint)
    if old is None or target.compiled is None:
        return 0
    new_nodes = {node["name"]: node for node in target.compiled.structure["nodes"]}
    lost: list[str] = []
    for node in old["nodes"]:
        name = node["name"]
        if not node["gate"] or asks_as_much(node, new_nodes.get(name)):
            continue
        # Every run may hold a value in a channel that a gate declares.
        if node["gate"]["writes"]:
            return _ALL
        lost.append(name)
    if not lost:
        return 0
    return count_signed(_of_runs_at(place) & share.only, lost)


def _of_runs_at(place: ForecastPlace) -> Q:
    """Return the condition for rows of the runs at a place."""
    at = {
        "run__graph": place.graph,
        "run__fingerprint": place.fingerprint,
        "run__pending": place.pending,
    }
    return Q(**at, run__status__in=UNFINISHED, run__imported=False)


def _example(place: ForecastPlace, excluded: Collection[str]) -> str | None:
    """Return the first run at a place that is not excluded. Reads at most one id more
    than are excluded.
    """
    at = Q(
        graph=place.graph,
        version=place.version,
        fingerprint=place.fingerprint,
        pending=place.pending,
    )
    ids = Run.objects.filter(GOING_ON & at).order_by("id").values_list("id", flat=True)
    for id in ids[: len(excluded) + 1]:
        if str(id) not in excluded:
            return str(id)
    return None


_Question = tuple[frozenset[str], frozenset[str]]
"""Channels about which people are asked, and nodes at which silence approves that."""


def _runs_by_question(
    place: ForecastPlace, judgement: Judgement, *, on_silence: bool
) -> dict[_Question, list[str]]:
    """Return the runs at a place that are judged by what people are asked there: about
    channels whose change a migration answers for, and, if it depends `on_silence`, at
    nodes where silence approves.
    """
    channels: dict[Any, set[str]] = {}
    if judgement.verdict == MIGRATED:
        channels = channels_under_review(_of_runs_at(place))
    silent: dict[Any, set[str]] = {}
    if on_silence:
        silent = nodes_silence_approves(_of_runs_at(place))
    runs_by_question: dict[_Question, list[str]] = defaultdict(list)
    for run in {**channels, **silent}:
        migrated = channels.get(run, set()) & judgement.migrated_channels
        question = (frozenset(migrated), frozenset(silent.get(run, ())))
        runs_by_question[question].append(str(run))
    return runs_by_question
