"""The tree in which a run stands, for pages: each run with how it came of the one above it, and what became of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from approvals import permissions
from checkpoints import lines, timeline
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.timeline import Relative
from orchestrator.display.run_names import run_name
from orchestrator.engine.errors import UNREADABLE
from orchestrator.templatetags.console import run_look
from orchestrator.views.run_standings import read_kinds
from orchestrator.views.run_timeline import blocks_of, name_of, url

MOST_INHERITED = 8
"""Checkpoints of its origins that are drawn before a fork's own."""


def lineage_facts(user: Any, run: Run) -> dict[str, Any] | None:
    """The tree of the runs that this person may see, `{root, cut}`; None where the run stands alone."""
    found = timeline.lineage(run, among=permissions.visible_runs(user))
    if not found.root.relatives:
        return None
    read_kinds([relative.run for _, relative in found.walk()])
    return {"root": _node(found.root, run.id), "cut": found.cut}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork or replay came from: "Fork" or "Replay", the run's name, its page at that checkpoint, its number."""

    kind: str
    name: str
    href: str
    seq: int


@dataclass(frozen=True, slots=True)
class Inherited:
    """A checkpoint of another run that a fork was made from or after, as a column before its own."""

    run: str
    seq: int
    at: datetime
    name: str
    blocks: list[str]
    href: str


def origin_of(user: Any, run: Run) -> Origin | None:
    """Where a fork or replay came from; None for other runs, and where this person may not see it. Two queries."""
    if run.origin_checkpoint is None:
        return None
    line = RunLine.objects.filter(run=run.id, number=1).only("travel", "departure_run", "departure_seq").first()
    if line is None:
        return None
    visible = permissions.visible_among(user, Run.objects.filter(id=line.departure_run))
    origin = visible.only("id", "key", "label").first()
    if origin is None:
        return None
    href = url(origin, at=line.departure_seq)
    return Origin(str(line.travel).capitalize(), run_name(origin), href, line.departure_seq)


def inherited_columns(user: Any, run: Run) -> list[Inherited]:
    """The newest checkpoints that a fork or replay inherited, oldest first, as far as this person may see their runs.

    A query an origin, and two more; none for other runs. Reads columns only.
    """
    if run.origin_checkpoint is None:
        return []
    try:
        stretches = [one for one in lines.past(run.id, run.line, known=run) if one.run != run.id]
    except UNREADABLE:
        return []
    names = {one.run for one in stretches}
    visible = permissions.visible_among(user, Run.objects.filter(id__in=names)).only("id", "key", "label")
    runs = {one.id: one for one in visible}
    seen = [one for one in stretches if one.run in runs]
    rows = Checkpoint.objects.filter(lines.within(seen), kept=True).order_by("-created_at", "-seq")
    newest = rows.only("run_id", "seq", "created_at", "source", "nodes")[:MOST_INHERITED]
    return [_inherited(row, runs[row.run_id]) for row in reversed(newest)]


def _inherited(row: Checkpoint, run: Run) -> Inherited:
    return Inherited(
        run=run_name(run),
        seq=row.seq,
        at=row.created_at,
        name=name_of(row),
        blocks=blocks_of(row),
        href=url(run, at=row.seq),
    )


def _node(one: Relative, here: UUID) -> dict[str, Any]:
    is_here = one.run.id == here
    return {
        "run": one.run,
        "said": ", ".join(filter(None, [_how(one), run_look(one.run).label])),
        "here": is_here,
        "compare": "" if is_here else f"{reverse('compare')}?{urlencode({'a': str(here), 'b': str(one.run.id)})}",
        "fault": one.fault,
        "relatives": [_node(inner, here) for inner in one.relatives],
    }


def _how(one: Relative) -> str:
    if one.how == "child":
        return f"started by {one.task}"
    return f"{one.how} from {one.seq}" if one.how else ""
