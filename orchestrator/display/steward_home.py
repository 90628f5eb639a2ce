"""The figures at the top of the admin's first page, for a steward: reviews, stopped
runs, clean-ups, holds, erasures and storage. Each figure is bounded, however many rows
there are.
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
"""The most rows that a figure counts; a greater number is shown as "1,000+"."""
STOPPED = (Status.FAILED, Status.UNKNOWN, Status.TAMPERED, Status.INCOMPATIBLE)


@frozen
class Figure:
    """A count with its label and the address of its rows. `needs_action`: a person has
    to do something about them.
    """

    label: str
    count: str
    address: str
    needs_action: bool = False


def waiting_figures(user: Any) -> list[Figure]:
    """Return what waits for this user: reviews and, for users who may see runs, the
    runs that stopped.
    """
    figures = [_waiting_reviews(inbox.mark_of(user))]
    if permissions.may(user, "view_run"):
        for status in STOPPED:
            figures.append(_stopped_runs(status))
    return figures


def _waiting_reviews(mark: Mark) -> Figure:
    count = f"{mark.waiting:,}"
    # The mark counts up to a limit too.
    if mark.is_capped:
        count += "+"
    return Figure(
        "Reviews waiting for you",
        count,
        reverse("inbox"),
        needs_action=mark.waiting > 0,
    )


def _stopped_runs(status: Status) -> Figure:
    count = _counted(Run.objects.filter(status=status))
    query = urlencode({"status__exact": str(status)})
    return Figure(
        f"{STATUS[status].label} runs",
        count,
        f"{reverse('admin:checkpoints_run_changelist')}?{query}",
        needs_action=count != "0",
    )


def keeping_figures() -> list[Figure]:
    """Return what is kept and what is being erased now."""
    holds = LegalHold.objects.filter(released_at=None)
    pins = Pin.objects.filter(released_at=None)
    erasures = ErasureRecord.objects.filter(ended_at=None)
    return [
        Figure("Legal holds", _counted(holds), _unreleased("legalhold")),
        Figure("Pins", _counted(pins), _unreleased("pin")),
        Figure(
            "Erasures in progress",
            _counted(erasures),
            reverse("admin:checkpoints_erasurerecord_changelist"),
        ),
    ]


def _unreleased(model: str) -> str:
    """Return the address of the rows that nobody has released."""
    address = reverse(f"admin:checkpoints_{model}_changelist")
    return f"{address}?state=lasting"


def _counted(rows: "QuerySet[Any]") -> str:
    """Return the number of rows, counted up to a limit."""
    # In no order, so that the database stops at the limit instead of sorting all rows.
    count = rows.order_by()[: MOST_COUNTED + 1].count()
    if count > MOST_COUNTED:
        return f"{MOST_COUNTED:,}+"
    return f"{count:,}"


def policy_rows() -> list[dict[str, Any]]:
    """Return each policy with the times at which it removed history last and will do so
    next.
    """
    policies = list(RetentionPolicy.objects.order_by("graph")[:MOST_COUNTED])
    schedules = schedules_of(policies)
    rows: list[dict[str, Any]] = []
    for policy in policies:
        rows.append({"policy": policy, "schedule": schedules[policy.graph]})
    return rows


def storage() -> dict[str, Any]:
    """Return the stored history of each graph by age, as it was measured last."""
    # Measuring reads every checkpoint, so the page does not do it.
    return {"ages": AGES, **measured_stock()}
