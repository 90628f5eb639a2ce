"""The lists of all requests in which a request stands."""

from django.db import models

from approvals.models.request import ApprovalRequest


class RequestViewer(models.Model):
    """A principal whose list of all requests has this one, because a request of its run
    names them, or because they started the run. Instead of a principal it may name the
    run, for those who were named when it had already named many. Rows are never
    changed, so that these lists cost a decision nothing.

    Rights are judged by the run, whatever stands here: see `approvals.visible_requests`.
    The rows are made by triggers: see `approvals.list_columns`.
    """

    id = models.BigAutoField(primary_key=True)
    # No index for the request alone: `request_viewer` begins with it.
    request = models.ForeignKey(
        ApprovalRequest,
        on_delete=models.CASCADE,
        related_name="viewers",
        db_index=False,
    )
    principal = models.CharField(
        max_length=200,
        help_text="As of a reviewer, or starter:<id of the account>, or run:<id>",
    )
    graph = models.CharField(max_length=200)
    opened_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["request", "principal"], name="request_viewer"
            )
        ]
        indexes = [
            models.Index(
                fields=["principal", "-opened_at", "-request"], name="viewer_requests"
            ),
            models.Index(
                fields=["principal", "graph", "-opened_at", "-request"],
                name="viewer_requests_of_graph",
            ),
        ]

    def __str__(self) -> str:
        return self.principal
