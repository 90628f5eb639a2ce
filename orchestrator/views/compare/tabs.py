"""The tabs of a comparison beside the states: the path of both runs, the writes that
people were asked about, and the results of nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from approvals.display.drawn_change import NOT_THERE, ONE_LINE, draw_change
from approvals.display.leaf import ABSENT, Leaf, json_leaf
from checkpoints import timeline
from checkpoints.ledger import pending_writes
from checkpoints.models import Checkpoint, PendingWrite, TaskResult
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.timeline import Alignment
from orchestrator.views import run_timeline

Facts = dict[str, Any]
MOST = 200
"""The most rows of a tab."""
Visits = set[tuple[str, int]]
"""Nodes with the numbers of their visits."""
NONE = Leaf("nothing", "none")


@dataclass(frozen=True, slots=True)
class RowKey:
    """The key that matches a row of one run with a row of the other: a task, or one of
    the writes that a task proposed.
    """

    node: str
    visit: int
    index: int
    position: int = 0


@dataclass(frozen=True, slots=True)
class ComparedEntry:
    """The name that one run shows at a place, and the value after its `label`."""

    name: str
    label: str
    value: Any


Entries = dict[RowKey, dict[UUID, ComparedEntry]]
"""The entries at each place, by the id of their run."""


def path_rows(alignment: Alignment) -> list[Facts]:
    """Return the checkpoints after the split in pairs, as what made them. No query."""
    rows: list[Facts] = []
    for row_of_a, row_of_b in alignment.rows:
        a = _made_by(row_of_a)
        b = _made_by(row_of_b)
        rows.append(
            {
                "name": a or b,
                "a": _checkpoint_leaf(row_of_a, a),
                "b": _checkpoint_leaf(row_of_b, b),
                "same": a == b,
            }
        )
    return rows


def _made_by(row: Checkpoint | None) -> str:
    return run_timeline.name_of(row) if row is not None else ""


def _checkpoint_leaf(row: Checkpoint | None, name: str) -> Leaf:
    return NONE if row is None else Leaf("code", f"{row.seq} {name}")


def write_rows(alignment: Alignment) -> list[Facts]:
    """Return the writes that gated nodes proposed after the split, as they are now, by
    node, visit and place. One query.
    """
    rows = PendingWrite.objects.order_by(
        "node", "visit", "index", "position", "revision"
    )
    # A later revision takes the place of an earlier one.
    newest: dict[tuple[UUID, RowKey], PendingWrite] = {}
    for row in _behind(alignment, rows):
        place = _place_of(row, row.position)
        newest[row.run_id, place] = row

    entries: Entries = {}
    for (run, place), row in newest.items():
        value = read_or_reason(row, "value")
        label = row.label
        # Unlike null, that nobody has answered is no value.
        if value is None and pending_writes.is_shown_unanswered(row):
            value = ABSENT
            label = f"{label} (not answered)"
        entry = ComparedEntry(f"{row.node}: {row.channel}", label, value)
        entries.setdefault(place, {})[run] = entry
    return _paired(alignment, entries)


def result_rows(alignment: Alignment) -> list[Facts]:
    """Return the journal's results of nodes after the split, by task. One query."""
    rows = TaskResult.objects.order_by("node", "visit", "index", "id")
    entries: Entries = {}
    for row in _behind(alignment, rows):
        output = read_or_reason(row, "output")
        entry = ComparedEntry(row.task, row.outcome, output)
        place = _place_of(row)
        entries.setdefault(place, {})[row.run_id] = entry
    return _paired(alignment, entries)


def _place_of(row: Any, position: int = 0) -> RowKey:
    return RowKey(
        node=row.node,
        visit=row.visit,
        index=row.index,
        position=position,
    )


def _behind(
    alignment: Alignment,
    rows: "QuerySet[Any]",
) -> list[Any]:
    """Return those rows of both runs that belong to a checkpoint after the split."""
    runs = {run.id: run for run in alignment.runs}
    visits_of: dict[UUID, Visits] = {}
    condition = Q(pk__in=[])
    for run, visits in zip(alignment.runs, _visits(alignment), strict=True):
        visits_of[run.id] = visits
        nodes = {node for node, _ in visits}
        numbers = {visit for _, visit in visits}
        condition |= Q(
            run=run.id,
            line=run.line,
            node__in=nodes,
            visit__in=numbers,
        )

    behind: list[Any] = []
    # More than a tab has, because older revisions and other visits are left out.
    for row in rows.filter(condition)[: 4 * MOST]:
        # The query names nodes and visits apart: it finds other pairs of them too.
        if (row.node, row.visit) in visits_of[row.run_id]:
            # Its sealed columns are read with the keys of its run.
            row.run = runs[row.run_id]
            behind.append(row)
    return behind


def _visits(alignment: Alignment) -> tuple[Visits, Visits]:
    """Return the visits of both runs after the split."""
    sides: tuple[Visits, Visits] = (set(), set())
    for pair in alignment.rows:
        for visits, row in zip(sides, pair, strict=True):
            if row is None:
                continue
            for entry in row.nodes:
                visits.add((entry["node"], int(entry.get("visit", 1))))
    return sides


def _paired(alignment: Alignment, entries: Entries) -> list[Facts]:
    """Return the entries of both runs in order, those at the same place side by side."""
    run_a, run_b = alignment.runs
    rows: list[Facts] = []
    for at_place in entries.values():
        a = at_place.get(run_a.id)
        b = at_place.get(run_b.id)
        named = a or b
        change = draw_change(
            ABSENT if a is None else a.value,
            ABSENT if b is None else b.value,
            declared=None,
            longest=ONE_LINE,
            missing=NOT_THERE,
        )
        leaf_of_a = _entry_leaf(a, change.before)
        leaf_of_b = _entry_leaf(b, change.after)
        rows.append(
            {
                "name": named.name if named else "",
                "a": leaf_of_a,
                "b": leaf_of_b,
                "same": leaf_of_a == leaf_of_b,
            }
        )
    return rows[:MOST]


def _entry_leaf(entry: ComparedEntry | None, value: Leaf) -> Leaf:
    """Return the value of an entry after its label, as one line."""
    if entry is None:
        return NONE
    text = f"{entry.label} {value.text}".strip()
    return Leaf("code", text, rest=value.rest)


Tab = Callable[[Alignment], list[Facts]]
TABS: dict[str, tuple[str, Tab | None]] = {
    "state": ("State", None),
    "path": ("Path", path_rows),
    "writes": ("Writes", write_rows),
    "results": ("Node results", result_rows),
}


def same_values(
    alignment: Alignment,
    partition: str,
    state: Facts,
) -> list[Facts]:
    """Return the channels of a partition in which nothing differs, as rows with one
    value.
    """
    different: set[str] = set()
    for difference in alignment.differences:
        if difference.partition == partition:
            different.add(_channel_of(difference.path))
    rows: list[Facts] = []
    for name, value in state[partition].items():
        if name not in different:
            leaf = json_leaf(value, longest=ONE_LINE)
            rows.append({"leaf": name, "a": leaf})
    return rows


def _channel_of(path: str) -> str:
    """Return the channel that a path begins with."""
    first = path.partition(".")[0]
    return first.partition("[")[0]


def state_of_a(alignment: Alignment) -> Facts:
    """Return the state of A that is compared, with the input of the run."""
    run = alignment.runs[0]
    return {**alignment.documents[0], "input": timeline.input_of(run)}


def only_different(rows: Sequence[Facts]) -> list[Facts]:
    """Return the rows whose two sides differ."""
    return [row for row in rows if not row["same"]]
