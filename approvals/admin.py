"""Rows of approvals in the Django admin: to look at, never to change."""

from django.contrib import admin

from approvals.models import ApprovalRequest, Decision, Receipt
from checkpoints.admin import ReadOnlyRows


@admin.register(ApprovalRequest)
class ApprovalRequestAdmin(ReadOnlyRows):
    """Requests, with the policy that each was opened under."""

    list_display = ("run_id", "graph", "task", "status", "outcome", "writes", "opened_at", "deadline")
    list_filter = ("status", "graph")
    search_fields = ("=run__key",)


@admin.register(Decision)
class DecisionAdmin(ReadOnlyRows):
    list_display = ("run", "task", "position", "channel", "verdict", "by_name", "at")
    list_filter = ("verdict",)


@admin.register(Receipt)
class ReceiptAdmin(ReadOnlyRows):
    list_display = ("id", "run_id", "by", "at")
    list_select_related = ("by",)
