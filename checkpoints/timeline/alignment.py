"""Two runs side by side: how far they are the same, their checkpoints by node and
visit, and what differs now, with a reason for each difference.

At most eight queries for two runs, or a run and its fork; one more for each further
level of forks. All rows are verified against their seals. `checkpoints.core.alignment`
finds the pairs and the reasons.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import BinaryField, Case, F, Q, Value, When

from checkpoints.core.alignment import INPUT as OTHER_INPUT
from checkpoints.core.alignment import Cause, Reason, reason_of, side_by_side
from checkpoints.core.arguments import checked_number
from checkpoints.core.diff import ValueDifference, differences, written
from checkpoints.core.ids import unknown_thing, uuid_of
from checkpoints.core.state_paths import STATE
from checkpoints.ledger import reader
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing import run_row, sealed_rows
from checkpoints.sealing.sealed_rows import Protection, protection_of
from checkpoints.timeline.evidence import causes_of, gather_evidence
from checkpoints.timeline.sides import (
    CheckpointOfRun,
    Document,
    OwnStretch,
    Shared,
    Side,
    parted,
    shared_history,
    stage_of,
)
from checkpoints.timeline.spans import (
    Among,
    Known,
    check_among,
    lines_behind,
    past_of,
)
from orchestrator.engine.errors import InvalidValue
from orchestrator.engine.frozen import frozen

MOST_ROWS = 600
"""The most checkpoints of both runs, after what they share, that are laid side by side.
"""
LARGEST_CHANGE = 64 * 1024
"""The most bytes of a row's change that are read to see whether the runs are still the
same after it.
"""
MOST = 300
"""The most differences that are listed."""


@frozen
class RunDifference:
    """A path that differs between the two compared states, with its value in each (None
    if it is absent: with the `kind` `added` it is in B only, with `removed` in A only),
    the seqs of the checkpoints that set it since the runs split, and the reason.
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
    """Two runs side by side. `split`: the last checkpoint that both share, as A and as
    B have it; None if they share nothing. `rows`: the checkpoints after it, of each
    run one or None. `at`: the seqs of the states whose `differences` these are, and
    `documents` what those checkpoints hold. `other_graph`: the graphs differ, so only
    names of nodes show what belongs together. `cut_rows`, `cut`: there are further rows
    or differences.
    """

    runs: tuple[Run, Run]
    split: tuple[CheckpointOfRun, CheckpointOfRun] | None
    rows: list[tuple[Checkpoint | None, Checkpoint | None]]
    differences: list[RunDifference]
    at: tuple[int, int]
    documents: tuple[Document, Document]
    other_graph: bool
    cut_rows: bool
    cut: bool


def align(
    run_a: Run | UUID | str,
    run_b: Run | UUID | str,
    *,
    at: tuple[int, int] | None = None,
    among: Among = None,
) -> Alignment:
    """Return runs A and B side by side: their states now, or at two checkpoints `at`
    (seq of A, seq of B) after what they have in common by origin.

    Raises `InvalidValue` if both are the same run, `UnknownThing` for a run that does
    not exist or is not `among` those that may be seen, and for a checkpoint that does
    not exist; `TamperedRow`, `WrongKey`.
    """
    check_among(among)
    _check_places(at)
    seq_a, seq_b = at or (None, None)
    runs = _load_runs(run_a, run_b, among)
    run_of_a, run_of_b = runs

    # The rows of both after the last checkpoint that their origins have in common.
    lines = lines_behind(runs, among)
    past_of_a = past_of(run_of_a, lines)
    past_of_b = past_of(run_of_b, lines)
    common, stretches_a, stretches_b = parted(past_of_a, past_of_b)
    rows = _rows_from(common, [*stretches_a, *stretches_b], runs)
    rows_a = _rows_on(stretches_a, rows[:MOST_ROWS])
    rows_b = _rows_on(stretches_b, rows[:MOST_ROWS])

    # The documents that are compared, and the one that both started from.
    head_a, head_seq_a = _compared_checkpoint(run_of_a, rows_a, seq_a)
    head_b, head_seq_b = _compared_checkpoint(run_of_b, rows_b, seq_b)
    checkpoints = [head_a, head_b]
    base = _row_at(common, rows)
    if base is not None:
        checkpoints.append(base.id)
    documents = _documents_at(checkpoints, runs)
    base_document = None
    if base is not None:
        base_document = documents[base.id]

    patched = _patched_channels(lines)
    a = Side(run_of_a, rows_a, documents[head_a], head_seq_a, patched)
    b = Side(run_of_b, rows_b, documents[head_b], head_seq_b, patched)
    shared = shared_history(runs, (rows_a, rows_b), common, base_document)
    # One more than is listed shows whether there are further ones.
    differing = list(islice(_differing(a, b), MOST + 1))
    return Alignment(
        runs,
        shared.split,
        _rows_side_by_side(a, b, shared),
        _with_reasons(a, b, shared, differing[:MOST]),
        at=(a.seq, b.seq),
        documents=(a.document, b.document),
        other_graph=run_of_a.graph != run_of_b.graph,
        cut_rows=len(rows) > MOST_ROWS,
        cut=len(differing) > MOST,
    )


