"""Removes lines of a thread's log: each stretch of them leaves a line that records
which numbers are gone, and the hashes by which the chain is followed past them.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from django.utils import timezone

from checkpoints.event_log import NewEvent
from checkpoints.ledger import locked_run
from checkpoints.models import Run, RunEvent
from checkpoints.sealing.sealed_rows import protection_of
from checkpoints.verification.removed_history import (
    KIND,
    RemovedHistory,
    removed_history,
)
from orchestrator.engine.errors import TamperedRow


def remove_lines(run: Run, numbers: Iterable[int], *, by_name: str) -> int:
    """Remove the lines with these numbers from the log of a locked run, in the caller's
    transaction. Returns how many there were. Raises `TamperedRow` if lines before them
    are gone without a word.
    """
    lines = RunEvent.objects.filter(run=run.id, seq__in=list(numbers)).order_by("seq")
    hashes = dict(lines.values_list("seq", "hash"))
    if not hashes:
        return 0
    history = removed_history(run.id, protection_of(run))
    events = []
    for stretch in _stretches(list(hashes)):
        facts = _facts(run, stretch, hashes, history)
        events.append(NewEvent(KIND, {"events": facts}, actor=by_name))
    lines.delete()
    locked_run.append_locked(run, events, at=timezone.now())
    return len(hashes)


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last of each stretch of numbers without a gap."""
    stretches: list[tuple[int, int]] = []
    for number in numbers:
        if stretches and stretches[-1][1] == number - 1:
            first, _ = stretches.pop()
            stretches.append((first, number))
        else:
            stretches.append((number, number))
    return stretches


def _facts(
    run: Run,
    stretch: tuple[int, int],
    hashes: dict[int, str],
    history: RemovedHistory,
) -> dict[str, Any]:
    first, last = stretch
    before = RunEvent.objects.filter(run=run.id, seq__lt=first).order_by("-seq")
    seq, hash_ = before.values_list("seq", "hash").first() or (0, "")
    # The lines in between may have been removed before.
    seq, hash_ = history.events.follow(seq, hash_, first)
    if seq != first - 1:
        raise TamperedRow(
            f"lines of the log of run {run.key} before {first} are gone, and no line of"
            " it says so",
            run=str(run.id),
        )
    return {
        "first": first,
        "last": last,
        "count": last - first + 1,
        "before": hash_,
        "after": hashes[last],
    }
