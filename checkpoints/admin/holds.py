"""Legal holds and pins in the Django admin: they are added, listed by the key of their
run, and released once their number is typed.
"""

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html

from checkpoints import retention, timeline
from checkpoints.admin import clean_up as clean_up_pages
from checkpoints.admin.base import CountField, ModelForm
from checkpoints.admin.policies import ManagedRows
from checkpoints.models import Checkpoint, LegalHold, Pin, Run
from checkpoints.models.legal_hold import LONGEST_REASON
from checkpoints.retention.holds import require_not_being_erased
from orchestrator.engine.errors import CountersignError, UnknownThing, WrongStatus


def _wide_text() -> forms.TextInput:
    return forms.TextInput(attrs={"class": "vTextField"})


REASON = forms.Textarea(attrs={"rows": 3})


class HoldForm(ModelForm):
    """A run by its key or id, and the reason why nothing of it may be removed."""

    run = forms.CharField(
        max_length=200, label="Key or id of the run", widget=_wide_text()
    )

    class Meta:
        model = LegalHold
        fields = ("reason",)
        widgets: ClassVar = {"reason": REASON}

    def clean_run(self) -> Any:
        """Return the id of the run."""
        text = self.cleaned_data["run"]
        try:
            named = {"id": UUID(text)}
        except ValueError:
            named = {"key": text}
        run_id = Run.objects.filter(**named).values_list("id", flat=True).first()
        if run_id is None:
            raise ValidationError("There is no run of that key or id.")
        try:
            # The verb refuses it too, but here the sentence stands beside its field.
            require_not_being_erased(run_id)
        except WrongStatus as error:
            raise ValidationError(
                f"{error.message[:1].upper()}{error.message[1:]}."
            ) from error
        return run_id


class PinForm(ModelForm):
    """A checkpoint by its alias or id, and the reason why it stays."""

    checkpoint = forms.CharField(
        max_length=250,
        label="Checkpoint",
        help_text=(
            "By its alias, as CLM-118894:at-4 on the page of its run, or by its id."
        ),
        widget=_wide_text(),
    )

    class Meta:
        model = Pin
        fields = ("reason",)
        widgets: ClassVar = {"reason": REASON}

    def clean_checkpoint(self) -> Any:
        """Return the id of the checkpoint."""
        try:
            return timeline.get_checkpoint(self.cleaned_data["checkpoint"]).id
        except UnknownThing as error:
            raise ValidationError(error.message) from error


class ReleaseForm(forms.Form):
    """The confirmation that holds or pins end: their number, typed, and a reason."""

    typed = CountField(min_value=1, label="Number")
    reason = forms.CharField(max_length=LONGEST_REASON, widget=REASON)

    def __init__(self, data: Any, *, count: int) -> None:
        super().__init__(data)
        self.count = count

    def clean_typed(self) -> int:
        """Return the number of those that would end now."""
        if self.cleaned_data["typed"] != self.count:
            raise ValidationError(
                f"This is not the number: {self.count} would end now."
            )
        return self.count


