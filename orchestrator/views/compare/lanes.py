"""The checkpoints of two runs after their split, drawn one below the other in pairs."""

from typing import Any

from django.urls import reverse

from checkpoints.core.status import ENDS
from checkpoints.models import Checkpoint
from checkpoints.models.checkpoint import Source
from checkpoints.timeline import Alignment
from orchestrator.views import run_timeline
from orchestrator.views.compare.address import compare_url

COLUMNS = 60
"""The most checkpoints of a run that are drawn."""
Facts = dict[str, Any]
Pair = tuple[Checkpoint | None, Checkpoint | None]


def lanes_of(
    alignment: Alignment, letters: tuple[str, str], here: dict[str, str]
) -> list[Facts]:
    """Return the checkpoints of both runs, drawn in pairs; none if nothing differs."""
    if not alignment.rows:
        return []
    lanes: list[Facts] = []
    for side, letter in enumerate(letters):
        lanes.append(
            {
                "letter": letter,
                "css": letter.lower(),
                "run": alignment.runs[side],
                "columns": _lane(alignment, side, here),
            }
        )
    return lanes


def _lane(alignment: Alignment, side: int, here: dict[str, str]) -> list[Facts]:
    """Return the columns of one run; an empty one shows whether its checkpoint may
    still come.
    """
    # After its last row, a run that has not ended may get further ones.
    last = -1
    for number, pair in enumerate(alignment.rows):
        if pair[side] is not None:
            last = number
    has_ended = alignment.runs[side].status in ENDS

    columns: list[Facts] = []
    for number, pair in enumerate(alignment.rows[:COLUMNS]):
        row = pair[side]
        if row is not None:
            columns.append(_column(alignment, pair, row, here))
        elif number < last or has_ended:
            columns.append({"missing": "not on this path"})
        else:
            columns.append({"missing": "not yet"})
    return columns


def _column(
    alignment: Alignment,
    pair: Pair,
    row: Checkpoint,
    query: dict[str, str],
) -> Facts:
    """Return a checkpoint as a column that leads to its comparison, or to its run."""
    href = f"{reverse('run', args=[row.run_id])}?at={row.seq}"
    action = "Open"
    seqs = _comparable(alignment, pair, query)
    if seqs is not None:
        at = {"at": str(seqs[0]), "with_at": str(seqs[1])}
        href = compare_url({**query, **at})
        action = "Compare here"
    why = ""
    # Without nodes the name says it already.
    if row.nodes and row.source != Source.SUPERSTEP:
        why = run_timeline.WHY[Source(row.source)]
    return {
        "seq": row.seq,
        "name": run_timeline.name_of(row),
        "why": why,
        "blocks": run_timeline.blocks_of(row),
        "href": href,
        "here": seqs is not None and seqs == alignment.at,
        "what": action,
    }


def _comparable(
    alignment: Alignment, pair: Pair, query: dict[str, str]
) -> tuple[int, int] | None:
    """Return the numbers of two checkpoints that an address can compare; None if one is
    missing, or inherited from another run.
    """
    a, b = pair
    run_a, run_b = alignment.runs
    if a is None or b is None:
        return None
    if a.run_id != run_a.id or b.run_id != run_b.id:
        return None
    # A third run is compared as it is now.
    if query["b"] != str(run_b.id):
        return None
    return a.seq, b.seq
