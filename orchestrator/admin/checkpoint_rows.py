"""Checkpoints in the Django admin: each in words, with links to its run and to the
actions on it.
"""

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from checkpoints.admin.rows import GraphFilter, ReadOnlyRows
from checkpoints.models import Checkpoint, Pin, Run
from orchestrator.admin.buttons import checkpoint_buttons

WORDS = ("of_run", "position", "saved", "what_ran", "set_channels", "size", "pinned")


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnlyRows):
    """Checkpoints of all runs, the newest first."""

    change_form_template = "admin/checkpoints/checkpoint/change_form.html"
    list_display = (
        "alias",
        "superstep",
        "line",
        "source",
        "committed",
        "kept",
        "size",
        "created_at",
        "in_console",
    )
    list_filter = ("source", GraphFilter)
    search_run = "run"

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows with the keys of their runs. A fork that a store made has no
        run before it is resumed.
        """
        runs = Run.objects.filter(id=OuterRef("run_id")).order_by()
        key = Subquery(runs.values("key")[:1])
        rows: QuerySet[Any] = super().get_queryset(request).annotate(run_key=key)
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
        """Return the alias, with the id of the run instead of the key for a fork that a
        store made and nobody has resumed.
        """
        # By its number, for the alias of a superstep moves to each newer row of it.
        return f"{_key(point)}:at-{point.seq}"

    @admin.display(description="console")
    def in_console(self, point: Checkpoint) -> SafeString:
        """Return a link to the run at this checkpoint."""
        address = f"{reverse('run', args=[point.run_id])}?at={point.seq}"
        return format_html('<a href="{}">Open {}</a>', address, self.alias(point))

    @admin.display(description="run")
    def of_run(self, point: Checkpoint) -> SafeString:
        """Return a link to the row of the run."""
        address = reverse("admin:checkpoints_run_change", args=[point.run_id])
        return format_html('<a href="{}">{}</a>', address, _key(point))

    @admin.display(description="position")
    def position(self, point: Checkpoint) -> str:
        """Return the checkpoint's position in the timeline."""
        return (
            f"Number {point.seq:,}, superstep {point.superstep:,}, line {point.line:,}"
        )

    @admin.display(description="saved")
    def saved(self, point: Checkpoint) -> str:
        """Return when and why the checkpoint was saved."""
        source = point.get_source_display()
        text = f"{source}, {point.created_at:%Y-%m-%d %H:%M:%S} (UTC)"
        if not point.kept:
            text += "; the next commit replaces it"
        return text

    @admin.display(description="what ran")
    def what_ran(self, point: Checkpoint) -> str:
        """Return the nodes of the checkpoint's superstep with their outcomes."""
        nodes: list[str] = []
        for entry in point.nodes:
            nodes.append(f"{entry['node']} ({entry.get('outcome', '')})")
        return ", ".join(nodes) or "nothing"

    @admin.display(description="what it set")
    def set_channels(self, point: Checkpoint) -> str:
        """Return the channels that the checkpoint changed."""
        return ", ".join(point.changed) or "nothing"

    @admin.display(description="size", ordering="stored_size")
    def size(self, point: Checkpoint) -> str:
        """Return the stored size of the checkpoint."""
        return filesizeformat(point.stored_size)

    @admin.display(description="pinned")
    def pinned(self, point: Checkpoint) -> str:
        """Return who pinned the checkpoint, when and why."""
        pins = Pin.objects.filter(checkpoint=point.id, released_at=None)
        pin = pins.select_related("by").first()
        if pin is None:
            return "no"
        by = pin.by.get_username() if pin.by else "the system"
        return f"by {by}, {pin.at:%Y-%m-%d}: {pin.reason}"


def _key(point: Checkpoint) -> str:
    return str(getattr(point, "run_key", None) or point.run_id)
