"""Stretches of a run's timeline that were cleaned up, as its page tells of them, and the checkpoint nearest to one."""

from collections.abc import Sequence
from dataclasses import dataclass

from checkpoints.models import Checkpoint, Run
from orchestrator.views.run_timeline import url


@dataclass(frozen=True, slots=True)
class Gap:
    """Checkpoints that are not there any more, `first` to `last`; `behind` is the next one that is, at `href`."""

    first: int
    last: int
    behind: int
    href: str


def nearest_kept(run: Run, number: int) -> int | None:
    """The number of the first checkpoint from this one on; None where there is none."""
    rows = Checkpoint.objects.filter(run=run.id, seq__gte=number, kept=True).order_by("seq")
    return rows.values_list("seq", flat=True).first()


def kept_before(run: Run, number: int) -> int | None:
    """The number of the last checkpoint before this one; None where there is none. No query for the first."""
    if not number:
        return None
    rows = Checkpoint.objects.filter(run=run.id, seq__lt=number, kept=True).order_by("-seq")
    return rows.values_list("seq", flat=True).first()


def kept_behind(rows: Sequence[Checkpoint], here: int, earlier: int | None) -> int:
    """The number of the last checkpoint before this one, in a window and before it; -1 where there is none."""
    return max([row.seq for row in rows if row.seq < here], default=-1 if earlier is None else earlier)


def gaps_in(run: Run, rows: Sequence[Checkpoint], earlier: int | None, *, tab: str) -> list[Gap]:
    """The stretches between the checkpoints of a window, and before it; `earlier` is the last one before the window."""
    found, before = [], -1 if earlier is None else earlier
    for seq in sorted(row.seq for row in rows):
        if seq > before + 1:
            found.append(Gap(before + 1, seq - 1, seq, url(run, at=seq, tab=tab)))
        before = seq
    return found
