"""Legal holds and pins in the Django admin: given, listed by the key of their run, and released by their number."""

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from checkpoints import clean_up_pages, retention, timeline
from checkpoints.models import Checkpoint, LegalHold, Pin, Run
from checkpoints.models.legal_hold import LONGEST_REASON
from checkpoints.policy_admin import ManagedRows, ModelForm
from checkpoints.retention.holds import require_not_being_erased
from orchestrator.engine.errors import CountersignError, UnknownThing, WrongStatus


def _wide_text() -> forms.TextInput:
    return forms.TextInput(attrs={"class": "vTextField"})


class HoldForm(ModelForm):
    """A run by its key or id, and why nothing of it may go."""

    run = forms.CharField(max_length=200, label="Key or id of the run", widget=_wide_text())
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
        try:
            require_not_being_erased(found)
        except WrongStatus as error:
            raise ValidationError(f"{error.message[:1].upper()}{error.message[1:]}.") from error
        return found


class PinForm(ModelForm):
    """A checkpoint by its alias or id, and why it stays."""

    checkpoint = forms.CharField(
        max_length=250,
        label="Checkpoint",
        help_text="By its alias, as CLM-118894:at-4 on the page of its run, or by its id.",
        widget=_wide_text(),
    )
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


class LastingFilter(admin.SimpleListFilter):
    """Rows that still count, or those that ended."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("lasting", "Lasting"), ("released", "Released")]

    def queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> "QuerySet[Any]":
        wanted = {"lasting": True, "released": False}.get(self.value() or "")
        return queryset if wanted is None else queryset.filter(released_at__isnull=wanted)


class KeptRows(ManagedRows):
    """Rows that are added, and released, and never changed. A row is called by the key of its run, with `run_key` and
    `seq` from one query for all.
    """

    ending = ended = ""
    """What the page before a release is called, and what is said after it."""
    given: tuple[str, ...] = ()
    """The fields of a new row."""

    actions = ("release",)
    list_filter = (LastingFilter,)
    list_select_related = ("by", "released_by")

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """With the key of each run that is there."""
        key = Run.objects.filter(id=OuterRef("run")).order_by().values("key")[:1]
        rows: QuerySet[Any] = super().get_queryset(request).annotate(run_key=Subquery(key))
        return rows

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Any]", search_term: str
    ) -> "tuple[QuerySet[Any], bool]":
        """By the key of a run too."""
        found, twice = super().get_search_results(request, queryset, search_term)
        if text := search_term.strip().replace("\x00", ""):
            found = found | queryset.filter(run__in=Run.objects.filter(key=text).order_by().values("id"))
        return found, twice

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return ("of_run", "reason", "by", "at", "released_at", "released_by") if obj else self.given

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.get_fields(request, obj) if obj else ()

    @admin.display(description="run")
    def of_run(self, row: Any) -> Any:
        """A link to the row of the run."""
        if not row.run_key:
            return row.run
        return format_html('<a href="{}">{}</a>', reverse("admin:checkpoints_run_change", args=[row.run]), row.run_key)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """What stands against a row since its form was checked is said above an empty one."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except CountersignError as error:
            messages.error(request, f"Nothing was changed: {error.message}.")
            return redirect(request.get_full_path())

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_release_permission(self, request: HttpRequest) -> bool:
        return self._manages(request)

    def _tell_ended(self, request: HttpRequest, count: int, which: str) -> None:
        messages.success(request, self.ended.format(count, which))

    def _confirmed(self, request: HttpRequest, rows: "QuerySet[Any]") -> HttpResponse | str:
        """Why these rows are to end, if somebody said so and how many they are; else the page that asks for both."""
        form = ReleaseForm(request.POST if "confirmed" in request.POST else None, count=rows.count())
        if form.is_valid():
            return str(form.cleaned_data["reason"])
        shown = {**self.admin_site.each_context(request), "title": self.ending, "form": form, "opts": self.opts}
        shown |= {
            "rows": rows[: self.list_per_page],
            "back": request.get_full_path(),
            "chosen": request.POST.getlist("_selected_action"),
        }
        shown["across"] = request.POST.get("select_across", "0")
        status = 422 if form.is_bound else 200
        return TemplateResponse(request, f"{clean_up_pages.FOLDER}/release.html", shown, status=status)


@admin.register(LegalHold)
class LegalHoldAdmin(KeptRows):
    """Runs of which nothing may go."""

    form = HoldForm
    ending, ended = "Release legal holds?", "{} legal {} released."
    given = ("run", "reason")
    list_display = ("held_run", "reason", "by", "at", "released_at", "released_by")
    search_fields = ("=run", "reason")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Put the run under a hold."""
        given = form.cleaned_data
        obj.pk = retention.hold(given["run"], given["reason"], by=request.user).pk

    @admin.display(description="run", ordering="run")
    def held_run(self, row: LegalHold) -> str:
        """The key of the run, or its id where the run is gone."""
        return str(getattr(row, "run_key", None) or row.run)

    @admin.action(description="Release these holds", permissions=["release"])
    def release(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """End these holds, once their number is typed and a reason given."""
        reason = self._confirmed(request, rows := queryset.filter(released_at=None))
        if not isinstance(reason, str):
            return reason
        count = sum(retention.release_hold(row.pk, by=request.user, reason=reason) for row in rows)
        self._tell_ended(request, count, "hold was" if count == 1 else "holds were")
        return None


@admin.register(Pin)
class PinAdmin(KeptRows):
    """Checkpoints that stay."""

    form = PinForm
    ending, ended = "Unpin checkpoints?", "{} {} unpinned."
    given = ("checkpoint", "reason")
    list_display = ("point", "reason", "by", "at", "released_at", "released_by")
    search_fields = ("=run", "=checkpoint", "reason")

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Pin the checkpoint."""
        given = form.cleaned_data
        obj.pk = retention.pin(given["checkpoint"], by=request.user, reason=given["reason"]).pk

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """With the number of each checkpoint."""
        seq = Checkpoint.objects.filter(id=OuterRef("checkpoint")).order_by().values("seq")[:1]
        rows: QuerySet[Any] = super().get_queryset(request).annotate(seq=Subquery(seq))
        return rows

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = super().get_fields(request, obj)
        return ("point", *shown) if obj else shown

    @admin.display(description="checkpoint", ordering="checkpoint")
    def point(self, row: Pin) -> str:
        """The alias of the checkpoint."""
        return row.point

    @admin.action(description="Unpin", permissions=["release"])
    def release(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Take these pins away, once their number is typed and a reason given."""
        reason = self._confirmed(request, rows := queryset.filter(released_at=None))
        if not isinstance(reason, str):
            return reason
        count = sum(retention.unpin(row.checkpoint, by=request.user, reason=reason) for row in rows)
        self._tell_ended(request, count, "checkpoint was" if count == 1 else "checkpoints were")
        return None
