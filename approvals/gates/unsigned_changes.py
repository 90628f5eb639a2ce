"""The channels that people changed on the way to a line without anybody's signature: by
a patch, or by the output that they gave for an effect with an unknown outcome.

If a gate reads such a channel to determine whether it asks, or whom, its request names
the people who changed it. Reads only.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet

from checkpoints import lines
from checkpoints.db import query_cache
from checkpoints.db.query_cache import pairs_in
from checkpoints.lines import Stretch
from checkpoints.models import PendingWrite, RunLine, TaskResult
from checkpoints.sealing import sealed_rows
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.step.held_patch import PATCH

Changes = Mapping[str, Sequence[str]]
"""Channel -> the user names of those who changed it, in the order in which they did;
"The system" for nobody.
"""
MOST_AT_ONCE = 64
"""The most lines that are looked at by a query whose text is kept: a database limits the
length of one.
"""


def unsigned_changes(way: Sequence[Stretch]) -> Changes:
    """Return who changed which channels on this way, at the beginning of its lines and
    on them. One query if nobody did; three more, and one for each outcome that was
    settled.

    Raises `TamperedRow`, `WrongKey`.
    """
    if not _did_anybody(way):
        return {}
    names_by_channel: dict[str, list[str]] = defaultdict(list)
    for channel, name in (*_patches_on(way), *_settled_outputs_on(way)):
        names = names_by_channel[channel]
        if name not in names:
            names.append(name)
    return names_by_channel


def _did_anybody(way: Sequence[Stretch]) -> bool:
    """Return whether people may have changed a channel on the lines of this way. On most
    nobody did, so it is asked by texts that are kept.
    """
    if len(way) > MOST_AT_ONCE:
        return True
    places: list[Any] = []
    for stretch in query_cache.padded(way):
        places += (stretch.run, stretch.line)
    return query_cache.exists(_query_of_changed, *places)


def _query_of_changed(*places: Any) -> "QuerySet[Any, Any]":
    """Return the query for the lines that were patched when they began, and for the
    results that people settled on them.
    """
    begun = Q(pk__in=[])
    on_lines = Q(pk__in=[])
    for run, line in pairs_in(places):
        begun |= Q(run=run, number=line)
        on_lines |= Q(run=run, line=line)
    patched = RunLine.objects.filter(begun).exclude(patched=[])
    settled = TaskResult.objects.filter(on_lines, settled_by__isnull=False)
    rows = patched.order_by().values("id")
    return rows.union(settled.order_by().values("id"), all=True)


def sentence_of(changes: Changes, reads: Iterable[str], *, decides: str) -> str:
    """Return the sentence on who changed which of these channels, and on what that
    decided; empty if nobody did.
    """
    read_channels = {*reads}
    clauses = [
        f"{' and '.join(names)} set {channel} without a signature"
        for channel, names in sorted(changes.items())
        if channel in read_channels
    ]
    if not clauses:
        return ""
    return f"{'; '.join(clauses)}, which decided {decides}"


def _patches_on(way: Sequence[Stretch]) -> Iterable[tuple[str, str]]:
    """Yield the channels with which each line of this way was patched when it began,
    the oldest first, and the name of the person; not those that waited for signatures.
    """
    begun = Q(pk__in=[])
    on_lines = Q(pk__in=[])
    for stretch in way:
        begun |= Q(run=stretch.run, number=stretch.line)
        on_lines |= Q(run=stretch.run, line=stretch.line)
    lines_patched = list(
        RunLine.objects.filter(begun)
        .exclude(patched=[])
        .select_related("run", "by")
        # The input of a run may be large, and its protection does not need it.
        .defer("run__input")
    )
    if not lines_patched:
        return

    # Guarded channels of a patch were held until people had signed them.
    held_writes = PendingWrite.objects.filter(on_lines, node=PATCH)
    signed = set(held_writes.values_list("run", "line", "channel"))
    # The numbers of lines compare within one run only; the way has the newest first.
    age = {
        (stretch.run, stretch.line): number
        for number, stretch in enumerate(reversed(way))
    }
    lines_patched.sort(key=lambda row: age[row.run_id, row.number])
    for row in lines_patched:
        sealed_rows.verify_row(row, protection_of(row.run))
        for channel in row.patched:
            if (row.run_id, row.number, channel) not in signed:
                yield channel, _name_of(row.by)


def _settled_outputs_on(way: Sequence[Stretch]) -> Iterable[tuple[str, str]]:
    """Yield the channels in the outputs that people gave for effects on this way, and
    the name of the person. An output that a gate held was signed, or never applied.
    """
    results = (
        TaskResult.objects.filter(lines.within(way), settled_by__isnull=False)
        .order_by("id")
        .select_related("run", "settled_by")
        .defer("run__input")
    )
    for row in results:
        sealed_rows.verify_row(row, protection_of(row.run))
        held_writes = PendingWrite.objects.filter(
            run=row.run_id, line=row.line, node=row.node, visit=row.visit
        )
        if held_writes.exists():
            continue
        output = read_value(row, "output") or {}
        for write in output.get("writes", ()):
            yield write["channel"], _name_of(row.settled_by)


def _name_of(person: object) -> str:
    if isinstance(person, get_user_model()):
        return str(person.get_username())
    return "The system"
