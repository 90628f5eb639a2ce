"""The judgement on a run and another version of its graph: whether it can go on, with
every difference and what follows from it. Pure.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from orchestrator.engine.frozen import frozen
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.versions.differences import (
    BREAKING,
    WARNING,
    Difference,
    Structure,
    differences,
)
from orchestrator.engine.versions.migration import Migration, way_between
from orchestrator.engine.versions.pending_parts import Pending
from orchestrator.engine.versions.ways_ahead import WaysAhead

GOES_ON = "goes_on"
WARNED = "warned"
MIGRATED = "migrated"
NEEDS_MIGRATION = "needs_migration"
STUCK = "stuck"
ADOPTED = frozenset({GOES_ON, WARNED, MIGRATED})
"""Verdicts with which a run goes on."""


@frozen
class Judgement:
    """`verdict`: goes_on, warned, migrated (by `steps`), needs_migration or stuck.
    `same_version`: something breaks although both have the same version number, so no
    migration can lead from one to the other, and only one can be registered.
    """

    verdict: str
    differences: tuple[Difference, ...]
    steps: tuple[Migration, ...] = ()
    same_version: bool = False

    @property
    def adopted(self) -> bool:
        """Return whether the run goes on with the version."""
        return self.verdict in ADOPTED

    @property
    def migrated_channels(self) -> set[str]:
        """The channels whose change a migration answers for."""
        names: set[str] = set()
        for difference in self.differences:
            if difference.migratable:
                names.add(difference.what.split("`")[1])
        return names

    def in_words(self, weight: str) -> list[str]:
        """Return the differences of this weight, in words."""
        of_weight = _of_weight(self.differences, weight)
        return [difference.words for difference in of_weight]


def _of_weight(all_differences: Iterable[Difference], weight: str) -> list[Difference]:
    of_weight: list[Difference] = []
    for difference in all_differences:
        if difference.weight == weight:
            of_weight.append(difference)
    return of_weight


def judge(
    old: Structure | None,
    version: str,
    target: Compiled,
    at: Pending | None,
    *,
    migrations: Iterable[Migration] = (),
    held: Collection[str] = (),
    silent: Collection[str] | None = None,
) -> Judgement:
    """Return the judgement on a run of `version` and the target.

    `old` is the structure that the run is pinned to, None if it was not recorded. `at`
    is where the run stands; without a record of it (None) each part may be needed.
    `held` are the channels that people are asked about now, `silent` the nodes at which
    they are asked and whose deadline approves, None without a record of them.
    """
    if old is None:
        unknown = Difference(
            BREAKING, f"version `{version}`", "nobody wrote down what it was"
        )
        return Judgement(STUCK, (unknown,))
    same_version = version == target.version
    steps: tuple[Migration, ...] = ()
    # No migration leads from a version to itself.
    if not same_version:
        steps = way_between(migrations, version, target.version)
    all_differences = differences(old, target.structure, at, silent=silent)
    if steps:
        waiting = {*held, *(at or Pending()).writes}
        all_differences = _refuse_waiting_values(all_differences, waiting)

    # A migration of the state answers for some breaking differences, never for others.
    breaking = _of_weight(all_differences, BREAKING)
    if not all(difference.migratable for difference in breaking):
        return Judgement(STUCK, all_differences, steps, same_version)
    # Also if nothing breaks: a step may change what values mean, as euros to cents.
    if steps:
        return Judgement(MIGRATED, all_differences, steps)
    if breaking:
        return Judgement(
            NEEDS_MIGRATION,
            all_differences,
            same_version=same_version,
        )
    if _of_weight(all_differences, WARNING):
        return Judgement(WARNED, all_differences)
    return Judgement(GOES_ON, all_differences)


def depends_on_silence(
    old: Structure | None, target: Compiled, at: Pending | None
) -> bool:
    """Return whether the judgement on a run at this point depends on which requests
    their deadline approves.
    """
    if old is None or at is None:
        return False
    return WaysAhead(old, target.structure, at).depends_on_silence()


def _refuse_waiting_values(
    all_differences: Iterable[Difference], waiting: Collection[str]
) -> tuple[Difference, ...]:
    """Return the differences, none of them migratable in a channel with a waiting
    value. That was made for the old type, and a migration of the state does not see it.
    """
    after: list[Difference] = []
    for difference in all_differences:
        name = difference.what.removeprefix("channel `").removesuffix("`")
        if difference.migratable and name in waiting:
            text = (
                f"{difference.change}, and a value of the old kind waits to be written"
            )
            difference = replace(
                difference,
                change=text,
                migratable=False,
            )
        after.append(difference)
    return tuple(after)
