"""A run's checkpoints as columns of the tape and rows of the list, and the steps between them. No queries."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.urls import reverse
from django.utils.http import urlencode

from checkpoints.models import Checkpoint, Run
from checkpoints.models.checkpoint import Source
from checkpoints.sealing.seal_fault import SealFault, fault_of
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.templatetags.console import spell

LONG_PAUSE = timedelta(minutes=10)
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
STOPPED = ("failed", "unknown")


@dataclass(frozen=True, slots=True)
class Column:
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
class Step:
    """A button of the transport; without `href` there is nowhere to go."""

    name: str
    label: str
    icon: str
    href: str


def url(run: Run, *, at: int | None, tab: str = "", **more: str) -> str:
    """The run's page at a checkpoint (None: the newest), the detail open at `tab`."""
    query = {"at": "" if at is None else str(at), "tab": "" if tab == "changed" else tab, **more}
    query = {name: value for name, value in query.items() if value}
    return reverse("run", args=[run.id]) + (f"?{urlencode(query)}" if query else "")


def timeline_columns(run: Run, rows: Sequence[Checkpoint], here: Checkpoint, *, newest: int, tab: str) -> list[Column]:
    """The checkpoints in time. `rows` come newest first."""
    ordered = list(reversed(rows))
    before = [None, *ordered[:-1]]
    return [_column(run, row, last, here, newest=newest, tab=tab) for row, last in zip(ordered, before, strict=True)]


def _column(run: Run, row: Checkpoint, last: Checkpoint | None, here: Checkpoint, *, newest: int, tab: str) -> Column:
    pause = row.created_at - last.created_at if last else timedelta(0)
    blocks = blocks_of(row)
    return Column(
        seq=row.seq,
        at=row.created_at,
        name=name_of(row),
        blocks=blocks,
        effect=blocks[0] if blocks[0] not in ("init", "bad") else "",
        delta=_delta(row),
        why="" if row.source == Source.SUPERSTEP else WHY[Source(row.source)],
        href=url(run, at=row.seq, tab=tab),
        here=row.id == here.id,
        later=row.seq > here.seq,
        newest=row.seq == newest,
        gap=spell(pause) if pause > LONG_PAUSE else "",
        fault=fault_of(row, protection_of(row.run)),
    )


def name_of(row: Checkpoint) -> str:
    """A checkpoint's name: its node, "3 nodes", or why it was saved where no node ran; of signatures a settlement."""
    if row.source == Source.SETTLEMENT:
        return "settlement"
    names = list(dict.fromkeys(entry["node"] for entry in row.nodes))
    if not names:
        return "start" if row.source == Source.INPUT else row.get_source_display()
    return (
        names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}" if len(names) == 2 else f"{len(names)} nodes"
    )


def blocks_of(row: Checkpoint) -> list[str]:
    """The CSS class of each of a checkpoint's blocks."""
    if row.source == Source.INPUT:
        return ["init"]
    found = ["bad" if entry["outcome"] in STOPPED else entry["effect"] for entry in row.nodes]
    return found[:6] or ["bad" if row.source == Source.FAILURE else "pure"]


def _delta(row: Checkpoint) -> str:
    if any(entry["outcome"] == "held" for entry in row.nodes):
        return "asks"
    if row.source == Source.FAILURE:
        return "open"
    return f"{len(row.changed)} set" if row.changed else ""


def timeline_steps(run: Run, here: int, newest: int, tab: str, way: Sequence[int], behind: int) -> list[Step]:
    """First, previous, next, last. From a checkpoint of the line that counts they stay on it: `way` are the numbers of
    its checkpoints, as far as they are shown; `behind` is that of the last one before it on any line, -1 for none.
    """
    at = way.index(here) if here in way else -1
    before = way[at - 1] if at > 0 else behind
    after = way[at + 1] if 0 <= at < len(way) - 1 else here + 1

    def to(seq: int, name: str, label: str, icon: str) -> Step:
        away = seq != here and 0 <= seq <= newest
        # The newest has no number in its address, so that the page follows the run again.
        return Step(name, label, icon, url(run, at=None if seq == newest else seq, tab=tab) if away else "")

    return [
        to(0, "first", "First checkpoint", "first"),
        to(before, "prev", "Previous checkpoint", "prev"),
        to(after, "next", "Next checkpoint", "nextt"),
        to(newest, "last", "Latest checkpoint", "last"),
    ]
