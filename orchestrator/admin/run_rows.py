"""Runs in the Django admin: what each is in words, what hangs on it, and links to all that can be done with it."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import permissions
from approvals.models import ApprovalRequest, Decision
from checkpoints.admin import GraphFilter, ReadOnlyRows
from checkpoints.models import Checkpoint, LegalHold, PendingWrite, Run
from orchestrator.admin.buttons import act_address, run_buttons
from orchestrator.admin.run_acts import ACTS, MOST, act_on_runs
from orchestrator.display.labels import STATUS
from orchestrator.display.run_names import run_name

NEWEST = 20
"""Rows of a kind that the page of a run shows; the others are a link away."""
POINT_COLUMNS = ("id", "seq", "superstep", "line", "source", "created_at", "stored_size", "kept")
WRITE_COLUMNS = ("id", "node", "visit", "index", "channel", "label", "revision", "reason", "staged_at")
REQUEST_COLUMNS = ("id", "node", "visit", "index", "status", "outcome", "writes", "opened_at", "deadline")
DECISION_COLUMNS = ("id", "task", "channel", "verdict", "by_name", "at")


@admin.register(Run)
class RunAdmin(ReadOnlyRows):
    """Runs. Actions lead to pages that show what would happen; nothing is decided from a list."""

    change_form_template = "admin/checkpoints/run/change_form.html"
    list_display = ("name", "graph", "state", "at_node", "superstep", "created_at", "in_console")
    list_filter = ("status", GraphFilter)
    ordering = ("-created_at", "-id")
    search_run = "id"
    actions = (
        "open_reviews", "resume", "cancel", "fork_failed", "pin_newest", "put_on_hold", "export_bundles", "erase",
    )  # fmt: skip

    def get_urls(self) -> Any:
        page = self.admin_site.admin_view(act_on_runs)
        return [path("act/<str:act>/", page, name="runs_act"), *super().get_urls()]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        words = ("state", "graph_and_version", "where", "people", "times", "lineage", "holds")
        return (
            (None, {"fields": words}),
            ("Stored row", {"fields": self.shown, "classes": ("collapse",)}),
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        words = ("state", "graph_and_version", "where", "people", "times", "lineage", "holds")
        return (*words, *self.shown)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add buttons and the newest rows that hang on the run: columns alone, a query a table."""
        run = context.get("original")
        if run is not None:
            context |= {
                "title": run_name(run),
                "subtitle": None,
                "buttons": run_buttons(run, request.user),
                **_newest(run, request.user),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="run", ordering="-created_at")
    def name(self, run: Run) -> str:
        """Label and key."""
        return run_name(run)

    @admin.display(description="status", ordering="status")
    def state(self, run: Run) -> str:
        """The status as pages call it."""
        return STATUS[run.status].label  # type: ignore[index]

    @admin.display(description="console")
    def in_console(self, run: Run) -> SafeString:
        """A link to the page of the run, or to its review where it waits for one."""
        if run.status == "paused":
            return format_html('<a href="{}">Open the review of {}</a>', reverse("review", args=[run.id]), run.key)
        return format_html('<a href="{}">Open {}</a>', reverse("run", args=[run.id]), run.key)

    @admin.display(description="graph")
    def graph_and_version(self, run: Run) -> SafeString:
        """Graph and version, with a link to the graph's page."""
        address = reverse("graph", args=[run.graph])
        return format_html('<a href="{}">{}</a>, version {}', address, run.graph, run.version)

    @admin.display(description="where it stands")
    def where(self, run: Run) -> str:
        """Superstep, node and number of checkpoints."""
        at = f" at {run.at_node}" if run.at_node else ""
        return f"Superstep {run.superstep:,}{at}, newest checkpoint {run.head_seq:,}, line {run.line:,}"

    @admin.display(description="people")
    def people(self, run: Run) -> str:
        """Who started it, and for whom."""
        by = run.started_by.get_username() if run.started_by else "the system"
        on_behalf = f" on behalf of {run.on_behalf_of.get_username()}" if run.on_behalf_of else ""
        return f"Started by {by}{on_behalf}"

    @admin.display(description="times")
    def times(self, run: Run) -> str:
        """When it was created, and when it ended."""
        ended = f", ended {run.ended_at:%Y-%m-%d %H:%M}" if run.ended_at else ""
        return f"Created {run.created_at:%Y-%m-%d %H:%M}{ended} (UTC)"

    @admin.display(description="came from")
    def lineage(self, run: Run) -> Any:
        """The run that it was forked from or that started it."""
        if run.parent_run:
            parent = reverse("admin:checkpoints_run_change", args=[run.parent_run])
            return format_html('<a href="{}">the run that started it</a>, task {}', parent, run.parent_task)
        if run.origin_checkpoint:
            origin = reverse("admin:checkpoints_checkpoint_change", args=[run.origin_checkpoint])
            return format_html('<a href="{}">the checkpoint that it was forked from</a>', origin)
        return "started by itself"

    @admin.display(description="kept")
    def holds(self, run: Run) -> str:
        """How many legal holds keep it."""
        count = LegalHold.objects.filter(run=run.id, released_at=None).count()
        return f"{count:,} legal hold{'' if count == 1 else 's'}" if count else "no legal hold"

    def has_steer_permission(self, request: HttpRequest) -> bool:
        return permissions.may(request.user, "steer_run")

    def has_keep_permission(self, request: HttpRequest) -> bool:
        return permissions.may(request.user, "manage_retention")

    def has_export_permission(self, request: HttpRequest) -> bool:
        return permissions.may(request.user, "export_run")

    @admin.action(description="Open reviews", permissions=["view"])
    def open_reviews(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the review of one run, or to a page with the reviews of several."""
        rows = list(queryset[:2])
        if len(rows) == 1:
            return redirect("review", rows[0].id)
        return self._led(request, "review", queryset)

    @admin.action(description="Resume…", permissions=["steer"])
    def resume(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the page that resumes runs."""
        return self._led(request, "resume", queryset)

    @admin.action(description="Cancel…", permissions=["steer"])
    def cancel(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the page that cancels runs."""
        return self._led(request, "cancel", queryset)

    @admin.action(description="Fork failed runs…", permissions=["steer"])
    def fork_failed(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the dry run of forking those that failed."""
        return self._led(request, "fork", queryset)

    @admin.action(description="Pin newest checkpoints…", permissions=["keep"])
    def pin_newest(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the page that pins the newest checkpoint of each run."""
        return self._led(request, "pin", queryset)

    @admin.action(description="Put under a legal hold…", permissions=["keep"])
    def put_on_hold(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the page that puts runs under a legal hold."""
        return self._led(request, "hold", queryset)

    @admin.action(description="Export…", permissions=["export"])
    def export_bundles(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the page that exports runs as one file."""
        return self._led(request, "export", queryset)

    @admin.action(description="Erase values…", permissions=["keep"])
    def erase(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the page that says what would be erased, and where the run's key is typed: one run at a time."""
        keys = list(queryset.values_list("id", flat=True)[:2])
        if len(keys) == 1:
            return redirect("erase", keys[0])
        self.message_user(request, "Select one run: each is looked at before it is erased.", messages.WARNING)
        return None

    def _led(self, request: HttpRequest, act: str, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Redirect to the page of an act with the selected runs; too many are refused."""
        rows = list(queryset.only("id")[: MOST + 1])
        if len(rows) > MOST:
            self.message_user(request, f"Select at most {MOST} runs.", messages.WARNING)
            return None
        assert act in ACTS
        return redirect(act_address(act, *rows))


def _newest(run: Run, user: Any) -> dict[str, Any]:
    """Return the newest rows that hang on a run, of the tables that this user may see. A query a table."""
    points = Checkpoint.objects.filter(run=run.id).order_by("-seq")
    writes = PendingWrite.objects.filter(run=run.id).order_by("-id")
    requests = ApprovalRequest.objects.filter(run=run.id).order_by("-opened_at", "-id")
    decisions = Decision.objects.filter(run=run.id).order_by("-event_seq")
    shown: dict[str, Any] = {}
    if user.has_perm("checkpoints.view_checkpoint"):
        shown["points"] = points.values(*POINT_COLUMNS)[:NEWEST]
    if user.has_perm("checkpoints.view_pendingwrite"):
        shown["writes"] = writes.values(*WRITE_COLUMNS)[:NEWEST]
    if user.has_perm("approvals.view_approvalrequest"):
        shown["requests"] = requests.values(*REQUEST_COLUMNS)[:NEWEST]
    if user.has_perm("approvals.view_decision"):
        shown["decisions"] = decisions.values(*DECISION_COLUMNS)[:NEWEST]
    return shown
