"""The tree in which a run stands, for pages: each run with how it came of the one above
it, and what became of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.http import urlencode

from approvals import permissions
from checkpoints import lines, timeline
from checkpoints.lines import Stretch
from checkpoints.models import Checkpoint, Run, RunLine
from checkpoints.timeline import Relative
from orchestrator.display.run_names import run_name
from orchestrator.engine.errors import UNREADABLE
from orchestrator.templatetags.console import run_look
from orchestrator.views.run_standings import read_kinds
from orchestrator.views.run_timeline import blocks_of, name_of, url

MOST_INHERITED = 8
"""The most checkpoints of its origins that are drawn before a fork's own."""


def lineage_facts(
    user: Any,
    run: Run,
    principals: Sequence[str] | None = None,
    below: Mapping[str, Sequence[Any]] | None = None,
) -> dict[str, Any] | None:
    """Return the tree of the runs that this person may see, `{root, cut}`; None if the
    run stands alone. `principals` are the person's, and `below` the rows of
    `below_queries`, where the caller has just read them.
    """
    among = permissions.visible_relatives(user, principals=principals)
    relatives = timeline.lineage(run, among=among, below=below)
    if not relatives.root.relatives:
        return None
    # All kinds at once: the tree may have many runs.
    read_kinds([relative.run for _, relative in relatives.walk()])
    return {"root": _node(relatives.root, run.id), "cut": relatives.cut}


def below_queries(
    user: Any, run: Run, principals: Sequence[str]
) -> "dict[str, QuerySet[Any]]":
    """Return the queries for what came from a run that is the first of its tree."""
    among = permissions.visible_relatives(user, principals=principals)
    return timeline.below_queries([run.id], among)


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a fork or replay: "Fork" or "Replay", the origin's name, the
    address of its page at the checkpoint of departure, and that checkpoint's number.
    """

    kind: str
    name: str
    href: str
    seq: int


@dataclass(frozen=True, slots=True)
class InheritedCheckpoint:
    """A checkpoint of another run that a fork was made from or after, as a column
    before its own.
    """

    run: str
    seq: int
    at: datetime
    name: str
    blocks: list[str]
    href: str


def origin_of(user: Any, run: Run) -> Origin | None:
    """Return where a fork or replay came from; None for other runs, and if this person
    may not see it. Two queries.
    """
    if run.origin_checkpoint is None:
        return None
    first_lines = RunLine.objects.filter(run=run.id, number=1)
    line = first_lines.only("travel", "departure_run", "departure_seq").first()
    if line is None:
        return None
    origins = Run.objects.filter(id=line.departure_run)
    visible = permissions.visible_among(user, origins)
    origin = visible.only("id", "key", "label").first()
    if origin is None:
        return None
    return Origin(
        kind=str(line.travel).capitalize(),
        name=run_name(origin),
        href=url(origin, at=line.departure_seq),
        seq=line.departure_seq,
    )


def inherited_columns(user: Any, run: Run) -> list[InheritedCheckpoint]:
    """Return the newest checkpoints that a fork or replay inherited, oldest first, as
    far as this person may see their runs.

    A query an origin, and two more; none for other runs. Reads columns only.
    """
    if run.origin_checkpoint is None:
        return []
    try:
        past = lines.past(run.id, run.line)
    except UNREADABLE:
        # The page names the damage elsewhere, and stands without these columns.
        return []
    # The way to a fork's head begins with its own checkpoints.
    stretches = [stretch for stretch in past if stretch.run != run.id]
    runs = _visible_runs_of(stretches, user)
    visible = [stretch for stretch in stretches if stretch.run in runs]
    rows = Checkpoint.objects.filter(lines.within(visible), kept=True)
    rows = rows.only("run_id", "seq", "created_at", "source", "nodes")
    # By time first: each run numbers its checkpoints from 0.
    newest = rows.order_by("-created_at", "-seq")[:MOST_INHERITED]
    return [_inherited(row, runs[row.run_id]) for row in reversed(newest)]


def _visible_runs_of(stretches: Sequence[Stretch], user: Any) -> dict[UUID, Run]:
    """Return the runs of these stretches that this person may see. One query."""
    ids = {stretch.run for stretch in stretches}
    visible = permissions.visible_among(user, Run.objects.filter(id__in=ids))
    return {row.id: row for row in visible.only("id", "key", "label")}


def _inherited(row: Checkpoint, run: Run) -> InheritedCheckpoint:
    return InheritedCheckpoint(
        run=run_name(run),
        seq=row.seq,
        at=row.created_at,
        name=name_of(row),
        blocks=blocks_of(row),
        href=url(run, at=row.seq),
    )


def _node(relative: Relative, here: UUID) -> dict[str, Any]:
    run = relative.run
    is_here = run.id == here
    compare = ""
    if not is_here:
        query = urlencode({"a": str(here), "b": str(run.id)})
        compare = f"{reverse('compare')}?{query}"
    words = [_how(relative), run_look(run).label]
    return {
        "run": run,
        "said": ", ".join(filter(None, words)),
        "here": is_here,
        "compare": compare,
        "fault": relative.fault,
        "relatives": [_node(inner, here) for inner in relative.relatives],
    }


def _how(relative: Relative) -> str:
    """Return in words how a run came of the one above it; "" for the root."""
    if relative.how == "child":
        return f"started by {relative.task}"
    if not relative.how:
        return ""
    return f"{relative.how} from {relative.seq}"