class LastingFilter(admin.SimpleListFilter):
    """A filter for rows that still count, or for those that ended."""

    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("lasting", "Lasting"), ("released", "Released")]

    def queryset(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> "QuerySet[Any]":
        lasting = {"lasting": True, "released": False}.get(self.value() or "")
        if lasting is None:
            return queryset
        return queryset.filter(released_at__isnull=lasting)


class KeptRows(ManagedRows):
    """Rows that are added, and released, and never changed. A row is named by the key
    of its run, with `run_key` and `seq` from one query for all.
    """

    ending = ""
    """The title of the page before a release."""
    ended = ("", "")
    """The message after a release of one row, and of several."""
    fields_of_new_row: tuple[str, ...] = ()

    actions = ("release",)
    list_filter = (LastingFilter,)
    search_run = "run"
    list_select_related = ("by", "released_by")

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows with the key of each run that exists."""
        key = Run.objects.filter(id=OuterRef("run")).order_by().values("key")[:1]
        rows: QuerySet[Any] = (
            super().get_queryset(request).annotate(run_key=Subquery(key))
        )
        return rows

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        if not obj:
            return self.fields_of_new_row
        return ("of_run", "reason", "by", "at", "released_at", "released_by")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.get_fields(request, obj) if obj else ()

    @admin.display(description="run")
    def of_run(self, row: Any) -> Any:
        """Return a link to the row of the run."""
        if not row.run_key:
            return row.run
        return format_html(
            '<a href="{}">{}</a>',
            reverse("admin:checkpoints_run_change", args=[row.run]),
            row.run_key,
        )

    def changeform_view(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Show above an empty form what prevents a new row only since its form was
        checked.
        """
        try:
            return super().changeform_view(request, *args, **kwargs)
        except CountersignError as error:
            messages.error(request, f"Nothing was changed: {error.message}.")
            return redirect(request.get_full_path())

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_release_permission(self, request: HttpRequest) -> bool:
        return self._manages(request)

    def _end(
        self,
        request: HttpRequest,
        chosen: "QuerySet[Any]",
        end: Callable[[Any, str], bool],
    ) -> HttpResponse | None:
        """End the rows that still last, once their number is typed and a reason given;
        until then show the page with the form for both.
        """
        # The list shows released rows too, and some may be among the chosen ones.
        rows = chosen.filter(released_at=None)
        data = request.POST if "confirmed" in request.POST else None
        form = ReleaseForm(data, count=rows.count())
        if form.is_valid():
            # Rows that another person ended meanwhile do not count.
            count = sum(end(row, form.cleaned_data["reason"]) for row in rows)
            of_one, of_several = self.ended
            message = of_one if count == 1 else of_several
            messages.success(request, message.format(count))
            return None
        return clean_up_pages.page(
            request,
            "release",
            self.ending,
            422 if form.is_bound else 200,
            form=form,
            opts=self.opts,
            rows=rows[: self.list_per_page],
            back=request.get_full_path(),
            chosen=request.POST.getlist("_selected_action"),
            across=request.POST.get("select_across", "0"),
        )


@admin.register(LegalHold)
class LegalHoldAdmin(KeptRows):
    """The runs from which nothing may be removed."""

    form = HoldForm
    ending = "Release legal holds?"
    ended = ("{} legal hold was released.", "{} legal holds were released.")
    fields_of_new_row = ("run", "reason")
    list_display = ("held_run", "reason", "by", "at", "released_at", "released_by")
    search_fields = ("reason",)

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: bool
    ) -> None:
        """Put the run under a hold."""
        run = form.cleaned_data["run"]
        reason = form.cleaned_data["reason"]
        # The verb inserts a row itself; Django logs and links the one of this key.
        obj.pk = retention.hold(run, reason, by=request.user).pk

    @admin.display(description="run", ordering="run")
    def held_run(self, row: LegalHold) -> str:
        """Return the key of the run, or its id where the run is gone."""
        return str(getattr(row, "run_key", None) or row.run)

    @admin.action(description="Release these holds", permissions=["release"])
    def release(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """End these holds."""

        def end(row: LegalHold, reason: str) -> bool:
            return retention.release_hold(row.pk, by=request.user, reason=reason)

        return self._end(request, queryset, end)


@admin.register(Pin)
class PinAdmin(KeptRows):
    """Checkpoints that stay."""

    form = PinForm
    ending = "Unpin checkpoints?"
    ended = ("{} checkpoint was unpinned.", "{} checkpoints were unpinned.")
    fields_of_new_row = ("checkpoint", "reason")
    list_display = ("point", "reason", "by", "at", "released_at", "released_by")
    search_fields = ("=checkpoint", "reason")

    def save_model(
        self, request: HttpRequest, obj: Any, form: Any, change: bool
    ) -> None:
        """Pin the checkpoint."""
        checkpoint = form.cleaned_data["checkpoint"]
        reason = form.cleaned_data["reason"]
        # It may be a pin that is there already, to which Django then links.
        obj.pk = retention.pin(checkpoint, by=request.user, reason=reason).pk

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows with the number of each checkpoint."""
        checkpoint = Checkpoint.objects.filter(id=OuterRef("checkpoint"))
        seq = Subquery(checkpoint.order_by().values("seq")[:1])
        rows: QuerySet[Any] = super().get_queryset(request).annotate(seq=seq)
        return rows

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        shown = super().get_fields(request, obj)
        return ("point", *shown) if obj else shown

    @admin.display(description="checkpoint", ordering="checkpoint")
    def point(self, row: Pin) -> str:
        """Return the alias of the checkpoint."""
        return row.point

    @admin.action(description="Unpin", permissions=["release"])
    def release(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """End these pins."""

        def end(row: Pin, reason: str) -> bool:
            return retention.unpin(row.checkpoint, by=request.user, reason=reason)

        return self._end(request, queryset, end)
