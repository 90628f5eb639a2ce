"""The links from a run or a checkpoint in the admin to what can be done with it. Each leads to a page that says what
happens, and asks; none of them acts by itself, and none decides a review.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from approvals import permissions
from checkpoints.core.status import ENDS, Status
from checkpoints.models import Checkpoint, Run
from orchestrator.engine.frozen import frozen

RESUMABLE = frozenset({Status.FAILED, Status.INCOMPATIBLE, Status.TAMPERED})


@frozen
class Button:
    """A link to a page. `danger`: what that page does cannot be undone."""

    label: str
    address: str
    danger: bool = False


def run_buttons(run: Run, user: Any) -> list[Button]:
    """Return the buttons of a run for this user, the next step first. No queries but for the user's rights."""
    buttons = [Button("Open in the console", reverse("run", args=[run.id]))]
    if run.status == Status.PAUSED:
        buttons.insert(0, Button("Open the review", reverse("review", args=[run.id])))
    if permissions.may(user, "steer_run"):
        buttons += _steering(run)
    if permissions.may(user, "settle_task") and run.status == Status.UNKNOWN:
        buttons.insert(0, Button("Settle the outcome", reverse("settle", args=[run.id])))
    buttons += _keeping(run, user)
    return buttons


def _steering(run: Run) -> Iterator[Button]:
    if run.status in RESUMABLE:
        yield Button("Resume", act_address("resume", run))
    if run.head and run.erasure is None:
        yield Button("Go on from here", reverse("go_on", args=[run.head]))
    yield Button("Compare", f"{reverse('compare')}?{urlencode({'a': run.key})}")
    if run.status not in ENDS and not run.imported:
        yield Button("Cancel", reverse("cancel", args=[run.id]), danger=True)


def _keeping(run: Run, user: Any) -> Iterator[Button]:
    if permissions.may(user, "export_run"):
        yield Button("Export", reverse("export", args=[run.id]))
    if not permissions.may(user, "manage_retention"):
        return
    if run.head:
        yield Button("Pin the newest checkpoint", reverse("pin", args=[run.head]))
    yield Button("Put under a legal hold", act_address("hold", run))
    yield Button("Erase", reverse("erase", args=[run.id]), danger=True)


def checkpoint_buttons(point: Checkpoint, user: Any) -> list[Button]:
    """Return the buttons of a checkpoint for this user; none where its run has no row. One query for that."""
    run = Run.objects.filter(id=point.run_id).only("id", "erasure").first()
    if run is None:
        return []
    at = f"{reverse('run', args=[point.run_id])}?{urlencode({'at': point.seq})}"
    buttons = [Button("Open in the console", at)]
    if not point.kept:
        return buttons
    if permissions.may(user, "steer_run") and run.erasure is None:
        buttons.append(Button("Go on from here", reverse("go_on", args=[point.id])))
    if point.seq > 0:
        changes = urlencode({"at": point.seq, "against": point.seq - 1, "tab": "changed"})
        buttons.append(Button("Compare with the one before", f"{reverse('run', args=[point.run_id])}?{changes}"))
    if permissions.may(user, "manage_retention"):
        buttons.append(Button("Pin or unpin", reverse("pin", args=[point.id])))
    return buttons


def act_address(act: str, *runs: Run) -> str:
    """Return the address of the page that does something with these runs, once that is confirmed there."""
    query = urlencode([("run", str(run.id)) for run in runs])
    return f"{reverse('admin:runs_act', args=[act])}?{query}"
