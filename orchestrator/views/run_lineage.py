"""The tree in which a run stands, for pages: each run with how it came of the one above it, and what became of it."""

from typing import Any
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from approvals import permissions
from checkpoints import timeline
from checkpoints.models import Run
from checkpoints.timeline import Relative
from orchestrator.templatetags.console import run_look
from orchestrator.views.run_standings import read_kinds


def lineage_facts(user: Any, run: Run) -> dict[str, Any] | None:
    """The tree of the runs that this person may see, `{root, cut}`; None where the run stands alone."""
    found = timeline.lineage(run, among=permissions.visible_runs(user))
    if not found.root.relatives:
        return None
    read_kinds([relative.run for _, relative in found.walk()])
    return {"root": _node(found.root, run.id), "cut": found.cut}


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
