"""Stretches of a run's history that were removed on purpose, as summary lines of its log tell. Where rows are missing,
examiners go on behind such a stretch; any other gap is named.

A line `history_removed` says {checkpoints, events, snapshots}, each of which may be absent: of the rows that are gone
{first, last, count, before, after}, by number, with the hash of the row before them (empty for none) and of the last of
them; and [[checkpoint, snapshot hash]] of rows that were given a snapshot, so that those behind a stretch can be read.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cached_property
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
    """Rows that were removed, `first` to `last`; the hash of the row before them and of the last of them."""

    first: int
    last: int
    before: str
    after: str


class RemovedStretches:
    """The removed stretches of one chain of rows: a later line that says where one begins replaces an earlier one."""

    def __init__(self, stretches: Iterable[RemovedStretch] = ()) -> None:
        self._by_first = {one.first: one for one in stretches}

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number)
        return at > 0 and number <= self._by_first[self._firsts[at - 1]].last

    @cached_property
    def _firsts(self) -> list[int]:
        return sorted(self._by_first)

    @property
    def all(self) -> list[RemovedStretch]:
        """The stretches in order."""
        return [self._by_first[first] for first in self._firsts]

    @cached_property
    def count(self) -> int:
        """How many rows are gone."""
        return sum(one.last - one.first + 1 for one in self._by_first.values())

    @cached_property
    def last(self) -> int:
        """The number of the last row that is gone; -1 where none is."""
        return max((one.last for one in self._by_first.values()), default=-1)

    def follow(self, number: int, hash_: str, behind: int) -> tuple[int, str]:
        """Number and hash of the row after which a chain goes on that ends with this row and is seen again at row
        `behind`: those given, or the last ones of the stretches that were removed there, one after the other.
        """
        while (one := self._by_first.get(number + 1)) and one.before == hash_ and one.last < behind:
            number, hash_ = one.last, one.after
        return number, hash_

    def ends_with(self, number: int, hash_: str) -> bool:
        """Whether the removed row of this number may have had this hash: of the last ones of stretches it is known."""
        known = {one.after for one in self._by_first.values() if one.last == number}
        return number in self and (not known or hash_ in known)


@frozen
class RemovedHistory:
    """What was removed of one run. `snapshots` are the hashes of those that rows were given, by the id of the row."""

    checkpoints: RemovedStretches = field(default_factory=RemovedStretches)
    events: RemovedStretches = field(default_factory=RemovedStretches)
    snapshots: Mapping[str, str] = field(default_factory=dict)


NOTHING_REMOVED = RemovedHistory()


def removed_history(run: UUID, protection: Protection) -> RemovedHistory:
    """What the log of a run says was removed of it. A line that is not as it was sealed says nothing. One query."""
    return removed_histories({run: protection}).get(run, NOTHING_REMOVED)


def removed_histories(runs: Mapping[UUID, Protection]) -> dict[UUID, RemovedHistory]:
    """`removed_history` of these runs; those of which nothing was removed are left out. One query."""
    said: dict[UUID, list[dict[str, Any]]] = {}
    for page in pages(RunEvent.objects.filter(run__in=runs, type=KIND), "id"):
        for line in sorted(page, key=lambda line: line.seq):
            said.setdefault(line.run_id, []).append(_facts(line, runs[line.run_id]))
    return {run: _history(lines) for run, lines in said.items()}


def _facts(line: RunEvent, protection: Protection) -> dict[str, Any]:
    try:
        sealed_rows.verify_row(line, protection)
        facts = sealed_columns.read_value(line, "payload")
    except CountersignError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _history(lines: Iterable[dict[str, Any]]) -> RemovedHistory:
    stretches: dict[str, list[RemovedStretch]] = {"checkpoints": [], "events": []}
    snapshots: dict[str, str] = {}
    for facts in lines:
        for part, found in stretches.items():
            if (one := _stretch(facts.get(part))) is not None:
                found.append(one)
        snapshots |= _snapshots(facts.get("snapshots"))
    return RemovedHistory(RemovedStretches(stretches["checkpoints"]), RemovedStretches(stretches["events"]), snapshots)


def _snapshots(pairs: Any) -> dict[str, str]:
    """The snapshots that a line says rows were given; none where it says nothing that can be."""
    found = {}
    for pair in pairs if isinstance(pairs, list) else ():
        match pair:
            case [str(row), str(hash_)]:
                found[row] = hash_
    return found


def _stretch(said: Any) -> RemovedStretch | None:
    """A stretch as a line says it; None where it says none that can be."""
    match said:
        case {"first": int(first), "last": int(last), "count": int(count), "before": str(before), "after": str(after)}:
            return (
                RemovedStretch(first, last, before, after) if 0 <= first <= last and count == last - first + 1 else None
            )
    return None
