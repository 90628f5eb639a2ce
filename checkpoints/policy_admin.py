"""Policies, legal holds and pins in the Django admin. Looking needs a view permission, everything else
`checkpoints.manage_retention`.
"""

from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from checkpoints import audit_log, clean_up_pages, retention, timeline
from checkpoints.core.status import Status
from checkpoints.models import LegalHold, Pin, RetentionPolicy, Run
from checkpoints.models.legal_hold import LONGEST_REASON
from checkpoints.retention import prune_job
from checkpoints.retention.rule import MOST_DAYS, REMOVABLE
from orchestrator.engine.errors import CountersignError, UnknownThing

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
    ModelForm = forms.ModelForm[Any]
else:
    Base, ModelForm = admin.ModelAdmin, forms.ModelForm  # generic in their stubs only

COUNT = "_count"
"""The name of the button that counts what the policy would remove as it is typed, and saves nothing."""
AGED = [status for status in Status if status != Status.TAMPERED]
"""Statuses that may have an age."""


def _days(label: str) -> forms.FloatField:
    return forms.FloatField(required=False, min_value=0, max_value=MOST_DAYS, label=label)


class PolicyForm(ModelForm):
    """A policy with a field for the days of each status."""

    class Meta:
        model = RetentionPolicy
        fields = ("graph", "keep_last", "archive")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for prefix, column, _ in COLUMNS:
            for status, days in (getattr(self.instance, column) or {}).items():
                self.initial[f"{prefix}_{status}"] = days
        if "keep_last" in self.fields:
            self.fields["keep_last"].widget.attrs["min"] = 0

    def clean(self) -> dict[str, Any]:
        """As a policy keeps it: the days by status."""
        given = super().clean() or {}
        for prefix, column, statuses in COLUMNS:
            days = {str(status): given.get(f"{prefix}_{status}") for status in statuses}
            setattr(self.instance, column, {status: found for status, found in days.items() if found is not None})
        if (given.get("keep_last") or 0) < 0:
            self.add_error("keep_last", "This is a number from 0 on.")
        return given


COLUMNS = (
    ("age", "max_age_days", AGED),
    ("whole", "remove_runs_after_days", sorted(REMOVABLE)),
)
"""Fields of the form: the beginning of their names, the column that they fill, and the statuses."""
for _prefix, _column, _statuses in COLUMNS:
    for _status in _statuses:
        PolicyForm.declared_fields[f"{_prefix}_{_status}"] = _days(f"{_status}, days")


def can_be_held(value: str) -> bool:
    """Whether a database can compare a number, or each of several with commas between. Text is for Django to judge."""
    for part in value.split(","):
        try:
            if abs(int(part)) >= 2**63:
                return False
        except ValueError:
            continue
    return True


class OnlyCounted:
    """A form of which nothing is saved: the page is shown again, with what was typed and what that would remove."""

    def is_valid(self) -> bool:
        """False, once its fields were read."""
        super().is_valid()  # type: ignore[misc]
        return False