def _check_places(at: Any) -> None:
    """Raise `InvalidValue` for anything but a pair of seqs or None."""
    if at is None:
        return
    if not (isinstance(at, tuple) and len(at) == 2):
        raise InvalidValue("at is a pair of seqs, one of each run", path="at")
    for seq in at:
        checked_number(seq, "at", most=2**31 - 1)


def _load_runs(
    run_a: Run | UUID | str,
    run_b: Run | UUID | str,
    among: Among,
) -> tuple[Run, Run]:
    """Return both runs. One query for those that were passed by id, if any."""
    id_a = _id_of_run(run_a)
    id_b = _id_of_run(run_b)
    if id_a == id_b:
        raise InvalidValue("a run is compared with another one", path="run_b")

    # Runs that the caller has already are not read again.
    by_id: dict[UUID, Run] = {}
    for run in (run_a, run_b):
        if isinstance(run, Run):
            by_id[run.id] = run
    to_read = [run_id for run_id in (id_a, id_b) if run_id not in by_id]
    if to_read:
        by_id |= _read_runs(to_read, among)

    for run_id in (id_a, id_b):
        if run_id not in by_id:
            raise unknown_thing("run", run_id)
    return by_id[id_a], by_id[id_b]


def _read_runs(ids: Collection[UUID], among: Among) -> dict[UUID, Run]:
    """Return the runs among these that may be seen. One query."""
    visible = Run.objects.all() if among is None else among
    return {run.id: run for run in visible.filter(id__in=ids)}


def _id_of_run(run: Run | UUID | str) -> UUID:
    if isinstance(run, Run):
        return run.id
    return uuid_of(run, "run")


def _rows_from(
    common: CheckpointOfRun | None,
    stretches: Sequence[OwnStretch],
    runs: Sequence[Run],
) -> list[Checkpoint]:
    """Return the last common checkpoint and the rows on these stretches of both runs,
    in the order of supersteps, verified. One query. Changes that are too large are left
    out.
    """
    in_question = Q(pk__in=[])
    if common is not None:
        in_question = Q(run=common.run, seq=common.seq)
    for stretch in stretches:
        bounds: dict[str, Any] = {"run": stretch.run, "line": stretch.line}
        bounds["seq__gt"] = stretch.above
        if stretch.last is not None:
            bounds["seq__lte"] = stretch.last
        in_question |= Q(**bounds)

    small = When(stored_size__lte=LARGEST_CHANGE, then=F("change"))
    query = Checkpoint.objects.filter(in_question, kept=True)
    query = query.defer("change", "snapshot").annotate(
        small_change=Case(small, default=Value(b""), output_field=BinaryField())
    )
    # One for the common checkpoint, and one that shows whether there are further rows.
    most = MOST_ROWS + 2
    # By superstep first, so that the limit cuts both runs equally far from the split.
    rows: list[Any] = list(query.order_by("superstep", "run_id", "seq")[:most])
    for row in rows:
        sealed_rows.verify_row(row, _protection_of_row(row, runs))
        # Set even if it is empty: a change that was left out must not be read later.
        row.change = row.small_change
    return rows


def _protection_of_row(row: Checkpoint, runs: Sequence[Run]) -> Protection:
    """Return the protection of a row of one of these runs or of an origin of theirs."""
    for run in runs:
        if row.run_id == run.id:
            return protection_of(run)
    # A fork is protected like its origin.
    return protection_of(runs[0])


def _rows_on(
    stretches: Iterable[OwnStretch], rows: Sequence[Checkpoint]
) -> list[Checkpoint]:
    """Return the rows on these stretches, one stretch after the other."""
    rows_on_stretches: list[Checkpoint] = []
    for stretch in stretches:
        rows_on_stretches += [row for row in rows if stretch.has(row)]
    return rows_on_stretches


def _row_at(
    place: CheckpointOfRun | None, rows: Iterable[Checkpoint]
) -> Checkpoint | None:
    """Return the row of a checkpoint; None if it is not among these."""
    for row in rows:
        if place == (row.run_id, row.seq):
            return row
    return None


