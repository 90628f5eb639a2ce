"""The gaps of a run's timeline that clean-ups left, for its page, and the checkpoints
nearest to one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import QuerySet

from checkpoints.models import Checkpoint, Run
from orchestrator.views.run_timeline import url


@dataclass(frozen=True, slots=True)
class Gap:
    """Checkpoints that were cleaned up, `first` to `last`; `behind` is the next one
    that was kept, at `href`.
    """

    first: int
    last: int
    behind: int
    href: str


def nearest_kept(run: Run, number: int) -> int | None:
    """Return the number of the first checkpoint from this one on; None if there is
    none.
    """
    rows = Checkpoint.objects.filter(run=run.id, seq__gte=number, kept=True)
    return rows.order_by("seq").values_list("seq", flat=True).first()


def kept_before(run: Run, number: int) -> "QuerySet[Checkpoint, tuple[int]]":
    """Return the query for the number of the last checkpoint before this one: no row if
    there is none.
    """
    rows = Checkpoint.objects.filter(run=run.id, seq__lt=number, kept=True)
    # Django sends no query for none.
    if not number:
        rows = rows.none()
    return rows.order_by("-seq").values_list("seq")[:1]


def kept_behind(rows: Sequence[Checkpoint], here: int, earlier: int | None) -> int:
    """Return the number of the last checkpoint before this one, in a window or before
    it; -1 if there is none. `earlier` is the last one before the window.
    """
    in_window = [row.seq for row in rows if row.seq < here]
    if in_window:
        return max(in_window)
    if earlier is None:
        return -1
    return earlier


def gaps_in(
    run: Run,
    rows: Sequence[Checkpoint],
    earlier: int | None,
    *,
    tab: str,
) -> list[Gap]:
    """Return the gaps between the checkpoints of a window, and before it. `earlier` is
    the last one before the window.
    """
    gaps: list[Gap] = []
    # Without an earlier one a gap may begin at checkpoint 0.
    before = -1
    if earlier is not None:
        before = earlier
    for seq in sorted(row.seq for row in rows):
        if seq > before + 1:
            gap = Gap(
                first=before + 1,
                last=seq - 1,
                behind=seq,
                href=url(run, at=seq, tab=tab),
            )
            gaps.append(gap)
        before = seq
    return gaps
