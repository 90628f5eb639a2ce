"""One path of the state that the run page watches: where it was set, and the way from one of these checkpoints to the
next.
"""

from typing import Any

from approvals import permissions
from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator.engine.errors import InvalidValue
from orchestrator.views.run_timeline import url

STOPS = 60
"""Checkpoints that set the path, as many as are named."""


def watched_path(user: Any, run: Run, at: Checkpoint, text: str, *, tab: str) -> dict[str, Any] | None:
    """What the page says of the watched path; None where none is watched."""
    if not text:
        return None
    leave = url(run, at=at.seq, tab=tab)
    try:
        among = permissions.visible_runs(user)
        changes = timeline.history(run.id, text, limit=STOPS, among=among)
        before, after = timeline.neighbours(at, text, among=among)
    except InvalidValue as error:
        return {"path": text, "refused": error.message, "leave": leave}
    stops = [_stop(run, change.checkpoint.seq, at.seq, text, tab) for change in changes]
    return {
        "path": text,
        "stops": stops,
        "cut": len(changes) == STOPS,
        "prev": "" if before is None else url(run, at=before, tab=tab, path=text),
        "next": "" if after is None else url(run, at=after, tab=tab, path=text),
        "leave": leave,
    }


def _stop(run: Run, seq: int, here: int, text: str, tab: str) -> dict[str, Any]:
    return {"seq": seq, "href": url(run, at=seq, tab=tab, path=text), "here": seq == here}
