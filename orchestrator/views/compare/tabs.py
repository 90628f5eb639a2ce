"""What a comparison shows beside the states: the path of both runs, what people were asked, and what nodes gave."""

from collections.abc import Callable, Sequence
from typing import Any

from django.db.models import Q, QuerySet

from checkpoints import timeline
from checkpoints.models import Checkpoint, PendingWrite, TaskResult
from checkpoints.sealing.sealed_columns import read_or_reason
from checkpoints.timeline import Alignment
from orchestrator.views import run_timeline
from orchestrator.views.run_details import compact

Facts = dict[str, Any]
MOST = 200
"""Rows of a tab."""
Visits = set[tuple[str, int]]


def path_rows(found: Alignment) -> list[Facts]:
    """The checkpoints behind the split in pairs, as what made them. No query."""
    rows = []
    for pair in found.rows:
        a, b = (_made_by(row) for row in pair)
        rows.append({"name": a or b, "a": _at(pair[0], a), "b": _at(pair[1], b), "same": a == b})
    return rows


def _made_by(row: Checkpoint | None) -> str:
    return run_timeline.name_of(row) if row is not None else ""


def _at(row: Checkpoint | None, name: str) -> str | None:
    return None if row is None else f"{row.seq} {name}"


def write_rows(found: Alignment) -> list[Facts]:
    """What gated nodes proposed behind the split, as it stands now, by node, visit and place. One query."""
    rows = PendingWrite.objects.order_by("node", "visit", "index", "position", "revision")
    newest = {(row.run_id, *_task(row), row.position): row for row in _behind(found, rows)}
    shown = {
        key: (f"{row.node}: {row.channel}", f"{row.label} {compact(read_or_reason(row, 'value'))}".strip())
        for key, row in newest.items()
    }
    return _paired(found, shown)


def result_rows(found: Alignment) -> list[Facts]:
    """What the journal has of nodes behind the split, by task. One query."""
    rows = TaskResult.objects.order_by("node", "visit", "index", "id")
    shown = {
        (row.run_id, *_task(row)): (row.task, f"{row.outcome} {compact(read_or_reason(row, 'output'))}")
        for row in _behind(found, rows)
    }
    return _paired(found, shown)


def _task(row: Any) -> tuple[str, int, int]:
    return row.node, row.visit, row.index


def _behind(found: Alignment, rows: "QuerySet[Any]") -> list[Any]:
    """Those rows of both runs that belong to a checkpoint behind the split."""
    wanted = Q(pk__in=[])
    for run, visits in zip(found.runs, _visits(found), strict=True):
        nodes, numbers = {node for node, _ in visits}, {visit for _, visit in visits}
        wanted |= Q(run=run.id, line=run.line, node__in=nodes, visit__in=numbers)
    runs = {run.id: (run, visits) for run, visits in zip(found.runs, _visits(found), strict=True)}
    read = [row for row in rows.filter(wanted)[: 4 * MOST] if (row.node, row.visit) in runs[row.run_id][1]]
    for row in read:
        row.run = runs[row.run_id][0]
    return read


def _visits(found: Alignment) -> tuple[Visits, Visits]:
    sides: tuple[Visits, Visits] = (set(), set())
    for pair in found.rows:
        for side, row in zip(sides, pair, strict=True):
            side.update((entry["node"], int(entry.get("visit", 1))) for entry in (row.nodes if row else ()))
    return sides


def _paired(found: Alignment, shown: dict[Any, tuple[str, str]]) -> list[Facts]:
    """Name and text of both sides, in order, where the same task has both."""
    a, b = (run.id for run in found.runs)
    rows = []
    for place in dict.fromkeys(key[1:] for key in shown):
        left, right = shown.get((a, *place)), shown.get((b, *place))
        texts = [one[1] if one else None for one in (left, right)]
        name = next(one[0] for one in (left, right) if one)
        rows.append({"name": name, "a": texts[0], "b": texts[1], "same": texts[0] == texts[1]})
    return rows[:MOST]


Tab = Callable[[Alignment], list[Facts]]
TABS: dict[str, tuple[str, Tab | None]] = {
    "state": ("State", None),
    "path": ("Path", path_rows),
    "writes": ("Writes", write_rows),
    "results": ("Node results", result_rows),
}


def same_values(found: Alignment, partition: str, state: Facts) -> list[Facts]:
    """The channels of a partition in which nothing differs, as rows with one value."""
    differ = {one.path.partition(".")[0].partition("[")[0] for one in found.differences if one.partition == partition}
    return [{"leaf": name, "a": compact(value)} for name, value in state[partition].items() if name not in differ]


def state_of_a(found: Alignment) -> Facts:
    """The state of A that is compared. One query."""
    run, seq = found.runs[0], found.at[0]
    known = [row for row, _ in found.rows if row is not None and (row.run_id, row.seq) == (run.id, seq)]
    return timeline.state_at(known[0].id) if known else timeline.head_state(run.id)


def only_different(rows: Sequence[Facts]) -> list[Facts]:
    return [row for row in rows if not row["same"]]