class ManagedRows(Base):
    """Rows that stewards manage and others who may see them look at."""

    actions: Any = ()

    def _manages(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(prune_job.PERMISSION))

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Not by numbers that no column can hold."""
        return can_be_held(str(value)) and super().lookup_allowed(lookup, value, request)

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


def _tell(kind: str, policy: RetentionPolicy, by: Any) -> None:
    names = ("graph", "keep_last", "max_age_days", "remove_runs_after_days", "archive")
    audit_log.record(kind, actor=by, **{name: getattr(policy, name) for name in names})


@admin.register(RetentionPolicy)
class RetentionPolicyAdmin(ManagedRows):
    """How long the history of each graph is kept, and what that would remove today."""

    form = PolicyForm
    change_list_template = f"{clean_up_pages.FOLDER}/change_list.html"
    change_form_template = f"{clean_up_pages.FOLDER}/change_form.html"
    list_display = ("graph", "keep_last", "max_age_days", "remove_runs_after_days", "archive", "clean_up")
    search_fields = ("graph",)
    readonly_fields = ("removes_today",)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        ages = tuple(f"age_{status}" for status in AGED)
        whole = tuple(f"whole_{status}" for status in COLUMNS[1][2])
        if not self._manages(request):
            ages, whole = ("max_age_days",), ("remove_runs_after_days",)
        return (
            (None, {"fields": ("graph", "keep_last", "archive", "removes_today")}),
            (
                "Checkpoints go when they are older than so many days, by the status of their run",
                {"fields": ages, "description": "Give failures more days to keep them longer. Empty: no age."},
            ),
            ("Runs go as a whole so many days after they ended or stopped", {"fields": whole}),
        )

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """The form; where only a count was asked for, one that is not saved."""
        form: Any = super().get_form(request, obj, change, **kwargs)
        return type(form)("CountedForm", (OnlyCounted, form), {}) if COUNT in request.POST else form

    def get_urls(self) -> Any:
        return [*clean_up_pages.pages_of(self.admin_site), *super().get_urls()]

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._manages(request)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save it, with a line in the audit log, and say what it would remove today."""
        super().save_model(request, obj, form, change)
        _tell("retention_policy_saved", obj, request.user)
        messages.info(request, f"{self.removes_today(obj)}.")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete it, with a line in the audit log."""
        _tell("retention_policy_deleted", obj, request.user)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """Delete all that were chosen."""
        for row in queryset:
            self.delete_model(request, row)

    @admin.display(description="would remove today")
    def removes_today(self, row: RetentionPolicy) -> str:
        """The count of a dry run, made now: of what is typed, where the form is shown again."""
        if not row.graph:
            return "type a graph and rules, and count"
        try:
            found = retention.dry_run(row)
        except CountersignError as error:
            return f"The policy says nothing clear: {error.message}"
        return f"{clean_up_pages.words_of(found)}, {filesizeformat(found.bytes)}".replace("\xa0", " ")

    @admin.display(description="clean up")
    def clean_up(self, row: RetentionPolicy) -> SafeString:
        """Where its dry run is."""
        return format_html('<a href="{}">Dry run</a>', reverse("admin:clean_up_dry_run", args=[row.pk]))


class HoldForm(ModelForm):
    """A run by its key or id, and why nothing of it may go."""

    run = forms.CharField(max_length=200, label="Key or id of the run")
    reason = forms.CharField(max_length=LONGEST_REASON, widget=forms.Textarea(attrs={"rows": 3}))

    class Meta:
        model = LegalHold
        fields = ("reason",)

    def clean_run(self) -> Any:
        """The id of the run."""
        text = self.cleaned_data["run"]
        try:
            named = {"id": UUID(text)}
        except ValueError:
            named = {"key": text}
        found = Run.objects.filter(**named).values_list("id", flat=True).first()
        if found is None:
            raise ValidationError("There is no run of that key or id.")
        return found


class PinForm(ModelForm):
    """A checkpoint by its alias or id, and why it stays."""

    checkpoint = forms.CharField(max_length=250, label="Alias or id of the checkpoint")
    reason = forms.CharField(max_length=LONGEST_REASON, required=False, widget=forms.Textarea(attrs={"rows": 3}))

    class Meta:
        model = Pin
        fields = ("reason",)

    def clean_checkpoint(self) -> Any:
        """The id of the checkpoint."""
        try:
            return timeline.get_checkpoint(self.cleaned_data["checkpoint"]).id
        except UnknownThing as error:
            raise ValidationError(error.message) from error


class ReleaseForm(forms.Form):
    """What confirms that holds or pins end: how many, typed, and why."""

    typed = forms.IntegerField(
        min_value=1, label="Number", widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"})
    )
    reason = forms.CharField(max_length=LONGEST_REASON, widget=forms.Textarea(attrs={"rows": 3}))

    def __init__(self, given: Any, *, count: int) -> None:
        super().__init__(given)
        self.count = count

    def clean_typed(self) -> int:
        """The number of those that would end now."""
        if self.cleaned_data["typed"] != self.count:
            raise ValidationError(f"This is not the number: {self.count} would end now.")
        return self.count


class KeptRows(ManagedRows):
    """Rows that are added, and released, and never changed."""

    ending = ""
    """What the page before a release is called."""

    actions = ("release",)
    list_filter = (("released_at", admin.EmptyFieldListFilter),)
    list_select_related = ("by", "released_by")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        names = [field.name for field in self.model._meta.concrete_fields]
        return names if obj else list(self.form.base_fields)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.get_fields(request, obj) if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_release_permission(self, request: HttpRequest) -> bool:
        return self._manages(request)

    def _confirmed(self, request: HttpRequest, rows: "QuerySet[Any]") -> HttpResponse | str:
        """Why these rows are to end, if somebody said so and how many they are; else the page that asks for both."""
        form = ReleaseForm(request.POST if "confirmed" in request.POST else None, count=rows.count())
        if form.is_valid():
            return str(form.cleaned_data["reason"])
        shown = {**self.admin_site.each_context(request), "title": self.ending, "form": form, "opts": self.opts}
        shown |= {"rows": rows[: self.list_per_page], "chosen": request.POST.getlist("_selected_action")}
        shown["across"] = request.POST.get("select_across", "0")
        status = 422 if form.is_bound else 200
        return TemplateResponse(request, f"{clean_up_pages.FOLDER}/release.html", shown, status=status)


@admin.register(LegalHold)
class LegalHoldAdmin(KeptRows):
    """Runs of which nothing may go."""

    form = HoldForm
    ending = "Release legal holds?"
    list_display = ("run", "reason", "by", "at", "released_at", "released_by")
    search_fields = ("=run", "reason")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Put the run under a hold."""
        given = form.cleaned_data
        obj.pk = retention.hold(given["run"], given["reason"], by=request.user).pk

    @admin.action(description="Release these holds", permissions=["release"])
    def release(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """End these holds, once their number is typed and a reason given."""
        reason = self._confirmed(request, rows := queryset.filter(released_at=None))
        if not isinstance(reason, str):
            return reason
        for row in rows:
            retention.release_hold(row.pk, by=request.user, reason=reason)
        return None


@admin.register(Pin)
class PinAdmin(KeptRows):
    """Checkpoints that stay."""

    form = PinForm
    ending = "Unpin checkpoints?"
    list_display = ("checkpoint", "run", "reason", "by", "at", "released_at", "released_by")
    search_fields = ("=run", "=checkpoint", "reason")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Pin the checkpoint."""
        given = form.cleaned_data
        obj.pk = retention.pin(given["checkpoint"], by=request.user, reason=given["reason"]).pk

    @admin.action(description="Unpin", permissions=["release"])
    def release(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Take these pins away, once their number is typed and a reason given."""
        reason = self._confirmed(request, rows := queryset.filter(released_at=None))
        if not isinstance(reason, str):
            return reason
        for row in rows:
            retention.unpin(row.checkpoint, by=request.user, reason=reason)
        return None
