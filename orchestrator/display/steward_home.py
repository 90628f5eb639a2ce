"""What waits for a steward, as the first page of the admin leads with it: reviews, stopped runs, clean-ups, holds,
erasures and storage. Each figure is bounded, however many rows there are.
"""

from typing import Any
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse

from approvals import inbox, permissions
from approvals.inbox import Mark
from checkpoints.core.status import Status
from checkpoints.models import ErasureRecord, LegalHold, Pin, RetentionPolicy, Run
from checkpoints.retention import schedules_of
from checkpoints.retention.stock import AGES, measured_stock
from orchestrator.display.labels import STATUS
from orchestrator.engine.frozen import frozen

MOST_COUNTED = 1000
"""Rows that a figure counts; more are shown as "1,000+"."""
STOPPED = (Status.FAILED, Status.UNKNOWN, Status.TAMPERED, Status.INCOMPATIBLE)


@frozen
class Figure:
    """A count with what it counts and where its rows are. `needs_action`: somebody has to do something about it."""

    label: str
    count: str
    address: str
    needs_action: bool = False


def waiting_figures(user: Any) -> list[Figure]:
    """Return what waits for this user: reviews, and the runs that stopped, as far as he may see runs."""
    mark = inbox.mark_of(user)
    figures = [Figure("Reviews waiting for you", _words_of_mark(mark), reverse("inbox"), needs_action=mark.waiting > 0)]
    if permissions.may(user, "view_run"):
        figures += [_stopped(status) for status in STOPPED]
    return figures


def _words_of_mark(mark: Mark) -> str:
    return f"{mark.waiting:,}{'+' if mark.more else ''}"


def _stopped(status: Status) -> Figure:
    count = _counted(Run.objects.filter(status=status))
    query = urlencode({"status__exact": str(status)})
    address = f"{reverse('admin:checkpoints_run_changelist')}?{query}"
    return Figure(f"{STATUS[status].label} runs", count, address, needs_action=count != "0")


def keeping_figures() -> list[Figure]:
    """Return what is kept and erased at the moment."""
    holds = LegalHold.objects.filter(released_at=None)
    pins = Pin.objects.filter(released_at=None)
    erasures = ErasureRecord.objects.filter(ended_at=None)
    return [
        Figure("Legal holds", _counted(holds), _lasting("legalhold")),
        Figure("Pins", _counted(pins), _lasting("pin")),
        Figure("Erasures in progress", _counted(erasures), reverse("admin:checkpoints_erasurerecord_changelist")),
    ]


def _lasting(model: str) -> str:
    return f"{reverse(f'admin:checkpoints_{model}_changelist')}?state=lasting"


def _counted(rows: "QuerySet[Any]") -> str:
    count = rows.order_by()[: MOST_COUNTED + 1].count()
    return f"{count:,}" if count <= MOST_COUNTED else f"{MOST_COUNTED:,}+"


def policy_rows() -> list[dict[str, Any]]:
    """Return each policy with when it removed history last and does so next."""
    policies = list(RetentionPolicy.objects.order_by("graph")[:MOST_COUNTED])
    schedules = schedules_of(policies)
    return [{"policy": policy, "schedule": schedules[policy.graph]} for policy in policies]


def storage() -> dict[str, Any]:
    """Return the stored history of each graph by age, as it was measured last; the measuring reads every checkpoint."""
    return {"ages": AGES, **measured_stock()}
