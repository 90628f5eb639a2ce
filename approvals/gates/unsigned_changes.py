"""The channels that people changed on the way to a line without anybody's signature: by a patch, or by what they said
that an unknown effect had returned.

Where a gate reads such a channel to say whether it asks, or whom, its request says who changed it. Reads only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from django.contrib.auth import get_user_model
from django.db.models import Q

from checkpoints import lines
from checkpoints.lines import Stretch
from checkpoints.models import PendingWrite, RunLine, TaskResult
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.held_patch import PATCH

Changes = Mapping[str, Sequence[str]]
"""Channel -> the user names of those who changed it, in the order in which they did; "The system" for nobody."""


def unsigned_changes(way: Sequence[Stretch]) -> Changes:
    """Return who changed which channels on this way, at the beginning of its lines and on them. Three queries, and one
    for each outcome that was settled.

    Raises `TamperedRow`, `WrongKey`.
    """
    changes: dict[str, list[str]] = defaultdict(list)
    for channel, name in (*_patched_on(way), *_settled_on(way)):
        if name not in changes[channel]:
            changes[channel].append(name)
    return changes


def sentence_of(changes: Changes, reads: Iterable[str], *, decides: str) -> str:
    """Return who changed what of these channels, and that this decides something; empty where nobody did."""
    found = [
        f"{' and '.join(names)} set {channel} without a signature"
        for channel, names in sorted(changes.items())
        if channel in {*reads}
    ]
    return f"{'; '.join(found)}, which decided {decides}" if found else ""


def _patched_on(way: Sequence[Stretch]) -> Iterable[tuple[str, str]]:
    """What each line of this way was patched with when it began, the oldest first; not what waited for signatures."""
    begun = Q(pk__in=[])
    held = Q(pk__in=[])
    for one in way:
        begun |= Q(run=one.run, number=one.line)
        held |= Q(run=one.run, line=one.line)
    rows = list(RunLine.objects.filter(begun).exclude(patched=[]).select_related("run", "by").defer("run__input"))
    if not rows:
        return
    writes = PendingWrite.objects.filter(held, node=PATCH).values_list("run", "line", "channel")
    signed = {(run, line, channel) for run, line, channel in writes}
    places = {(one.run, one.line): number for number, one in enumerate(reversed(way))}
    for row in sorted(rows, key=lambda row: places[row.run_id, row.number]):
        sealed_rows.verify_row(row, protection_of(row.run))
        for channel in row.patched:
            if (row.run_id, row.number, channel) not in signed:
                yield channel, _name(row.by)


def _settled_on(way: Sequence[Stretch]) -> Iterable[tuple[str, str]]:
    """What people said that effects on this way had returned; what a gate held of it was signed, or never applied."""
    rows = TaskResult.objects.filter(lines.within(way), settled_by__isnull=False).order_by("id")
    for row in rows.select_related("run", "settled_by").defer("run__input"):
        sealed_rows.verify_row(row, protection_of(row.run))
        held = PendingWrite.objects.filter(run=row.run_id, line=row.line, node=row.node, visit=row.visit)
        if held.exists():
            continue
        for write in (read_value(row, "output") or {}).get("writes", ()):
            yield write["channel"], _name(row.settled_by)


def _name(person: object) -> str:
    return str(person.get_username()) if isinstance(person, get_user_model()) else "The system"
