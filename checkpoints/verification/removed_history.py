"""Reads from a run's log which stretches of its history were removed on purpose. If
rows are missing, examiners go on after such a stretch; any other gap is a fault.

A line `history_removed` has {checkpoints, events, snapshots}, each of which may be
absent. The first two describe the rows that are gone as {first, last, count, before,
after}: their numbers, the hash of the row before them (empty for none), and the hash of
the last of them. `snapshots` is [[checkpoint, snapshot hash]]: rows that were given a
snapshot, so that those after a stretch can be read.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
from operator import attrgetter
from typing import Any
from uuid import UUID

from checkpoints.db.pages import pages
from checkpoints.models import RunEvent
from checkpoints.sealing import sealed_columns, sealed_rows
from checkpoints.sealing.sealed_rows import Protection
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen

KIND = "history_removed"


@frozen
class RemovedStretch:
    """Rows that were removed, `first` to `last`, with the hash of the row before them
    and that of the last of them.
    """

    first: int
    last: int
    before: str
    after: str


class RemovedStretches:
    """The removed stretches of one chain of rows. A later stretch replaces an earlier
    one that begins at the same row.
    """

    def __init__(self, stretches: Iterable[RemovedStretch] = ()) -> None:
        self._by_first = {stretch.first: stretch for stretch in stretches}

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number)
        if index == 0:
            return False
        nearest = self._by_first[self._firsts[index - 1]]
        return number <= nearest.last

    @cached_property
    def _firsts(self) -> list[int]:
        return sorted(self._by_first)

    @property
    def all(self) -> list[RemovedStretch]:
        """Return the stretches in order."""
        return [self._by_first[first] for first in self._firsts]

    @cached_property
    def count(self) -> int:
        """Return how many rows are gone."""
        return sum(part.last - part.first + 1 for part in self._by_first.values())

    @cached_property
    def last(self) -> int:
        """Return the number of the last row that is gone; -1 if none is."""
        return max((part.last for part in self._by_first.values()), default=-1)

    def follow(self, number: int, hash_: str, behind: int) -> tuple[int, str]:
        """Return number and hash of the row that the row `behind` follows in the chain:
        those of the given row, or those of the last row that was removed between the
        two, where only removed stretches lie between them.
        """
        while True:
            stretch = self._by_first.get(number + 1)
            if stretch is None:
                break
            # The stretch must have stood exactly here, or it says nothing of this gap.
            if stretch.before != hash_ or stretch.last >= behind:
                break
            number = stretch.last
            hash_ = stretch.after
        return number, hash_

    def ends_with(self, number: int, hash_: str) -> bool:
        """Return whether the removed row of this number may have had this hash. Only
        the hashes of the last rows of stretches are recorded.
        """
        stretches = self._by_first.values()
        recorded = {part.after for part in stretches if part.last == number}
        if number not in self:
            return False
        return not recorded or hash_ in recorded


@frozen
class RemovedHistory:
    """The history that was removed of one run. `snapshots`: the hashes of the snapshots
    that rows were given, by the id of the row.
    """

    checkpoints: RemovedStretches = field(default_factory=RemovedStretches)
    events: RemovedStretches = field(default_factory=RemovedStretches)
    snapshots: Mapping[str, str] = field(default_factory=dict)


NOTHING_REMOVED = RemovedHistory()


def removed_history(run: UUID, protection: Protection) -> RemovedHistory:
    """Return what was removed of a run according to its log. A line that does not match
    its seal counts for nothing. One query.
    """
    return removed_histories({run: protection}).get(run, NOTHING_REMOVED)


def removed_histories(runs: Mapping[UUID, Protection]) -> dict[UUID, RemovedHistory]:
    """Return the `removed_history` of these runs, without those from which nothing was
    removed. One query.
    """
    facts_by_run: dict[UUID, list[dict[str, Any]]] = {}
    for page in pages(RunEvent.objects.filter(run__in=runs, type=KIND), "id"):
        # A later line must come later: its stretch replaces one that begins at the same
        # row.
        for line in sorted(page, key=attrgetter("seq")):
            facts = _facts(line, runs[line.run_id])
            facts_by_run.setdefault(line.run_id, []).append(facts)
    return {run: _history(facts) for run, facts in facts_by_run.items()}


def _facts(line: RunEvent, protection: Protection) -> dict[str, Any]:
    # A forged line removes nothing: it must not excuse rows that were deleted.
    try:
        sealed_rows.verify_row(line, protection)
        facts = sealed_columns.read_value(line, "payload")
    except CountersignError:
        return {}
    if not isinstance(facts, dict):
        return {}
    return facts


def _history(lines: Iterable[dict[str, Any]]) -> RemovedHistory:
    stretches: dict[str, list[RemovedStretch]] = {"checkpoints": [], "events": []}
    snapshots: dict[str, str] = {}
    for facts in lines:
        for part, stretches_of_part in stretches.items():
            stretch = _stretch(facts.get(part))
            if stretch is not None:
                stretches_of_part.append(stretch)
        snapshots |= _snapshots(facts.get("snapshots"))
    return RemovedHistory(
        RemovedStretches(stretches["checkpoints"]),
        RemovedStretches(stretches["events"]),
        snapshots,
    )


def _snapshots(pairs: Any) -> dict[str, str]:
    """Return the snapshots that a line says rows were given, leaving out what cannot be
    one.
    """
    snapshots: dict[str, str] = {}
    if not isinstance(pairs, list):
        return snapshots
    for pair in pairs:
        match pair:
            case [str(row), str(hash_)] if _is_id(row):
                snapshots[row] = hash_
    return snapshots


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _stretch(fact: Any) -> RemovedStretch | None:
    """Return the stretch that a line describes; None if there can be no such one."""
    match fact:
        case {
            "first": int(first),
            "last": int(last),
            "count": int(count),
            "before": str(before),
            "after": str(after),
        }:
            if 0 <= first <= last and count == last - first + 1:
                return RemovedStretch(first, last, before, after)
    return None
