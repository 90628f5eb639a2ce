"""Retention policies in the Django admin. Viewing needs a view permission, everything
else `checkpoints.manage_retention`.
"""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.db.models.query import ModelIterable
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString

from checkpoints import retention
from checkpoints.admin import clean_up as clean_up_pages
from checkpoints.admin.base import ModelForm, RowsOfRuns
from checkpoints.core.status import Status
from checkpoints.models import GraphVersion, RetentionPolicy, Run
from checkpoints.retention import policies
from checkpoints.retention.policy_schedules import Schedule
from checkpoints.retention.rule import MOST_DAYS, REMOVABLE
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.frozen import frozen

COUNT = "_count"
"""The name of the button that counts what the policy would remove as it is typed, and
saves nothing.
"""
AGED = [status for status in Status if status != Status.TAMPERED]
"""Statuses that may have an age."""
NOTES = {
    Status.WAITING: "Only threads of LangGraph, counted from their newest checkpoint."
}
CALLED = {Status.PAUSED: "needs review", Status.UNKNOWN: "outcome unknown"}
"""The names of statuses that pages call otherwise."""


def _days(label: str) -> forms.FloatField:
    return forms.FloatField(
        required=False, min_value=0, max_value=MOST_DAYS, label=label
    )


class PolicyForm(ModelForm):
    """A policy with a field for the days of each status."""

    class Meta:
        model = RetentionPolicy
        fields = ("graph", "keep_last", "archive", "switched_off", "most_a_night")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for prefix, column, _ in COLUMNS:
            for status, days in (getattr(self.instance, column) or {}).items():
                self.initial[f"{prefix}_{status}"] = _plain(days)
        if "keep_last" in self.fields:
            self.fields["keep_last"].widget.attrs["min"] = 0
        for prefix, _, statuses in COLUMNS:
            for status in statuses:
                self.fields[f"{prefix}_{status}"].widget.attrs["min"] = 0
        # Whoever may only look at a policy has no fields, and no use for the names.
        names = _graph_names() if "graph" in self.fields else []
        if names:
            self.fields["graph"].help_text = f"The name of a graph: {', '.join(names)}."

    def age_rows(self) -> "list[AgeRow]":
        """Return the fields of days as a table has them, a row a status."""
        return [
            AgeRow(
                _called(status).capitalize(),
                self[f"age_{status}"],
                self[f"whole_{status}"] if status in REMOVABLE else None,
                NOTES.get(status, ""),
            )
            for status in AGED
        ]

    def clean(self) -> dict[str, Any]:
        """Return the content, and set the days by status as a policy stores them."""
        cleaned = super().clean() or {}
        for prefix, column, statuses in COLUMNS:
            days_by_status = {}
            for status in statuses:
                days = cleaned.get(f"{prefix}_{status}")
                if days is not None:
                    days_by_status[str(status)] = days
            setattr(self.instance, column, days_by_status)
        if (cleaned.get("keep_last") or 0) < 0:
            self.add_error("keep_last", "This is a number from 0 on.")
        return cleaned


@frozen
class AgeRow:
    """The fields of one status. `whole_run` None: a run in that status can still
    go on. `note`: which runs the field for whole runs is about, if not about all.
    """

    status: str
    checkpoints: Any
    whole_run: Any
    note: str = ""


MOST_NAMED = 20
"""The most graphs that the form names."""


def _graph_names() -> list[str]:
    """Return some graphs that have had runs."""
    return list(
        GraphVersion.objects.order_by("name")
        .values_list("name", flat=True)
        .distinct()[:MOST_NAMED]
    )


def _plain(days: float) -> float:
    """Return a number of days without a fraction of zero."""
    return int(days) if days == int(days) else days


def _in_words(ages: dict[str, float]) -> str:
    """Return the days of each status in words."""
    parts = [f"{_called(status)}: {_plain(days)} days" for status, days in ages.items()]
    return ", ".join(parts) or "none"


def _called(status: str) -> str:
    return CALLED.get(status, status)  # type: ignore[call-overload,no-any-return]


COLUMNS = (
    ("age", "max_age_days", AGED),
    ("whole", "remove_runs_after_days", sorted(REMOVABLE)),
)
"""Fields of the form: the beginning of their names, the column that they fill, and the
statuses.
"""
_LABELS = {
    "age": "Days until checkpoints are removed",
    "whole": "Days until the whole run is removed",
}
for _prefix, _column, _statuses in COLUMNS:
    for _status in _statuses:
        # A form's class collects only the fields in its body, not one for each status.
        PolicyForm.declared_fields[f"{_prefix}_{_status}"] = _days(
            f"{_LABELS[_prefix]}, {_called(_status)}"
        )


class OnlyCounted:
    """A form that is never saved: the page is shown again, with the values that were
    typed and the count that they would remove.
    """

    def is_valid(self) -> bool:
        """Return False, after reading the fields."""
        # This sets the typed values on the policy, which the page then counts.
        super().is_valid()  # type: ignore[misc]
        return False


