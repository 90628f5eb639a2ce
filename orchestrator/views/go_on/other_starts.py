"""Other checkpoints to go on from, if a run cannot go on from the chosen one: the
differences of the graph that prevent it, and the nearest earlier checkpoint from which
it can go on, or the nearest one that is still kept.
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
from orchestrator.engine.errors import CountersignError, IncompatibleGraph, WrongKey
from orchestrator.engine.graphs.compile import Compiled
from orchestrator.engine.versions.differences import BREAKING, HARMLESS, WARNING
from orchestrator.engine.versions.judgement import Judgement
from orchestrator.engine.versions.pending_parts import pending_parts
from orchestrator.travel.departure import departure_at, held_tasks_at
from orchestrator.travel.overlay import lay_over
from orchestrator.views.run_timeline import TimelineColumn, timeline_columns

AROUND = 60
"""The most checkpoints that are drawn to choose from."""
MOST_OPENED = 12
"""The most earlier checkpoints that are opened to find one from which a run can go on.
"""


@dataclass(frozen=True, slots=True)
class OtherStart:
    """The page if nothing can go on: the reason, the changes of the graph at which a
    run stops and the others, and a checkpoint (None: there is none) with the words that
    lead to it.
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


def starts_around(
    run: Run, rows: Sequence[Checkpoint], at: Checkpoint
) -> list[tuple[TimelineColumn, UUID]]:
    """Return these checkpoints, newest first, as columns of the tape, oldest first,
    with their ids. No query.
    """
    if not rows:
        return []
    columns = timeline_columns(run, rows, at, newest=rows[0].seq, tab="")
    ids = [row.id for row in reversed(rows)]
    return list(zip(columns, ids, strict=True))


def gone_start(run: Run, seq: int) -> OtherStart:
    """Suggest the kept checkpoint nearest to one that was removed. Two queries."""
    below = timeline.list_checkpoints(run.id, limit=1, before=seq)
    above = (
        Checkpoint.objects.filter(run=run.id, kept=True, seq__gt=seq)
        .order_by("seq")
        .only("id", "seq", "run")[:1]
    )
    nearest = min(
        [*below, *above],
        key=lambda row: abs(row.seq - seq),
        default=None,
    )
    why = "It was cleaned up meanwhile. Nothing was changed."
    title = f"Checkpoint {seq} is no longer kept"
    return OtherStart(
        run,
        seq,
        title,
        why,
        instead=nearest,
        what="the nearest one that is kept",
    )


def broken_start(row: Checkpoint, error: CountersignError) -> OtherStart:
    """Suggest the newest earlier checkpoint that still verifies."""
    title = f"Checkpoint {row.seq} is not what was sealed"
    if isinstance(error, WrongKey):
        title = f"Checkpoint {row.seq} cannot be verified now"
    why = f"{error.message[:1].upper()}{error.message[1:]}. Nothing was changed."
    # The broken row may be an older one, on which this checkpoint builds.
    instead = _nearest_before(row, below=int(str(error.facts.get("seq", row.seq))))
    return OtherStart(
        row.run,
        row.seq,
        title,
        why,
        instead=instead,
        what="the last intact one before it",
    )


def mismatched_start(row: Checkpoint, error: CountersignError) -> OtherStart:
    """Suggest the newest earlier checkpoint from which the registered version can go
    on, for a checkpoint whose own version is not registered here.
    """
    title = f"Version {row.version} of {row.graph} is not here"
    why = f"{error.message}. Nothing was changed."
    graph = _current_graph(row.graph)
    if graph is None:
        return OtherStart(row.run, row.seq, title, why, missing_version=row.version)
    breaking, harmless = version_changes(_judged(row, graph))
    return OtherStart(
        row.run,
        row.seq,
        title,
        why,
        breaking,
        harmless,
        instead=_nearest_before(row),
        what=f"version {graph.version} can go on from it",
        missing_version=row.version,
    )


def _current_graph(name: str) -> Compiled | None:
    """Return the current version of a graph, None if no version is registered."""
    if any(graph.name == name for graph in registry.all()):
        return registry.current(name)
    return None


def _judged(row: Checkpoint, graph: Compiled) -> Judgement:
    document = timeline.snapshot_of(row)
    at = pending_parts(document["frontier"], document["open"])
    # Waiting requests are asked again, under the policy of the version that continues.
    return versions.judgement_of(row, graph, at, silent=frozenset)


def version_changes(judgement: Judgement) -> tuple[list[str], list[str]]:
    """Return the differences between two versions in words: those at which a run would
    stop, and the others.
    """
    harmless = [*judgement.in_words(WARNING), *judgement.in_words(HARMLESS)]
    return judgement.in_words(BREAKING), harmless


def _nearest_before(row: Checkpoint, *, below: int | None = None) -> Checkpoint | None:
    """Return the nearest earlier checkpoint on the same way from which a run can go on.
    At most a few are opened.
    """
    limit = row.seq if below is None else min(below, row.seq)
    for candidate in _candidates(row, limit):
        # Only a few columns of a listed row's run were read.
        candidate.run = row.run
        # A candidate counts only if everything that a draft reads there can be read.
        with suppress(CountersignError):
            point = departure_at(candidate)
            lay_over(point, None)
            held_tasks_at(point)
            return candidate
    return None


def _candidates(row: Checkpoint, below: int) -> Iterator[Checkpoint]:
    """Yield the checkpoints below a seq whose own seals hold, the nearest first; last
    the one with which the run began.
    """
    ends: dict[int, int | None] = {}
    with suppress(CountersignError):
        ends = dict(lines.ancestry(row.run_id, row.line))
    rows = timeline.list_checkpoints(row.run_id, limit=AROUND, before=below)
    on_way: list[Checkpoint] = []
    for earlier in rows:
        is_on_way = earlier.line in ends and _counts(earlier.seq, ends[earlier.line])
        if is_on_way and fault_of(earlier, protection_of(row.run)) is None:
            on_way.append(earlier)
    yield from on_way[:MOST_OPENED]

    # The beginning may lie further back than the rows that were read.
    if rows and rows[-1].seq:
        first = timeline.find_checkpoint(f"{row.run.key}:initial")
        if first is not None:
            yield first


def _counts(seq: int, last: int | None) -> bool:
    return last is None or seq <= last


def is_mismatch(error: CountersignError, row: Checkpoint) -> bool:
    """Return whether a refusal is due to a version that is not registered here."""
    return (
        isinstance(error, IncompatibleGraph)
        or registry.find_graph(row.fingerprint) is None
    )
