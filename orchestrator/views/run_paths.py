"""One path of the state that the run page watches: the checkpoints that set it, and the
way from each of them to the next.
"""

from typing import Any

from approvals import permissions
from checkpoints import timeline
from checkpoints.models import Checkpoint, Run
from orchestrator.engine.errors import InvalidValue
from orchestrator.views.run_timeline import url

STOPS = 60
"""Checkpoints that set the path, as many as are named."""


def watched_path(
    user: Any,
    run: Run,
    at: Checkpoint,
    text: str,
    *,
    tab: str,
) -> dict[str, Any] | None:
    """Return the facts about the watched path; None if none is watched."""
    if not text:
        return None
    leave = url(run, at=at.seq, tab=tab)
    # A path was perhaps typed, and may be none.
    try:
        among = permissions.visible_relatives(user)
        changes = timeline.history(run.id, text, limit=STOPS, among=among)
        before, after = timeline.neighbours(at, text, among=among)
    except InvalidValue as error:
        return {"path": text, "refused": error.message, "leave": leave}

    stops: list[dict[str, Any]] = []
    for change in changes:
        seq = change.checkpoint.seq
        address = _watching_url(run, seq, text, tab)
        stop = {
            "seq": seq,
            "href": address,
            "here": seq == at.seq,
        }
        stops.append(stop)
    return {
        "path": text,
        "stops": stops,
        "cut": len(changes) == STOPS,
        "prev": _watching_url(run, before, text, tab),
        "next": _watching_url(run, after, text, tab),
        "leave": leave,
    }


def _watching_url(run: Run, seq: int | None, text: str, tab: str) -> str:
    """Return the address that watches the path at a checkpoint; "" without one."""
    if seq is None:
        return ""
    return url(run, at=seq, tab=tab, path=text)
