"""Evidence of why two runs differ: what rows, the journal, held writes and memory have
of the channels that do. `alignment` calls it. Three queries at most.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Any
from uuid import UUID

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
from orchestrator.engine.graphs.effect import JOURNALED
from orchestrator.engine.step.held_patch import PATCH

Sides = tuple[Side, Side]
Facts = dict[Visit, tuple[list[Any], list[Any]]]
"""What A and B recorded of each visit."""


def causes_of(
    sides: Sides,
    shared: Shared,
    channel: str,
) -> tuple[Cause, Cause]:
    """Return how each side came to a channel's value since the runs split."""
    side_a, side_b = sides
    skipped_a, skipped_b = shared.skipped
    patched_a, patched_b = shared.patched
    cause_a = _cause_of(side_a, skipped_a, patched_a, channel)
    cause_b = _cause_of(side_b, skipped_b, patched_b, channel)
    return cause_a, cause_b


def _cause_of(
    side: Side,
    skipped: int,
    patched: frozenset[str],
    channel: str,
) -> Cause:
    """Return what set a channel on one side, from its newest row back to the split."""
    for row in reversed(side.rows[skipped:]):
        # What a run did after the compared checkpoint is not in its document.
        if row.run_id == side.run.id and row.seq > side.seq:
            continue

        # At the first row of a side, the documents themselves show what was patched.
        if row is side.rows[0]:
            is_patched = channel in patched
        else:
            is_patched = side.was_patched(row, channel)
        if is_patched:
            return Cause(stage_of(row), patched=True)

        if channel in row.changed or _is_newest_version(side, row, channel):
            visits = _setting_visits(row)
            is_patch = any(node == PATCH for node, _ in visits)
            return Cause(stage_of(row), visits, patched=is_patch)
    return Cause()


def _is_newest_version(
    side: Side,
    row: Checkpoint,
    channel: str,
) -> bool:
    """Return whether a row is the one that, by the side's document, set the channel.

    A row that covers earlier supersteps does not list what those set, but the document
    names it. A row that begins a line sets nothing by itself.
    """
    if row.run_id != side.run.id or row.source in BEGINNINGS:
        return False
    return bool(row.seq == side.document["versions"].get(channel))


def _setting_visits(row: Checkpoint) -> tuple[Visit, ...]:
    """Return the visits of a row that may have set something in it."""
    return tuple(
        (str(entry["node"]), int(entry.get("visit", 1)))
        for entry in setting_entries(row.nodes)
    )


def gather_evidence(
    sides: Sides,
    shared: Shared,
    causes: Iterable[tuple[Cause, Cause]],
) -> Evidence:
    """Return what is known of the visits that these causes name, on both sides."""
    visits_of_both: set[Visit] = set()
    settled: set[Visit] = set()
    for cause_a, cause_b in causes:
        visits_of_both.update(set(cause_a.visits) & set(cause_b.visits))
        # A settlement on either side may be an answer that the other one lacks.
        if _is_settlement(cause_a) or _is_settlement(cause_b):
            settled.update(cause_a.visits, cause_b.visits)

    side_a, side_b = sides
    skipped_a, skipped_b = shared.skipped
    return Evidence(
        other_input=side_a.run.input_hash != side_b.run.input_hash,
        other_code=side_a.run.fingerprint != side_b.run.fingerprint,
        other_results=_other_results(sides, visits_of_both),
        other_memory=_other_memory(sides, visits_of_both),
        other_proposals=_other_proposals(sides, settled),
        answered=(_answered(side_a, skipped_a), _answered(side_b, skipped_b)),
        first=(_first_seq(side_a, skipped_a), _first_seq(side_b, skipped_b)),
    )


def _is_settlement(cause: Cause) -> bool:
    return cause.stage is not None and cause.stage.source == Source.SETTLEMENT


def _first_seq(
    side: Side,
    skipped: int,
) -> int | None:
    """Return the seq of the side's first checkpoint that differs."""
    if len(side.rows) <= skipped:
        return None
    return side.rows[skipped].seq


def _answered(
    side: Side,
    skipped: int,
) -> frozenset[Visit]:
    """Return the visits that the side's settlements applied since the runs split."""
    visits: set[Visit] = set()
    for row in side.rows[skipped:]:
        if row.source == Source.SETTLEMENT:
            visits.update(stage_of(row).visits)
    return frozenset(visits)


