"""Where a run could go on from, where it cannot from the checkpoint that was asked for: what of the graph stands in the
way, and the nearest earlier checkpoint from which it can, or the nearest one that is kept still.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from checkpoints import lines, timeline, versions
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine import registry
from orchestrator.engine.compile import Compiled
from orchestrator.engine.differences import BREAKING, HARMLESS, WARNING
from orchestrator.engine.errors import CountersignError, IncompatibleGraph, WrongKey
from orchestrator.engine.judgement import Judgement
from orchestrator.engine.pending_parts import pending_parts
from orchestrator.runs.departure import departure_at, held_tasks_at
from orchestrator.runs.overlay import lay_over
from orchestrator.views.run_timeline import Column, timeline_columns

AROUND = 60
"""Checkpoints that are drawn to choose from."""
MOST_OPENED = 12
"""Earlier checkpoints that are opened to find one from which a run can go on."""


@dataclass(frozen=True, slots=True)
class OtherStart:
    """What the page says where nothing can go on: why, the changes of the graph at which a run stops and the others,
    and a checkpoint (None: there is none) with the words that lead to it.
    """

    run: Run
    seq: int
    title: str
    why: str
    breaking: list[str] = field(default_factory=list)
    harmless: list[str] = field(default_factory=list)
    instead: Checkpoint | None = None
    what: str = ""
    missing_version: str = ""


def starts_around(run: Run, rows: Sequence[Checkpoint], at: Checkpoint) -> list[tuple[Column, UUID]]:
    """These checkpoints, newest first, as columns of the tape in time, with their ids. No query."""
    columns = timeline_columns(run, rows, at, newest=rows[0].seq, tab="") if rows else []
    return list(zip(columns, [row.id for row in reversed(rows)], strict=True))


def gone_start(run: Run, seq: int) -> OtherStart:
    """In the place of a checkpoint that was removed: the nearest one that is kept. Two queries."""
    below = timeline.list_checkpoints(run.id, limit=1, before=seq)
    above = Checkpoint.objects.filter(run=run.id, kept=True, seq__gt=seq).order_by("seq").only("id", "seq", "run")[:1]
    near = sorted([*below, *above], key=lambda row: abs(row.seq - seq))
    why = "It was cleaned up meanwhile. Nothing was changed."
    title = f"Checkpoint {seq} is no longer kept"
    return OtherStart(run, seq, title, why, instead=near[0] if near else None, what="the nearest one that is kept")


def broken_start(row: Checkpoint, error: CountersignError) -> OtherStart:
    """In the place of a checkpoint that does not prove to be what was sealed: the last earlier one that does."""
    lacks_key = error.code == WrongKey.code_of_class
    title = f"Checkpoint {row.seq} {'cannot be verified now' if lacks_key else 'is not what was sealed'}"
    why = f"{error.message[:1].upper()}{error.message[1:]}. Nothing was changed."
    instead = _nearest_before(row, below=int(str(error.facts.get("seq", row.seq))))
    return OtherStart(row.run, row.seq, title, why, instead=instead, what="the last intact one before it")


def mismatched_start(row: Checkpoint, error: CountersignError) -> OtherStart:
    """In the place of a checkpoint whose version is not registered here, and from which no other one can go on."""
    graph = next((registry.current(row.graph) for one in registry.all() if one.name == row.graph), None)
    breaking, harmless = version_changes(_judged(row, graph)) if graph else ([], [])
    return OtherStart(
        row.run,
        row.seq,
        f"Version {row.version} of {row.graph} is not here",
        f"{error.message}. Nothing was changed.",
        breaking,
        harmless,
        _nearest_before(row) if graph else None,
        f"version {graph.version} can go on from it" if graph else "",
        row.version,
    )


def _judged(row: Checkpoint, graph: Compiled) -> Judgement:
    document = timeline.snapshot_of(row)
    return versions.judgement_of(row, graph, pending_parts(document["frontier"], document["open"]))


def version_changes(found: Judgement) -> tuple[list[str], list[str]]:
    """What differs between two versions, in words: what a run would stop at, and what it would go on with."""
    return found.said(BREAKING), [*found.said(WARNING), *found.said(HARMLESS)]


def _nearest_before(row: Checkpoint, *, below: int | None = None) -> Checkpoint | None:
    """The nearest earlier checkpoint on the same way from which a run can go on. A few are opened at most."""
    for candidate in _candidates(row, row.seq if below is None else min(below, row.seq)):
        candidate.run = row.run
        with suppress(CountersignError):
            point = departure_at(candidate)
            lay_over(point, None)
            held_tasks_at(point)
            return candidate
    return None


def _candidates(row: Checkpoint, below: int) -> Iterator[Checkpoint]:
    """The checkpoints below a seq whose own seals hold, the nearest first; last the one with which the run began."""
    ends: dict[int, int | None] = {}
    with suppress(CountersignError):
        ends = dict(lines.ancestry(row.run_id, row.line))
    rows = timeline.list_checkpoints(row.run_id, limit=AROUND, before=below)
    whole = [one for one in rows if fault_of(one, protection_of(row.run)) is None]
    on_way = [one for one in whole if one.line in ends and _counts(one.seq, ends[one.line])]
    yield from on_way[:MOST_OPENED]
    if rows and rows[-1].seq and (first := timeline.find_checkpoint(f"{row.run.key}:initial")) is not None:
        yield first


def _counts(seq: int, last: int | None) -> bool:
    return last is None or seq <= last


def is_mismatch(error: CountersignError, row: Checkpoint) -> bool:
    """Whether a refusal comes of the version of a checkpoint's graph that is not here."""
    return isinstance(error, IncompatibleGraph) or registry.find_graph(row.fingerprint) is None