class ManagedRows(RowsOfRuns):
    """Rows that stewards manage, and that others with a view permission see."""

    actions: Any = ()

    def _manages(self, request: HttpRequest) -> bool:
        return clean_up_pages.may_act(request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._manages(request) or super().has_view_permission(request, obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._manages(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._manages(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


class WithSchedules(ModelIterable):  # type: ignore[type-arg]
    """Policies with their schedules, which are read for all of them at once."""

    def __iter__(self) -> Iterator[RetentionPolicy]:
        rows = list(super().__iter__())
        schedules = retention.schedules_of(rows)
        for row in rows:
            row.schedule = schedules[row.graph]
            yield row


def _schedule(row: RetentionPolicy) -> Schedule:
    """Return the schedules of a policy: as its list read them, else read now."""
    schedule: Schedule | None = getattr(row, "schedule", None)
    if schedule is None:
        return retention.schedules_of([row])[row.graph]
    return schedule


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(ManagedRows):
    """Policies of how long the history of each graph is kept, each with the count that
    it would remove today.
    """

    form = PolicyForm
    change_list_template = f"{clean_up_pages.FOLDER}/change_list.html"
    change_form_template = f"{clean_up_pages.FOLDER}/change_form.html"
    list_display = (
        "graph",
        "keep_last",
        "ages",
        "whole_runs",
        "last_turn",
        "next_turn",
        "clean_up",
    )
    search_fields = ("graph",)
    readonly_fields = ("removes_today", "ages", "whole_runs", "last_turn", "next_turn")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        rules: tuple[str, ...] = ("graph", "keep_last", "archive")
        by_itself = ("switched_off", "most_a_night")
        schedules = ("last_turn", "next_turn") if obj else ()
        if not self._manages(request):
            rules += ("ages", "whole_runs", "removes_today")
        return (
            (None, {"fields": rules}),
            ("By itself", {"fields": (*by_itself, *schedules)}),
        )

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the policies; the schedules of those that a page shows are read
        once.
        """
        rows: QuerySet[Any] = super().get_queryset(request)
        rows._iterable_class = WithSchedules
        return rows

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show one button that saves, and what the rules would remove beside the button
        that counts.
        """
        context |= {"show_save_and_add_another": False, "show_save_and_continue": False}
        if self._manages(request):
            context["removes_today"] = self.removes_today(
                context["adminform"].form.instance
            )
        return super().render_change_form(request, context, *args, **kwargs)

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        """Return the form; if the button that counts was pressed, one that is not
        saved.
        """
        form: Any = super().get_form(request, obj, change, **kwargs)
        if COUNT not in request.POST:
            return form
        return type(form)("CountedForm", (OnlyCounted, form), {})

    def get_urls(self) -> Any:
        return [*clean_up_pages.pages_of(self.admin_site), *super().get_urls()]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._manages(request)

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: bool
    ) -> None:
        """Save it, with a line in the audit log, and show what it would remove
        today.
        """
        policies.save_policy(obj, by=request.user)
        if not Run.objects.filter(graph=obj.graph).exists():
            messages.warning(
                request,
                f"There is no run of {obj.graph}: is this the name of the graph?",
            )
        messages.info(request, f"{self.removes_today(obj)}.")
        if retention.schedules_of([obj])[obj.graph].waits:
            address = reverse("admin:clean_up_dry_run", args=[obj.pk])
            sentence = (
                "It does not act by itself yet: "
                '<a href="{}">look at its dry run</a> and confirm it.'
            )
            messages.warning(request, format_html(sentence, address))

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete it, with a line in the audit log."""
        policies.delete_policy(obj, by=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """Delete all that were chosen."""
        # A deletion by the query itself would leave no line in the audit log.
        for row in queryset:
            self.delete_model(request, row)

    @admin.display(description="would remove today")
    def removes_today(self, row: RetentionPolicy) -> str:
        """Return the count of a dry run made now; when a posted form is shown again, of
        the values that were typed.
        """
        # A new policy's empty form asks for the count too.
        if not row.graph:
            return "Type a graph and its rules, then count."
        try:
            dry_run = retention.dry_run(row)
        except CountersignError as error:
            return f"These rules cannot be read: {error.message}"
        size = filesizeformat(dry_run.bytes)
        text = f"{clean_up_pages.words_of(dry_run)}, {size}"
        # Django puts a no-break space before the unit.
        return text.replace("\xa0", " ")

    @admin.display(description="last clean-up")
    def last_turn(self, row: RetentionPolicy) -> Any:
        """Return when history was removed last, and how much, with a link to the page
        of that job if it still exists.
        """
        schedule = _schedule(row)
        if schedule.last_at is None:
            return "never"
        moment = date_format(schedule.last_at, "Y-m-d H:i")
        words = f"{moment}, {schedule.last_checkpoints:,} checkpoints"
        if schedule.last_job is None:
            return words
        return format_html(
            '<a href="{}">{}</a>',
            reverse("admin:clean_up_job", args=[schedule.last_job]),
            words,
        )

    @admin.display(description="next by itself")
    def next_turn(self, row: RetentionPolicy) -> Any:
        """Return when the policy acts next, or why it does not."""
        schedule = _schedule(row)
        if schedule.waits:
            address = reverse("admin:clean_up_dry_run", args=[row.pk])
            return format_html(
                '<a href="{}">waits for you to confirm its dry run</a>', address
            )
        if row.switched_off:
            return "switched off"
        if schedule.next_at:
            return date_format(schedule.next_at, "Y-m-d H:i")
        return "when a worker is started"

    @admin.display(description="checkpoints go after")
    def ages(self, row: RetentionPolicy) -> str:
        """Return the age of checkpoints by the status of their run."""
        return _in_words(row.max_age_days or {})

    @admin.display(description="whole runs go after")
    def whole_runs(self, row: RetentionPolicy) -> str:
        """Return after how many days runs of a status are removed."""
        return _in_words(row.remove_runs_after_days or {})

    @admin.display(description="clean up")
    def clean_up(self, row: RetentionPolicy) -> SafeString:
        """Return a link to its dry run."""
        return format_html(
            '<a href="{}">Dry run</a>', reverse("admin:clean_up_dry_run", args=[row.pk])
        )