def _compared_checkpoint(
    run: Run,
    rows: Iterable[Checkpoint],
    seq: int | None,
) -> tuple[UUID, int]:
    """Return id and seq of the checkpoint that is compared: the run's own one at `seq`,
    or its head for None.
    """
    if seq is None:
        # Nothing was saved yet.
        if run.head is None:
            raise unknown_thing("checkpoint", f"{run.key}:initial")
        return run.head, run.head_seq
    row = _row_at(CheckpointOfRun(run.id, seq), rows)
    if row is None:
        raise unknown_thing("checkpoint", f"{run.key}:at-{seq}")
    return row.id, row.seq


def _documents_at(
    checkpoints: Sequence[UUID], runs: Sequence[Run]
) -> dict[UUID, Document]:
    """Return the documents at these checkpoints, verified. One query."""
    ranges = reader.ranges_of(checkpoints)
    for checkpoint in checkpoints:
        if checkpoint not in ranges:
            raise unknown_thing("checkpoint", checkpoint)
    documents: dict[UUID, Document] = {}
    for checkpoint, rows in ranges.items():
        protection = _protection_of_row(rows[-1], runs)
        documents[checkpoint] = reader.proven(rows, protection)
    return documents


def _patched_channels(lines: Known) -> dict[tuple[UUID, int], Sequence[str]]:
    """Return the channels that each of these lines began with a patch of, by run and
    line.
    """
    patched: dict[tuple[UUID, int], Sequence[str]] = {}
    for run, lines_of_run in lines.items():
        for line in lines_of_run.values():
            patched[run, line.number] = line.patched
    return patched


def _differing(a: Side, b: Side) -> Iterator[tuple[str, ValueDifference]]:
    """Yield the differences of the inputs and of the states, with their partition."""
    for difference in differences(run_row.input_of(a.run), run_row.input_of(b.run)):
        yield "input", difference
    for partition in STATE:
        for difference in differences(a.document[partition], b.document[partition]):
            yield partition, difference


def _rows_side_by_side(
    a: Side,
    b: Side,
    shared: Shared,
) -> list[tuple[Checkpoint | None, Checkpoint | None]]:
    """Return the rows after the shared history, each beside the one that it is aligned
    with.
    """
    # The shared part is shown as the split, not row by row.
    skipped_a, skipped_b = shared.skipped
    rows_a = a.rows[skipped_a:]
    rows_b = b.rows[skipped_b:]
    positions = side_by_side(
        [stage_of(row) for row in rows_a], [stage_of(row) for row in rows_b]
    )
    pairs: list[tuple[Checkpoint | None, Checkpoint | None]] = []
    for position_a, position_b in positions:
        row_a = None if position_a is None else rows_a[position_a]
        row_b = None if position_b is None else rows_b[position_b]
        pairs.append((row_a, row_b))
    return pairs


def _with_reasons(
    a: Side,
    b: Side,
    shared: Shared,
    differing: Sequence[tuple[str, ValueDifference]],
) -> list[RunDifference]:
    """Return these differences, each with its reason. Three queries at most, for all
    channels together.
    """
    # All paths of a channel share a cause, because versions belong to channels.
    channels = set()
    for partition, difference in differing:
        if partition in STATE:
            channels.add(_channel_of(difference))
    causes: dict[str, tuple[Cause, Cause]] = {}
    for channel in sorted(channels):
        causes[channel] = causes_of((a, b), shared, channel)
    evidence = gather_evidence((a, b), shared, causes.values())

    with_reasons: list[RunDifference] = []
    for partition, difference in differing:
        # No checkpoint sets an input.
        if partition == "input":
            of_input = _run_difference(partition, difference, Reason(OTHER_INPUT))
            with_reasons.append(of_input)
            continue
        cause_a, cause_b = causes[_channel_of(difference)]
        reason = reason_of(cause_a, cause_b, evidence)
        seqs = (_seq_of(cause_a), _seq_of(cause_b))
        with_reasons.append(_run_difference(partition, difference, reason, seqs))
    return with_reasons


def _channel_of(difference: ValueDifference) -> str:
    return str(difference.path[0])


def _seq_of(cause: Cause) -> int | None:
    return cause.stage.seq if cause.stage else None


def _run_difference(
    partition: str,
    difference: ValueDifference,
    reason: Reason,
    seqs: tuple[int | None, int | None] = (None, None),
) -> RunDifference:
    return RunDifference(
        partition,
        path=written(difference.path),
        kind=difference.kind,
        a=difference.before,
        b=difference.after,
        seqs=seqs,
        reason=reason,
    )
