"""What rows, the journal, held writes and memory say of why two runs differ. `alignment` calls it, for the channels
that do. Three queries at most.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Q

from checkpoints.core.alignment import Cause, Evidence, Visit
from checkpoints.models import Checkpoint, MemoryRecord, PendingWrite, TaskResult
from checkpoints.models.checkpoint import BEGINNINGS, Source
from checkpoints.models.task_result import Outcome
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.sides import Shared, Side, stage_of
from checkpoints.timeline.states import setting_entries
from orchestrator.engine.effect import JOURNALED
from orchestrator.engine.held_patch import PATCH

Sides = tuple[Side, Side]
Facts = dict[tuple[str, int], tuple[list[Any], list[Any]]]
"""By visit: what each side has of it."""


def causes_of(sides: Sides, shared: Shared, channel: str) -> tuple[Cause, Cause]:
    """How each side came to a channel's value since they split."""
    a, b = (_cause(side, shared.skipped[n], shared.patched[n], channel) for n, side in enumerate(sides))
    return a, b


def _cause(side: Side, skipped: int, patched: frozenset[str], channel: str) -> Cause:
    version = side.document["versions"].get(channel)
    for row in reversed(side.rows[skipped:]):
        if row.run_id == side.run.id and row.seq > side.seq:
            continue
        if channel in patched if row is side.rows[0] else side.was_patched(row, channel):
            return Cause(stage_of(row), patched=True)
        if channel in row.changed or (
            row.run_id == side.run.id and row.seq == version and row.source not in BEGINNINGS
        ):
            visits = _visits(row)
            is_patch = any(node == PATCH for node, _ in visits)
            return Cause(stage_of(row), visits, patched=is_patch)
    return Cause()


def _visits(row: Checkpoint) -> tuple[Visit, ...]:
    return tuple((str(entry["node"]), int(entry.get("visit", 1))) for entry in setting_entries(row.nodes))


def gathered(sides: Sides, shared: Shared, causes: Sequence[tuple[Cause, Cause]]) -> Evidence:
    """What is known of why channels differ that each side came to so."""
    met = {visit for a, b in causes for visit in a.visits if visit in b.visits}
    settled = {visit for a, b in causes for visit in (*a.visits, *b.visits) if _is_settlement(a, b)}
    seqs = [_first(side, skipped) for side, skipped in zip(sides, shared.skipped, strict=True)]
    answered_a, answered_b = (_answered(side, skipped) for side, skipped in zip(sides, shared.skipped, strict=True))
    return Evidence(
        other_input=sides[0].run.input_hash != sides[1].run.input_hash,
        other_code=sides[0].run.fingerprint != sides[1].run.fingerprint,
        other_results=_other_results(sides, met),
        other_memory=_other_memory(sides, met),
        other_proposals=_other_proposals(sides, settled),
        answered=(answered_a, answered_b),
        first=(seqs[0], seqs[1]),
    )


def _is_settlement(a: Cause, b: Cause) -> bool:
    return any(one.stage is not None and one.stage.source == Source.SETTLEMENT for one in (a, b))


def _first(side: Side, skipped: int) -> int | None:
    return side.rows[skipped].seq if len(side.rows) > skipped else None


def _answered(side: Side, skipped: int) -> frozenset[Visit]:
    rows = [row for row in side.rows[skipped:] if row.source == Source.SETTLEMENT]
    return frozenset(visit for row in rows for visit in stage_of(row).visits)


def _of_visits(sides: Sides, visits: Iterable[Visit]) -> Q:
    """The rows of these visits on either side."""
    wanted = Q(pk__in=[])
    lines = {(row.run_id, row.line) for side in sides for row in side.rows}
    nodes, numbers = {node for node, _ in visits}, {number for _, number in visits}
    for run, line in lines:
        wanted |= Q(run=run, line=line, node__in=nodes, visit__in=numbers)
    return wanted


def _by_visit(sides: Sides, rows: Iterable[Any], content: Any) -> Facts:
    """Each side's content of its rows, which verify, by visit."""
    found: Facts = defaultdict(lambda: ([], []))
    runs = [{row.run_id for row in side.rows} for side in sides]
    for row in rows:
        for n, side in enumerate(sides):
            if row.run_id in runs[n]:
                sealed_rows.verify_row(row, protection_of(side.run))
                found[row.node, row.visit][n].append(content(row))
    return found


def _other_results(sides: Sides, visits: set[Visit]) -> dict[Visit, bool]:
    """Whether the world answered otherwise: the same was asked, and other results are recorded."""
    ran = {visit for visit in visits for side in sides for row in side.rows if _is_journaled(row, visit)}
    if not ran:
        return {}
    rows = TaskResult.objects.filter(_of_visits(sides, ran), outcome=Outcome.DONE).order_by("index")
    facts = _by_visit(sides, rows, lambda row: (row.index, row.input_hash, read_value(row, "output")))
    return {
        visit: [one[:2] for one in a] == [one[:2] for one in b] and a != b for visit, (a, b) in facts.items() if a and b
    }


def _is_journaled(row: Checkpoint, visit: Visit) -> bool:
    effect, _ = stage_of(row).visits.get(visit, ("", ""))
    return effect in JOURNALED


def _other_memory(sides: Sides, visits: set[Visit]) -> dict[Visit, bool]:
    """Whether the same visit asked memory the same and found something else."""
    if not visits:
        return {}
    rows = MemoryRecord.objects.filter(_of_visits(sides, visits)).exclude(kind="journal").order_by("index", "n")
    facts = _by_visit(sides, rows, lambda row: (read_value(row, "asked"), read_value(row, "found")))
    return {visit: a != b for visit, (a, b) in facts.items()}


def _other_proposals(sides: Sides, visits: set[Visit]) -> dict[Visit, bool]:
    """Whether the gated node had proposed something else already."""
    if not visits:
        return {}
    rows = PendingWrite.objects.filter(_of_visits(sides, visits), revision=1).order_by("index", "position")
    facts = _by_visit(sides, rows, lambda row: (row.index, row.position, row.channel, read_value(row, "value")))
    return {visit: bool(a and b) and a != b for visit, (a, b) in facts.items()}