def _other_results(
    sides: Sides,
    visits: Collection[Visit],
) -> dict[Visit, bool]:
    """Return whether the world gave other results to the same requests, for each visit
    of which both sides have results. One query, none if no visit is journaled.
    """
    journaled = _journaled_visits(sides, visits)
    if not journaled:
        return {}
    results = TaskResult.objects.filter(
        _on_either_side(sides, journaled), outcome=Outcome.DONE
    )
    # In one order on both sides, because the lists are compared as they are.
    facts = _facts_by_visit(sides, results.order_by("index"), _result_facts)
    other_results = {}
    for visit, (facts_a, facts_b) in facts.items():
        if facts_a and facts_b:
            # Another request explains another result: the world did not change.
            is_same_request = _requests(facts_a) == _requests(facts_b)
            other_results[visit] = is_same_request and facts_a != facts_b
    return other_results


def _result_facts(row: TaskResult) -> tuple[int, str, Any]:
    return row.index, row.input_hash, read_value(row, "output")


def _requests(facts: Iterable[tuple[int, str, Any]]) -> list[tuple[int, str]]:
    """Return the results' facts without the outputs."""
    return [(index, input_hash) for index, input_hash, _ in facts]


def _journaled_visits(
    sides: Sides,
    visits: Collection[Visit],
) -> set[Visit]:
    """Return those of the visits that ran on some side with an effect whose results
    are journaled.
    """
    journaled: set[Visit] = set()
    for side in sides:
        for row in side.rows:
            for visit, (effect, _) in stage_of(row).visits.items():
                if visit in visits and effect in JOURNALED:
                    journaled.add(visit)
    return journaled


def _other_memory(
    sides: Sides,
    visits: Collection[Visit],
) -> dict[Visit, bool]:
    """Return whether a visit asked memory for something else or got something else from
    it. One query, none for no visits.
    """
    if not visits:
        return {}
    records = MemoryRecord.objects.filter(_on_either_side(sides, visits))
    # A record of kind journal has what the task wishes to change, not what it read.
    reads = records.exclude(kind="journal").order_by("index", "n")
    facts = _facts_by_visit(sides, reads, _memory_facts)
    return {visit: facts_a != facts_b for visit, (facts_a, facts_b) in facts.items()}


def _memory_facts(row: MemoryRecord) -> tuple[Any, Any]:
    return read_value(row, "asked"), read_value(row, "found")


def _other_proposals(
    sides: Sides,
    visits: Collection[Visit],
) -> dict[Visit, bool]:
    """Return whether a gated node had proposed something else before people decided.
    One query, none for no visits.
    """
    if not visits:
        return {}
    proposals = PendingWrite.objects.filter(_on_either_side(sides, visits), revision=1)
    facts = _facts_by_visit(
        sides, proposals.order_by("index", "position"), _proposal_facts
    )
    other_proposals = {}
    for visit, (facts_a, facts_b) in facts.items():
        has_both = bool(facts_a and facts_b)
        other_proposals[visit] = has_both and facts_a != facts_b
    return other_proposals


def _proposal_facts(row: PendingWrite) -> tuple[int, int, str, Any]:
    return row.index, row.position, row.channel, read_value(row, "value")


def _on_either_side(
    sides: Sides,
    visits: Collection[Visit],
) -> Q:
    """Build the filter for the rows of these visits on the lines of both sides. It also
    matches one node with the visit number of another.
    """
    lines: set[tuple[UUID, int]] = set()
    for side in sides:
        lines.update((row.run_id, row.line) for row in side.rows)
    nodes = {node for node, _ in visits}
    numbers = {number for _, number in visits}

    rows = Q(pk__in=[])
    for run, line in lines:
        rows |= Q(run=run, line=line, node__in=nodes, visit__in=numbers)
    return rows


def _facts_by_visit(
    sides: Sides,
    rows: Iterable[Any],
    facts_of: Callable[[Any], Any],
) -> Facts:
    """Return the facts of these rows by visit and side. Verifies each row. Raises
    `TamperedRow`, `WrongKey`.
    """
    side_a, side_b = sides
    runs_of_a = {row.run_id for row in side_a.rows}
    runs_of_b = {row.run_id for row in side_b.rows}
    facts: Facts = defaultdict(lambda: ([], []))
    for row in rows:
        facts_a, facts_b = facts[row.node, row.visit]
        # Both sides have rows of a run that one was forked from.
        if row.run_id in runs_of_a:
            sealed_rows.verify_row(row, protection_of(side_a.run))
            facts_a.append(facts_of(row))
        if row.run_id in runs_of_b:
            sealed_rows.verify_row(row, protection_of(side_b.run))
            facts_b.append(facts_of(row))
    return facts
