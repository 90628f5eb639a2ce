"""Runs in the Django admin: each in words, with the rows that hang on it and links to
the actions on it.
"""

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
from checkpoints.admin.rows import GraphFilter, ReadOnlyRows
from checkpoints.models import Checkpoint, LegalHold, PendingWrite, Run
from orchestrator.admin.buttons import act_address, run_buttons
from orchestrator.admin.run_acts import ACTS, MOST, act_on_runs
from orchestrator.display.labels import STATUS
from orchestrator.display.run_names import run_name

NEWEST = 20
"""The number of rows of each kind on the page of a run, which links to the others."""
WORDS = (
    "state",
    "graph_and_version",
    "where",
    "people",
    "times",
    "lineage",
    "holds",
)
"""The fields that describe a run in words."""
POINT_COLUMNS = (
    "id",
    "seq",
    "superstep",
    "line",
    "source",
    "created_at",
    "stored_size",
    "kept",
)
WRITE_COLUMNS = (
    "id",
    "node",
    "visit",
    "index",
    "channel",
    "label",
    "revision",
    "reason",
    "staged_at",
)
REQUEST_COLUMNS = (
    "id",
    "node",
    "visit",
    "index",
    "status",
    "outcome",
    "writes",
    "opened_at",
    "deadline",
)
DECISION_COLUMNS = ("id", "task", "channel", "verdict", "by_name", "at")


