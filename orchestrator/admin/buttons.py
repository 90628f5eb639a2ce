"""The links from a run or a checkpoint in the admin to the actions on it. Each leads to
a page that explains the action and asks for confirmation; none of them acts by itself,
and none decides a review.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse

from approvals import permissions
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Checkpoint, Run
from orchestrator.engine.frozen import frozen

RESUMABLE = frozenset({Status.FAILED, Status.INCOMPATIBLE, Status.TAMPERED})


@frozen
class Button:
    """A link to a page. `danger`: the action of that page cannot be undone."""

    label: str
    address: str
    danger: bool = False


def run_buttons(run: Run, user: Any) -> list[Button]:
    """Return the buttons of a run for this user, the next step first. No queries except
    for the user's rights.
    """
    buttons = [_page_button("Open in the console", "run", run.id)]
    if run.status == Status.PAUSED:
        buttons.insert(0, _page_button("Open the review", "review", run.id))
    if permissions.may(user, "steer_run"):
        buttons += _steering_buttons(run)
    # Before all others, for the run goes on only when its outcomes are settled.
    if permissions.may(user, "settle_task") and run.status == Status.UNKNOWN:
        buttons.insert(0, _page_button("Settle the outcome", "settle", run.id))
    buttons += _retention_buttons(run, user)
    return buttons


def _page_button(
    label: str,
    page: str,
    row: UUID,
    *,
    danger: bool = False,
) -> Button:
    """Return the button that leads to a page of a run or of a checkpoint."""
    return Button(label, reverse(page, args=[row]), danger)


def _steering_buttons(run: Run) -> Iterator[Button]:
    if run.status in RESUMABLE:
        yield Button("Resume", act_address("resume", run))
    # Nothing departs from a run once values of it were erased.
    if run.head and run.erasure is None:
        yield _page_button("Go on from here", "go_on", run.head)
    query = urlencode({"a": run.key})
    yield Button("Compare", f"{reverse('compare')}?{query}")
    # An imported run is read-only.
    if run.status not in ENDS and not run.imported:
        yield _page_button("Cancel", "cancel", run.id, danger=True)


def _retention_buttons(run: Run, user: Any) -> Iterator[Button]:
    if permissions.may(user, "export_run"):
        yield _page_button("Export", "export", run.id)
    if not permissions.may(user, "manage_retention"):
        return
    if run.head:
        yield _page_button("Pin the newest checkpoint", "pin", run.head)
    yield Button("Put under a legal hold", act_address("hold", run))
    yield _page_button("Erase", "erase", run.id, danger=True)


def checkpoint_buttons(point: Checkpoint, user: Any) -> list[Button]:
    """Return the buttons of a checkpoint for this user; none if its run has no row. One
    query for that.
    """
    run = Run.objects.filter(id=point.run_id).only("id", "erasure").first()
    if run is None:
        return []
    run_page = reverse("run", args=[run.id])
    at_checkpoint = urlencode({"at": point.seq})
    buttons = [Button("Open in the console", f"{run_page}?{at_checkpoint}")]
    # The next commit replaces it, so it is only looked at.
    if not point.kept:
        return buttons

    if permissions.may(user, "steer_run") and run.erasure is None:
        buttons.append(_page_button("Go on from here", "go_on", point.id))
    if point.seq > 0:
        changes = {
            "at": point.seq,
            "against": point.seq - 1,
            "tab": "changed",
        }
        address = f"{run_page}?{urlencode(changes)}"
        buttons.append(Button("Compare with the one before", address))
    if permissions.may(user, "manage_retention"):
        buttons.append(_page_button("Pin or unpin", "pin", point.id))
    return buttons


def act_address(act: str, *runs: Run) -> str:
    """Return the address of the page where an action on these runs is confirmed."""
    query = urlencode([("run", str(run.id)) for run in runs])
    page = reverse("admin:runs_act", args=[act])
    return f"{page}?{query}"
