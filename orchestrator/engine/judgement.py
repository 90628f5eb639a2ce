"""Whether a run can go on with another version of its graph: every difference, and what follows from them. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING, WARNING, Difference, Structure, differences
from orchestrator.engine.frozen import frozen
from orchestrator.engine.migration import Migration, way_between
from orchestrator.engine.pending_parts import Pending

GOES_ON, WARNED, MIGRATED, NEEDS_MIGRATION, STUCK = "goes_on", "warned", "migrated", "needs_migration", "stuck"
ADOPTED = frozenset({GOES_ON, WARNED, MIGRATED})
"""Verdicts with which a run goes on."""


@frozen
class Judgement:
    """`verdict`: goes_on, warned, migrated (by `steps`), needs_migration or stuck. `same_version`: something breaks,
    and both are called the same version, so neither can a migration lead from one to the other, nor both be registered.
    """

    verdict: str
    differences: tuple[Difference, ...]
    steps: tuple[Migration, ...] = ()
    same_version: bool = False

    @property
    def adopted(self) -> bool:
        """Whether the run goes on with the version."""
        return self.verdict in ADOPTED

    @property
    def migrated_channels(self) -> set[str]:
        """The channels whose change a migration answers for."""
        return {one.what.split("`")[1] for one in self.differences if one.migratable}

    def said(self, weight: str) -> list[str]:
        """The differences of this weight, in words."""
        return [one.words for one in self.differences if one.weight == weight]


def judge(
    old: Structure | None,
    version: str,
    target: Compiled,
    at: Pending | None,
    *,
    migrations: Iterable[Migration] = (),
    held: Collection[str] = (),
) -> Judgement:
    """What becomes of a run of `version` that stands at this point (None: nobody wrote down where, so each part may be
    needed). `old`: the structure that it is pinned to, None where nobody wrote it down. `held`: channels that people
    are asked about now.
    """
    if old is None:
        return Judgement(STUCK, (Difference(BREAKING, f"version `{version}`", "nobody wrote down what it was"),))
    steps = way_between(migrations, version, target.version) if version != target.version else ()
    found = differences(old, target.structure, at)
    if steps:
        found = tuple(_under_way(one, {*(at.writes if at else ()), *held}) for one in found)
    breaking = [one for one in found if one.weight == BREAKING]
    same = version == target.version
    if any(not one.migratable for one in breaking):
        return Judgement(STUCK, found, steps, same)
    if steps:
        return Judgement(MIGRATED, found, steps)
    if breaking:
        return Judgement(NEEDS_MIGRATION, found, same_version=same)
    return Judgement(WARNED if any(one.weight == WARNING for one in found) else GOES_ON, found)


def _under_way(one: Difference, channels: Collection[str]) -> Difference:
    """A value that waits to be written was made for the old type, and a migration of the state does not see it."""
    name = one.what.removeprefix("channel `").removesuffix("`")
    if one.migratable and name in channels:
        return replace(one, said=f"{one.said}, and a value of the old kind waits to be written", migratable=False)
    return one