@admin.register(Run)
class RunAdmin(ReadOnlyRows):
    """Runs. Actions lead to pages that show what would happen; nothing is decided from
    a list.
    """

    change_form_template = "admin/checkpoints/run/change_form.html"
    list_display = (
        "name",
        "graph",
        "state",
        "at_node",
        "superstep",
        "created_at",
        "in_console",
    )
    list_filter = ("status", GraphFilter)
    ordering = ("-created_at", "-id")
    search_run = "id"
    actions = (
        "open_reviews",
        "resume",
        "cancel",
        "fork_failed",
        "pin_newest",
        "put_on_hold",
        "export_bundles",
        "erase",
    )

    def get_urls(self) -> Any:
        page = self.admin_site.admin_view(act_on_runs)
        return [path("act/<str:act>/", page, name="runs_act"), *super().get_urls()]

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
        """Add buttons and the newest rows that hang on the run: columns alone, one
        query for each table.
        """
        run = context.get("original")
        if run is not None:
            context |= {
                "title": run_name(run),
                "subtitle": None,
                "buttons": run_buttons(run, request.user),
                **_newest_rows(run, request.user),
            }
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="run", ordering="-created_at")
    def name(self, run: Run) -> str:
        """Return label and key."""
        return run_name(run)

    @admin.display(description="status", ordering="status")
    def state(self, run: Run) -> str:
        """Return the status by its name on pages."""
        return STATUS[run.status].label  # type: ignore[index]

    @admin.display(description="console")
    def in_console(self, run: Run) -> SafeString:
        """Return a link to the page of the run, or to the review that it waits for."""
        if run.status == "paused":
            review = reverse("review", args=[run.id])
            return format_html(
                '<a href="{}">Open the review of {}</a>', review, run.key
            )
        page = reverse("run", args=[run.id])
        return format_html('<a href="{}">Open {}</a>', page, run.key)

    @admin.display(description="graph")
    def graph_and_version(self, run: Run) -> SafeString:
        """Return graph and version, with a link to the graph's page."""
        address = reverse("graph", args=[run.graph])
        link = '<a href="{}">{}</a>, version {}'
        return format_html(link, address, run.graph, run.version)

    @admin.display(description="where it stands")
    def where(self, run: Run) -> str:
        """Return superstep and node, newest checkpoint and line."""
        node = f" at {run.at_node}" if run.at_node else ""
        newest = f"newest checkpoint {run.head_seq:,}, line {run.line:,}"
        return f"Superstep {run.superstep:,}{node}, {newest}"

    @admin.display(description="people")
    def people(self, run: Run) -> str:
        """Return who started the run, and for whom."""
        by = run.started_by.get_username() if run.started_by else "the system"
        if not run.on_behalf_of:
            return f"Started by {by}"
        return f"Started by {by} on behalf of {run.on_behalf_of.get_username()}"

    @admin.display(description="times")
    def times(self, run: Run) -> str:
        """Return when the run was created, and when it ended."""
        ended = f", ended {run.ended_at:%Y-%m-%d %H:%M}" if run.ended_at else ""
        return f"Created {run.created_at:%Y-%m-%d %H:%M}{ended} (UTC)"

    @admin.display(description="came from")
    def lineage(self, run: Run) -> Any:
        """Return a link to the checkpoint that the run was forked from, or to the run
        that started it.
        """
        if run.parent_run:
            parent = reverse("admin:checkpoints_run_change", args=[run.parent_run])
            link = '<a href="{}">the run that started it</a>, task {}'
            return format_html(link, parent, run.parent_task)
        if run.origin_checkpoint:
            origin = reverse(
                "admin:checkpoints_checkpoint_change", args=[run.origin_checkpoint]
            )
            link = '<a href="{}">the checkpoint that it was forked from</a>'
            return format_html(link, origin)
        return "started by itself"

    @admin.display(description="kept")
    def holds(self, run: Run) -> str:
        """Return how many legal holds keep the run."""
        count = LegalHold.objects.filter(run=run.id, released_at=None).count()
        if count == 0:
            return "no legal hold"
        if count == 1:
            return "1 legal hold"
        return f"{count:,} legal holds"

    def has_steer_permission(self, request: HttpRequest) -> bool:
        return permissions.may(request.user, "steer_run")

    def has_keep_permission(self, request: HttpRequest) -> bool:
        return permissions.may(request.user, "manage_retention")

    def has_export_permission(self, request: HttpRequest) -> bool:
        return permissions.may(request.user, "export_run")

    @admin.action(description="Open reviews", permissions=["view"])
    def open_reviews(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the review of one run, or to a page with several reviews."""
        # Two rows are enough to see that it isn't one.
        rows = list(queryset[:2])
        if len(rows) == 1:
            return redirect("review", rows[0].id)
        return self._redirect_to_act(request, "review", queryset)

    @admin.action(description="Resume…", permissions=["steer"])
    def resume(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the page that resumes runs."""
        return self._redirect_to_act(request, "resume", queryset)

    @admin.action(description="Cancel…", permissions=["steer"])
    def cancel(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the page that cancels runs."""
        return self._redirect_to_act(request, "cancel", queryset)

    @admin.action(description="Fork failed runs…", permissions=["steer"])
    def fork_failed(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the dry run of forking the failed runs."""
        return self._redirect_to_act(request, "fork", queryset)

    @admin.action(description="Pin newest checkpoints…", permissions=["keep"])
    def pin_newest(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the page that pins the newest checkpoint of each run."""
        return self._redirect_to_act(request, "pin", queryset)

    @admin.action(description="Put under a legal hold…", permissions=["keep"])
    def put_on_hold(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the page that puts runs under a legal hold."""
        return self._redirect_to_act(request, "hold", queryset)

    @admin.action(description="Export…", permissions=["export"])
    def export_bundles(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the page that exports runs as one file."""
        return self._redirect_to_act(request, "export", queryset)

    @admin.action(description="Erase values…", permissions=["keep"])
    def erase(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the page that shows what would be erased, and asks for the run's
        key: one run at a time.
        """
        # Two are enough to see that it is not one.
        keys = list(queryset.values_list("id", flat=True)[:2])
        if len(keys) == 1:
            return redirect("erase", keys[0])
        self.message_user(
            request,
            "Select one run: each is looked at before it is erased.",
            messages.WARNING,
        )
        return None

    def _redirect_to_act(
        self, request: HttpRequest, act: str, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Redirect to the page of an act with the selected runs; refuse too many."""
        # One more than is allowed is enough to see that there are too many.
        rows = list(queryset.only("id")[: MOST + 1])
        if len(rows) > MOST:
            self.message_user(request, f"Select at most {MOST} runs.", messages.WARNING)
            return None
        assert act in ACTS
        return redirect(act_address(act, *rows))


def _newest_rows(run: Run, user: Any) -> dict[str, Any]:
    """Return the newest rows that hang on a run, of the tables that this user may see.
    One query for each table.
    """
    points = Checkpoint.objects.filter(run=run.id).order_by("-seq")
    writes = PendingWrite.objects.filter(run=run.id).order_by("-id")
    requests = ApprovalRequest.objects.filter(run=run.id).order_by("-opened_at", "-id")
    decisions = Decision.objects.filter(run=run.id).order_by("-event_seq")
    # Rights are those of the tables' own pages in the admin.
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
