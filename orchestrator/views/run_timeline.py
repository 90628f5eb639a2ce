"""The checkpoints of a run as columns of the tape and rows of the list, and the steps
between them. No queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.urls import reverse
from django.utils.http import urlencode

from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.threads import is_thread
from orchestrator.templatetags.console import spell

LONG_PAUSE = timedelta(minutes=10)
"""The pause between two checkpoints from which the tape shows it."""
WHY = {
    Source.INPUT: "started",
    Source.SUPERSTEP: "superstep ended",
    Source.SETTLEMENT: "signatures applied",
    Source.FAILURE: "superstep open",
    Source.FORK: "forked",
    Source.REPLAY: "replayed",
    Source.REWIND: "rewound",
    Source.MANUAL: "asked for by a node",
    Source.VERSION: "another version of its graph",
}
WHY_OF_THREADS = {
    Source.INPUT: "input",
    Source.SUPERSTEP: "loop",
    Source.REWIND: "fork",
    Source.MANUAL: "update",
}
"""The same of the checkpoints of a thread, in the words of its engine."""
STOPPED = ("failed", "unknown")
"""Outcomes of a node that stop its run."""
MOST_BLOCKS = 6
"""The most blocks of one checkpoint that are drawn."""


@dataclass(frozen=True, slots=True)
class TimelineColumn:
    """One checkpoint as the tape and the list show it."""

    seq: int
    at: datetime
    name: str
    blocks: list[str]
    effect: str
    delta: str
    why: str
    href: str
    here: bool
    later: bool
    newest: bool
    gap: str
    fault: SealFault | None
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class StepButton:
    """A button of the transport; without `href` there is nowhere to go."""

    name: str
    label: str
    icon: str
    href: str


def url(run: Run, *, at: int | None, tab: str = "", **parameters: str) -> str:
    """Return the address of the run's page at a checkpoint (None: the newest), with the
    detail open at `tab`.
    """
    query: dict[str, str] = {}
    if at is not None:
        query["at"] = str(at)
    # The page opens at the changes by itself.
    if tab != "changed":
        query["tab"] = tab
    query |= parameters
    text = urlencode({name: value for name, value in query.items() if value})
    address = reverse("run", args=[run.id])
    return f"{address}?{text}" if text else address


def timeline_columns(
    run: Run,
    rows: Sequence[Checkpoint],
    here: Checkpoint,
    *,
    newest: int,
    tab: str,
) -> list[TimelineColumn]:
    """Return the checkpoints in time. `rows` come newest first."""
    columns: list[TimelineColumn] = []
    before: Checkpoint | None = None
    for row in reversed(rows):
        columns.append(_column(run, row, before, here, newest=newest, tab=tab))
        before = row
    return columns


def _column(
    run: Run,
    row: Checkpoint,
    before: Checkpoint | None,
    here: Checkpoint,
    *,
    newest: int,
    tab: str,
) -> TimelineColumn:
    blocks = blocks_of(row)
    effect = blocks[0]
    if effect in ("init", "bad"):
        effect = ""
    name = name_of(row, in_thread=is_thread(run))
    why = ""
    # A checkpoint without nodes may be named by it already.
    if row.source != Source.SUPERSTEP and why_of(run, row) != name:
        why = why_of(run, row)
    return TimelineColumn(
        seq=row.seq,
        at=row.created_at,
        name=name,
        blocks=blocks,
        effect=effect,
        delta=_delta(row),
        why=why,
        href=url(run, at=row.seq, tab=tab),
        here=row.id == here.id,
        later=row.seq > here.seq,
        newest=row.seq == newest,
        gap=_gap(before, row),
        fault=fault_of(row, protection_of(row.run)),
    )


def _gap(before: Checkpoint | None, row: Checkpoint) -> str:
    """Return the pause before a checkpoint in words; empty for a short one."""
    if before is None:
        return ""
    pause = row.created_at - before.created_at
    if pause <= LONG_PAUSE:
        return ""
    return spell(pause)


def why_of(run: Run, row: Checkpoint) -> str:
    """Return in words why a checkpoint was saved."""
    if not is_thread(run):
        return WHY[Source(row.source)]
    if row.seq == 0:
        return "begun"
    return WHY_OF_THREADS.get(Source(row.source), WHY[Source(row.source)])


def name_of(row: Checkpoint, *, in_thread: bool = False) -> str:
    """Return the name of a checkpoint: its node, "3 nodes", or why it was saved if no
    node ran; "settlement" for one of signatures.
    """
    if row.source == Source.SETTLEMENT:
        return "settlement"
    # A node may have run several times in a superstep.
    names: list[str] = list(dict.fromkeys(entry["node"] for entry in row.nodes))
    match names:
        case [] if in_thread and row.seq > 0:
            return WHY_OF_THREADS.get(Source(row.source), row.get_source_display())
        case [] if row.source == Source.INPUT:
            return "start"
        case []:
            return row.get_source_display()
        case [name]:
            return name
        case [first, _]:
            return f"{first} +1"
        case _:
            return f"{len(names)} nodes"


def blocks_of(row: Checkpoint) -> list[str]:
    """Return the CSS class of each of a checkpoint's blocks."""
    if row.source == Source.INPUT:
        return ["init"]
    blocks: list[str] = []
    for entry in row.nodes[:MOST_BLOCKS]:
        has_stopped = entry["outcome"] in STOPPED
        blocks.append("bad" if has_stopped else entry["effect"])
    if blocks:
        return blocks
    return ["bad" if row.source == Source.FAILURE else "pure"]


def _delta(row: Checkpoint) -> str:
    """Return in a word what the checkpoint brought: questions, an open superstep, or
    changes.
    """
    if any(entry["outcome"] == "held" for entry in row.nodes):
        return "asks"
    if row.source == Source.FAILURE:
        return "open"
    if not row.changed:
        return ""
    return f"{len(row.changed)} set"


def timeline_steps(
    run: Run,
    here: int,
    newest: int,
    tab: str,
    way: Sequence[int],
    behind: int,
) -> list[StepButton]:
    """Return the steps to the first, previous, next and last checkpoint. From a
    checkpoint of the line that counts they stay on it: `way` are the numbers of its
    checkpoints, as far as they are shown; `behind` is that of the last one before it on
    any line, -1 for none.
    """
    # From a checkpoint that is not on the way they lead to its neighbours by number.
    previous = behind
    following = here + 1
    if here in way:
        at = way.index(here)
        if at > 0:
            previous = way[at - 1]
        if at < len(way) - 1:
            following = way[at + 1]

    def href(seq: int) -> str:
        is_elsewhere = seq != here and 0 <= seq <= newest
        if not is_elsewhere:
            return ""
        # The newest has no number in its address, so that the page follows the run
        # again.
        if seq == newest:
            return url(run, at=None, tab=tab)
        return url(run, at=seq, tab=tab)

    return [
        StepButton("first", "First checkpoint", "first", href(0)),
        StepButton("prev", "Previous checkpoint", "prev", href(previous)),
        StepButton("next", "Next checkpoint", "nextt", href(following)),
        StepButton("last", "Latest checkpoint", "last", href(newest)),
    ]
