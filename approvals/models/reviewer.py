"""The principals that may decide requests."""

from django.db import models

from approvals.models.request import ApprovalRequest


class RequestReviewer(models.Model):
    """A principal that may decide a request, one to a row, with copies of what lists are
    ordered by, so that the first rows of a list are found by index.

    The copies are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    request = models.ForeignKey(
        ApprovalRequest, on_delete=models.CASCADE, related_name="reviewers"
    )
    principal = models.CharField(
        max_length=200, help_text="user:<name>, group:<name> or perm:<app.codename>"
    )
    # Null only in rows of an older version, until the migrations are through.
    run = models.UUIDField(null=True, editable=False)
    run_created_at = models.DateTimeField(null=True, editable=False)
    # Only in the first row of a run with this principal, so that a list has a run once,
    # and a change of its status changes few rows.
    run_graph = models.CharField(max_length=200, null=True, editable=False)  # noqa: DJ001
    run_status = models.CharField(max_length=12, null=True, editable=False)  # noqa: DJ001
    by_run = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text=(
            "In the first row of a run with this principal: its requests stand in their "
            "list by the run. Else each has a row of its own there."
        ),
    )
    graph = models.CharField(max_length=200, null=True, editable=False)  # noqa: DJ001
    opened_at = models.DateTimeField(null=True, editable=False)
    deadline = models.DateTimeField(null=True, editable=False)
    waits = models.BooleanField(
        null=True,
        editable=False,
        help_text="The request is open, and the run is not closed to decisions.",
    )
    expired = models.BooleanField(
        default=False,
        db_default=False,
        editable=False,
        help_text="Its deadline closed the request, or decided what was left open.",
    )
    changes = models.IntegerField(
        null=True,
        editable=False,
        help_text="How often the request changed status or its run was decided on.",
    )
    changed_at = models.DateTimeField(
        null=True, editable=False, help_text="When it did last."
    )

    class Meta:
        constraints = [
            # The principal comes first, because an inbox looks for those of its person.
            models.UniqueConstraint(
                fields=["principal", "request"], name="request_reviewer_principal"
            )
        ]
        # Each list has its own, in its order.
        indexes = [
            models.Index(
                fields=["principal", "deadline", "opened_at", "request"],
                name="reviewer_inbox",
                condition=models.Q(waits=True),
            ),
            models.Index(
                fields=["principal", "opened_at", "request"],
                name="reviewer_waiting",
                condition=models.Q(waits=True),
            ),
            models.Index(
                fields=["principal", "graph", "opened_at", "request"],
                name="reviewer_waiting_of_graph",
                condition=models.Q(waits=True),
            ),
            models.Index(
                fields=["principal", "-opened_at", "-request"],
                name="reviewer_expired",
                condition=models.Q(expired=True),
            ),
            models.Index(
                fields=["principal", "-run_created_at", "-run"],
                name="reviewer_runs",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=["principal", "run_status", "-run_created_at", "-run"],
                name="reviewer_runs_of_status",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=["principal", "run_graph", "-run_created_at", "-run"],
                name="reviewer_runs_of_graph",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=[
                    "principal",
                    "run_graph",
                    "run_status",
                    "-run_created_at",
                    "-run",
                ],
                name="reviewer_runs_of_both",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(fields=["run", "principal"], name="reviewer_of_run"),
            # Those among whom a new request of the run is listed, and the runs of those
            # who are not.
            models.Index(
                fields=["run", "by_run"],
                name="reviewer_first_of_run",
                condition=models.Q(run_status__isnull=False),
            ),
            models.Index(
                fields=["principal", "run"],
                name="reviewer_by_run",
                condition=models.Q(by_run=True),
            ),
            models.Index(fields=["principal", "-changed_at"], name="reviewer_changes"),
            models.Index(
                # The condition keeps it apart: PostgreSQL would read it instead of that
                # of a principal.
                fields=["-changed_at"],
                name="reviewer_newest",
                condition=models.Q(changed_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.principal
