"""Checkpoints in the Django admin: what each is in words, and links to its run and to what can be done from there."""

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from checkpoints.admin import GraphFilter, ReadOnlyRows
from checkpoints.models import Checkpoint, Pin, Run
from orchestrator.admin.buttons import checkpoint_buttons

WORDS = ("of_run", "position", "saved", "what_ran", "set_channels", "size", "pinned")


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnlyRows):
    """Checkpoints of all runs, the newest first."""

    change_form_template = "admin/checkpoints/checkpoint/change_form.html"
    list_display = ("alias", "superstep", "line", "source", "committed", "kept", "size", "created_at", "in_console")
    list_filter = ("source", GraphFilter)
    search_run = "run"

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows with the keys of their runs. A fork that a store made has no run before it is resumed."""
        key = Run.objects.filter(id=OuterRef("run_id")).order_by().values("key")[:1]
        rows: QuerySet[Any] = super().get_queryset(request).annotate(run_key=Subquery(key))
        return rows

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return (
            (None, {"fields": WORDS}),
            ("Stored row", {"fields": self.shown, "classes": ("collapse",)}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*WORDS, *self.shown)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the buttons."""
        point = context.get("original")
        if point is not None:
            context |= {
                "title": f"Checkpoint {self.alias(point)}",
                "subtitle": None,
                "buttons": checkpoint_buttons(point, request.user),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="checkpoint", ordering="-pk")
    def alias(self, point: Checkpoint) -> str:
        """Its alias; of a fork that a store made and nobody has resumed, the id of the run stands for the key."""
        return f"{_key(point)}:at-{point.seq}"

    @admin.display(description="console")
    def in_console(self, point: Checkpoint) -> SafeString:
        """A link to the run at this checkpoint."""
        address = f"{reverse('run', args=[point.run_id])}?at={point.seq}"
        return format_html('<a href="{}">Open {}</a>', address, self.alias(point))

    @admin.display(description="run")
    def of_run(self, point: Checkpoint) -> SafeString:
        """A link to the row of the run."""
        return format_html(
            '<a href="{}">{}</a>', reverse("admin:checkpoints_run_change", args=[point.run_id]), _key(point)
        )

    @admin.display(description="position")
    def position(self, point: Checkpoint) -> str:
        """Its place in the timeline."""
        return f"Number {point.seq:,}, superstep {point.superstep:,}, line {point.line:,}"

    @admin.display(description="saved")
    def saved(self, point: Checkpoint) -> str:
        """When and why it was saved."""
        kept = "" if point.kept else "; the next commit replaces it"
        return f"{point.get_source_display()}, {point.created_at:%Y-%m-%d %H:%M:%S} (UTC){kept}"

    @admin.display(description="what ran")
    def what_ran(self, point: Checkpoint) -> str:
        """The nodes of its superstep."""
        return ", ".join(f"{node['node']} ({node.get('outcome', '')})" for node in point.nodes) or "nothing"

    @admin.display(description="what it set")
    def set_channels(self, point: Checkpoint) -> str:
        """The channels that it changed."""
        return ", ".join(point.changed) or "nothing"

    @admin.display(description="size", ordering="stored_size")
    def size(self, point: Checkpoint) -> str:
        """Bytes that it takes."""
        return filesizeformat(point.stored_size)

    @admin.display(description="pinned")
    def pinned(self, point: Checkpoint) -> str:
        """Who pinned it, when and why."""
        pin = Pin.objects.filter(checkpoint=point.id, released_at=None).select_related("by").first()
        if pin is None:
            return "no"
        by = pin.by.get_username() if pin.by else "the system"
        return f"by {by}, {pin.at:%Y-%m-%d}: {pin.reason}"


def _key(point: Checkpoint) -> str:
    return str(getattr(point, "run_key", None) or point.run_id)
