"""Tokens and answered requests in the Django admin: read-only, but tokens can be
revoked.
"""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from checkpoints.admin.rows import ReadOnlyRows
from orchestrator import tokens
from orchestrator.models import ApiToken, BulkFork, BulkForkResult, IdempotencyRecord


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyRows):
    """Tokens. Users who may change them may revoke them; they are not changed
    otherwise.
    """

    list_display = ("hint", "user", "name", "created_at", "expires_at", "revoked_at")
    list_select_related = ("user",)
    actions = ("revoke",)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("orchestrator.change_apitoken"))

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """End these tokens now."""
        # One by one, for each leaves a line in the audit log.
        for row in queryset.filter(revoked_at=None):
            tokens.revoke_token(row)


@admin.register(IdempotencyRecord)
class IdempotencyRecordAdmin(ReadOnlyRows):
    """Answered requests. The answer is JSON, not a packed payload, and is not shown."""

    list_display = ("user", "method", "path", "status", "created_at")
    list_select_related = ("user",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ("user", "method", "path", "key", "body_hash", "status", "created_at")

    get_readonly_fields = get_fields


@admin.register(BulkFork)
class BulkForkAdmin(ReadOnlyRows):
    list_display = ("id", "by", "at")
    list_select_related = ("by",)


@admin.register(BulkForkResult)
class BulkForkResultAdmin(ReadOnlyRows):
    list_display = ("bulk_id", "origin", "fork", "code", "at")
    search_fields = ("=origin", "=fork")


def close_queue_admin() -> None:
    """Remove django-q2's own pages from the admin: they run any function by its name.
    Does nothing if its cluster is not ours alone.
    """
    cluster = getattr(settings, "Q_CLUSTER", {})
    if cluster.get("broker_class") != "orchestrator.worker.broker.RunBroker":
        return
    for model in apps.get_app_config("django_q").get_models():
        if admin.site.is_registered(model):
            admin.site.unregister(model)


close_queue_admin()
