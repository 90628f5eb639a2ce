"""Two runs beside each other: how far they are the same, their checkpoints by node and visit, and what differs now with
a reason for each.

At most eight queries for two runs, or a run and its fork; one more for each further level of forks. Rows are proven to
be what was sealed. `checkpoints.core.alignment` pairs and reasons.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import BinaryField, Case, F, Q, Value, When

from checkpoints.core.alignment import INPUT as OTHER_INPUT
from checkpoints.core.alignment import Cause, Evidence, Reason, reason_of, side_by_side
from checkpoints.core.arguments import checked_number
from checkpoints.core.diff import Difference, differences, written
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.core.state_paths import STATE
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.timeline.evidence import causes_of, gathered
from checkpoints.timeline.sides import Document, OwnStretch, Place, Shared, Side, parted, shared_history, stage_of
from checkpoints.timeline.spans import Among, check_among, lines_behind, past_of
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen

MOST_ROWS = 600
"""Checkpoints of both runs behind what they have in common that are laid side by side."""
LARGEST_CHANGE = 64 * 1024
"""Bytes of a row up to which it is looked whether the runs are still the same after it."""
MOST = 300
"""Differences that are told."""


@frozen
class RunDifference:
    """A path that differs between the two states that are compared, with its value in each (None where it is not there,
    which `kind` tells: `added` is in B only, `removed` in A only), the seqs of the checkpoints that set it since the
    runs split, and why.
    """

    partition: str
    path: str
    kind: str
    a: Any
    b: Any
    seqs: tuple[int | None, int | None]
    reason: Reason


@frozen
class Alignment:
    """`split`: the last checkpoint that both share, as A and as B have it; None where they share nothing. `rows`: the
    checkpoints behind it, of each run one or None. `at`: the seqs of the states whose `differences` these are.
    `other_graph`: only names of nodes say what belongs together. `cut_rows`, `cut`: there are more rows or differences.
    """

    runs: tuple[Run, Run]
    split: tuple[Place, Place] | None
    rows: list[tuple[Checkpoint | None, Checkpoint | None]]
    differences: list[RunDifference]
    at: tuple[int, int]
    other_graph: bool
    cut_rows: bool
    cut: bool


def align(
    run_a: Run | UUID | str, run_b: Run | UUID | str, *, at: tuple[int, int] | None = None, among: Among = None
) -> Alignment:
    """Run A beside run B: their states now, or at two checkpoints `at` (seq of A, seq of B) behind what they have in
    common by origin.

    Raises `InvalidValue` for one run twice, `UnknownThing` for a run that is not there or not `among` those that may be
    seen, and for a checkpoint that is not there; `TamperedRow`, `WrongKey`.
    """
    check_among(among)
    _check_places(at)
    runs = _runs(run_a, run_b, among)
    lines = lines_behind(runs, among)
    common, *own = parted(*(past_of(run, lines) for run in runs))
    found = _rows(common, [*own[0], *own[1]], runs)
    mine = [[row for one in stretches for row in found[:MOST_ROWS] if one.has(row)] for stretches in own]
    heads = [_head(run, rows, at and at[n]) for n, (run, rows) in enumerate(zip(runs, mine, strict=True))]
    base = next((row for row in found if common == (row.run_id, row.seq)), None)
    read = _documents([*heads, *([(base.id, base.seq)] if base else [])], runs)
    patched = {(run, row.number): row.patched for run, rows in lines.items() for row in rows.values()}
    a, b = (Side(run, rows, read[id], seq, patched) for run, rows, (id, seq) in zip(runs, mine, heads, strict=True))
    shared = shared_history(runs, mine, common, read[base.id] if base else None)
    differing = list(islice(_differing(a, b), MOST + 1))
    return Alignment(
        runs,
        shared.split,
        _laid(a, b, shared),
        _reasoned(a, b, shared, differing[:MOST]),
        at=(a.seq, b.seq),
        other_graph=runs[0].graph != runs[1].graph,
        cut_rows=len(found) > MOST_ROWS,
        cut=len(differing) > MOST,
    )


def _check_places(at: Any) -> None:
    if at is not None and not (isinstance(at, tuple) and len(at) == 2):
        raise InvalidValue("at is a pair of seqs, one of each run", path="at")
    for seq in at or ():
        checked_number(seq, "at", most=2**31 - 1)


def _runs(run_a: Run | UUID | str, run_b: Run | UUID | str, among: Among) -> tuple[Run, Run]:
    """Both runs, in one query those that were given by id."""
    ids = [run.id if isinstance(run, Run) else uuid_of(run, "run") for run in (run_a, run_b)]
    if ids[0] == ids[1]:
        raise InvalidValue("a run is compared with another one", path="run_b")
    known = {run.id: run for run in (run_a, run_b) if isinstance(run, Run)}
    if len(known) < 2:
        runs = Run.objects.all() if among is None else among
        known |= {run.id: run for run in runs.filter(id__in=[id for id in ids if id not in known])}
    for id in ids:
        if id not in known:
            raise unknown_thing("run", id)
    return known[ids[0]], known[ids[1]]


def _rows(common: Place | None, stretches: Sequence[OwnStretch], runs: Sequence[Run]) -> list[Checkpoint]:
    """The last checkpoint in common and those behind it, of both runs, in the order of supersteps. One query. Of large
    ones the change is left out.
    """
    wanted = Q(run=common.run, seq=common.seq) if common else Q(pk__in=[])
    for one in stretches:
        upto = {} if one.last is None else {"seq__lte": one.last}
        wanted |= Q(run=one.run, line=one.line, seq__gt=one.above, **upto)
    small = When(stored_size__lte=LARGEST_CHANGE, then=F("change"))
    rows = Checkpoint.objects.filter(wanted, kept=True).defer("change", "snapshot")
    rows = rows.annotate(small_change=Case(small, default=Value(b""), output_field=BinaryField()))
    found: list[Any] = list(rows.order_by("superstep", "run_id", "seq")[: MOST_ROWS + 2])
    protections = {run.id: protection_of(run) for run in runs}
    for row in found:
        # A fork is protected like its origin.
        sealed_rows.verify_row(row, protections.get(row.run_id, protection_of(runs[0])))
        row.change = row.small_change
    return found


def _head(run: Run, rows: Sequence[Checkpoint], at: int | None) -> tuple[UUID, int]:
    """Id and seq of the checkpoint that is compared."""
    if at is None:
        if run.head is None:
            raise unknown_thing("checkpoint", f"{run.key}:initial")
        return run.head, run.head_seq
    found = next((row for row in rows if row.run_id == run.id and row.seq == at), None)
    if found is None:
        raise unknown_thing("checkpoint", f"{run.key}:at-{at}")
    return found.id, found.seq


def _documents(wanted: Sequence[tuple[UUID, int]], runs: Sequence[Run]) -> dict[UUID, Document]:
    """The documents at these checkpoints, proven. One query."""
    protections = {run.id: protection_of(run) for run in runs}
    ranges = reader.ranges_of([id for id, _ in wanted])
    for id, _ in wanted:
        if id not in ranges:
            raise unknown_thing("checkpoint", id)
    return {
        id: reader.proven(rows, protections.get(rows[-1].run_id, protection_of(runs[0]))) for id, rows in ranges.items()
    }


def _differing(a: Side, b: Side) -> Iterator[tuple[str, Difference]]:
    inputs = (run_row.input_of(a.run), run_row.input_of(b.run))
    for partition in ("input", *STATE):
        before, after = inputs if partition == "input" else (a.document[partition], b.document[partition])
        for one in differences(before, after):
            yield partition, one


def _laid(a: Side, b: Side, shared: Shared) -> list[tuple[Checkpoint | None, Checkpoint | None]]:
    left, right = a.rows[shared.skipped[0] :], b.rows[shared.skipped[1] :]
    pairs = side_by_side([stage_of(row) for row in left], [stage_of(row) for row in right])
    return [(None if i is None else left[i], None if j is None else right[j]) for i, j in pairs]


def _reasoned(a: Side, b: Side, shared: Shared, found: Sequence[tuple[str, Difference]]) -> list[RunDifference]:
    channels = {str(one.path[0]) for partition, one in found if partition in STATE}
    causes = {channel: causes_of((a, b), shared, channel) for channel in sorted(channels)}
    known = gathered((a, b), shared, list(causes.values()))
    return [_difference(partition, one, causes, known) for partition, one in found]


def _difference(
    partition: str, one: Difference, causes: dict[str, tuple[Cause, Cause]], known: Evidence
) -> RunDifference:
    path = written(one.path)
    if partition == "input":
        return RunDifference(partition, path, one.kind, one.before, one.after, (None, None), Reason(OTHER_INPUT))
    a, b = causes[str(one.path[0])]
    seqs = (a.stage.seq if a.stage else None, b.stage.seq if b.stage else None)
    return RunDifference(partition, path, one.kind, one.before, one.after, seqs, reason_of(a, b, known))
