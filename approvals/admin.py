"""Read-only rows of approvals in the Django admin. Nothing is decided here: links and
actions lead to the reviews.
"""

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import Max, OuterRef, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from approvals import passkeys
from approvals.doors import messages as door_messages
from approvals.doors import verbs as doors
from approvals.models import (
    ApprovalRequest,
    Decision,
    Door,
    DoorMessage,
    Passkey,
    Receipt,
)
from checkpoints.admin.rows import GraphFilter, ReadOnlyRows, as_sealed
from checkpoints.models import Run
from orchestrator.engine.errors import CountersignError


class GraphOfRunFilter(GraphFilter):
    """The rows of the runs of one graph, by the index of these runs."""

    def queryset(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> "QuerySet[Any]":
        if not self.value():
            return queryset
        return queryset.filter(run__graph=self.value())


@admin.register(ApprovalRequest)
class ApprovalRequestAdmin(ReadOnlyRows):
    """Requests, with the policy that each was opened under."""

    change_form_template = "admin/approvals/approvalrequest/change_form.html"
    list_display = (
        "of_run",
        "graph",
        "task",
        "state",
        "writes",
        "opened_at",
        "deadline",
        "review",
    )
    list_display_links = ("task",)
    list_filter = ("status", GraphOfRunFilter)
    search_run = "run"
    actions = ("open_reviews",)

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows with the keys of their runs."""
        # A subquery reads the key alone; a join would load the input of each run, which
        # may be large.
        key = Run.objects.filter(id=OuterRef("run_id")).order_by().values("key")[:1]
        rows: QuerySet[Any] = (
            super().get_queryset(request).annotate(run_key=Subquery(key))
        )
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
        """Add the link to the review, the only place where the request is decided."""
        row = context.get("original")
        if row is not None:
            context |= {
                "title": f"Request {row.task} of {row.run_key}",
                # Django would put the name of the row here, which repeats the task.
                "subtitle": None,
            }
            context["review"] = reverse("review", args=[row.run_id])
        return super().render_change_form(request, context, *args, **kwargs)

    @admin.display(description="run", ordering="run")
    def of_run(self, row: ApprovalRequest) -> SafeString:
        """Return a link to the row of the run."""
        address = reverse("admin:checkpoints_run_change", args=[row.run_id])
        return format_html(
            '<a href="{}">{}</a>', address, getattr(row, "run_key", None) or row.run_id
        )

    @admin.display(description="review")
    def review(self, row: ApprovalRequest) -> SafeString:
        """Return a link to the page on which it is decided."""
        address = reverse("review", args=[row.run_id])
        return format_html(
            '<a href="{}">Open the review of {}</a>',
            address,
            getattr(row, "run_key", None),
        )

    @admin.display(description="status", ordering="status")
    def state(self, row: ApprovalRequest) -> str:
        """Return the status in words, with the outcome."""
        outcome = f": {row.outcome}" if row.outcome else ""
        return f"{row.get_status_display()}{outcome}"

    @admin.display(description="asked of")
    def asked_of(self, row: ApprovalRequest) -> str:
        """Return who may decide the request, and how many must."""
        names = ", ".join(map(str, row.reviewers_now))
        return f"{names}; {row.quorum:,} needed" if names else f"{row.quorum:,} needed"

    @admin.display(description="times")
    def times(self, row: ApprovalRequest) -> str:
        """Return when it was opened, and until when it waits."""
        until = ", no deadline"
        if row.deadline:
            until = f", waits until {row.deadline:%Y-%m-%d %H:%M}"
        return f"Opened {row.opened_at:%Y-%m-%d %H:%M}{until} (UTC)"

    @admin.display(description="decisions")
    def decided(self, row: ApprovalRequest) -> Any:
        """Return a link to the decisions of its run."""
        address = reverse("admin:approvals_decision_changelist")
        return format_html(
            '<a href="{}?q={}">Decisions of this run</a>', address, row.run_id
        )

    @admin.action(description="Open reviews", permissions=["view"])
    def open_reviews(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Lead to the review of the run, or for several runs to the page that lists
        their reviews.
        """
        # By run before it is cut: one run may have more requests than a page lists.
        of_runs = queryset.order_by().values("run").annotate(newest=Max("opened_at"))
        newest_first = of_runs.order_by("-newest", "-run").values_list("run", flat=True)
        runs = list(newest_first[: MOST + 1])
        if len(runs) > MOST:
            self.message_user(
                request, f"Select requests of at most {MOST} runs.", messages.WARNING
            )
            return None
        if len(runs) == 1:
            return redirect("review", runs[0])
        query = "&".join(f"run={run}" for run in runs)
        return redirect(f"{reverse('admin:runs_act', args=['review'])}?{query}")


WORDS = ("of_run", "state", "asked_of", "times", "decided", "review")
MOST_NAMED = 200
"""The most people without a passkey that are named."""
MOST = 100
"""The most runs whose reviews one page lists."""


@admin.register(Decision)
class DecisionAdmin(ReadOnlyRows):
    """Decisions, the newest first."""

    list_display = ("task", "of_run", "channel", "verdict", "by_name", "at")
    list_filter = ("verdict",)
    ordering = ("-at",)
    search_run = "run"

    @admin.display(description="run")
    def of_run(self, row: Decision) -> SafeString:
        """Return a link to the row of the run."""
        return format_html(
            '<a href="{}">{}</a>',
            reverse("admin:checkpoints_run_change", args=[row.run]),
            row.run,
        )


@admin.register(Passkey)
class PasskeyAdmin(ReadOnlyRows):
    """Passkeys, and who has none: whom a gate that asks for one would keep waiting."""

    list_display = ("name", "user", "created_at", "used_at", "revoked_at", as_sealed)
    list_select_related = ("user",)
    change_list_template = "admin/approvals/passkey/change_list.html"
    actions = ("revoke",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*self.list_display, "in_log", "fingerprint", "rp_id", "sign_count")

    get_readonly_fields = get_fields

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Return whether this person may revoke the passkeys of others."""
        return bool(request.user.has_perm(passkeys.REVOKE))

    @admin.display(description="in the audit log")
    def in_log(self, row: Passkey) -> str:
        """Return whether the audit log says that it was revoked."""
        is_revoked = bool(passkeys.revoked_fingerprints([row]))
        return "revoked, whatever its row says" if is_revoked else "not revoked"

    @admin.action(description="Revoke for good", permissions=["revoke"])
    def revoke(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Ask once more, and then revoke the chosen passkeys of any person."""
        if "confirmed" not in request.POST:
            context = {
                **self.admin_site.each_context(request),
                "title": "Revoke passkeys",
                "keys": queryset.select_related("user"),
                "opts": self.model._meta,
            }
            template = "admin/approvals/passkey/revoke.html"
            return TemplateResponse(request, template, context)
        for key in queryset.select_related("user"):
            try:
                passkeys.revoke_key(key.user, key.id, by=request.user)
            except CountersignError as error:
                self.message_user(request, f"{key}: {error.message}.", messages.ERROR)
            else:
                self.message_user(request, f"{key} can no longer sign.")
        return None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        """Show the list with the first people who have no passkey, by name."""
        people = passkeys.people_without_keys().order_by("username")
        names = [person.get_username() for person in people[: MOST_NAMED + 1]]
        extra = {"without": names[:MOST_NAMED], "more": len(names) > MOST_NAMED}
        return super().changelist_view(request, {**(extra_context or {}), **extra})


class RefusableForm(forms.Form):
    """A form whose act may still be refused."""

    def refuse(self, error: CountersignError) -> None:
        """Show why, at the field that the refusal names."""
        field = error.facts.get("path")
        self.add_error(field if field in self.fields else None, f"{error.message}.")


class DoorForm(RefusableForm):
    """The form of a new door."""

    slug = forms.CharField(label="Name, as it stands in the address")
    account = forms.CharField(label="User name of the account that signs")
    graph = forms.CharField()
    node = forms.CharField(label="Node whose gate asks")
    key_pointer = forms.CharField(label="JSON Pointer to the key of the run")
    answer_pointer = forms.CharField(
        label="JSON Pointer to the answer; empty for the whole body", required=False
    )
    until = forms.DateTimeField(label="Open until (UTC)", required=False)
    secret = forms.CharField(
        label="Secret of the sender; empty for a new one",
        required=False,
        widget=forms.PasswordInput,
    )

    def clean_account(self) -> Any:
        """Return the account of this name."""
        accounts = get_user_model()
        name = self.cleaned_data["account"]
        named = {accounts.USERNAME_FIELD: name}
        account = accounts._default_manager.filter(**named).first()
        if account is None:
            raise forms.ValidationError("There is no such account.")
        return account


class SecretForm(RefusableForm):
    """The next secret of a door."""

    secret = DoorForm.base_fields["secret"]


@admin.register(Door)
class DoorAdmin(ReadOnlyRows):
    """Doors. Whoever manages them makes them, gives them other secrets and switches
    them.
    """

    list_display = ("slug", "graph", "node", "account", "enabled", "until", as_sealed)
    list_select_related = ("account",)
    ordering = ("-at",)
    actions = ("switch_on", "switch_off", "rotate")

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows with what their seals cover: the list says whether each
        matches its seal.
        """
        return admin.ModelAdmin.get_queryset(self, request)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return (*self.list_display, "key_pointer", "answer_pointer", "by", "at")

    get_readonly_fields = get_fields

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return doors.may_manage(request.user)

    def has_manage_permission(self, request: HttpRequest) -> bool:
        """Return whether this person may change doors."""
        return doors.may_manage(request.user)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show the form of a new door; the answer to it shows its secret, once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = DoorForm(request.POST or None)
        if form.is_valid():
            try:
                door, secret = doors.make_door(**form.cleaned_data, by=request.user)
            except CountersignError as error:
                form.refuse(error)
            else:
                return self._page(request, door=door, secret=secret)
        return self._page(request, form=form)

    def get_urls(self) -> Any:
        page = self.admin_site.admin_view(self.secret_view)
        name = "approvals_door_secret"
        return [path("<str:object_id>/secret/", page, name=name), *super().get_urls()]

    def secret_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show the form of a door's next secret; the answer to it shows that, once."""
        if not self.has_manage_permission(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404("there is no such door")
        form = SecretForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                secret = doors.rotate_secret(
                    row.id, **form.cleaned_data, by=request.user
                )
            except CountersignError as error:
                form.refuse(error)
            else:
                return self._page(request, door=row, secret=secret)
        return self._page(request, door=row, form=form)

    def _page(self, request: HttpRequest, **context: Any) -> HttpResponse:
        title = "Make another secret" if "door" in context else "Make a door"
        every_page = self.admin_site.each_context(request)
        template = "admin/approvals/door/form.html"
        page = TemplateResponse(
            request, template, every_page | {"title": title} | context
        )
        page["Cache-Control"] = "no-store"
        return page

    @admin.action(description="Make another secret", permissions=["manage"])
    def rotate(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> HttpResponse | None:
        """Lead to the form of the chosen door's next secret."""
        chosen = list(queryset.values_list("id", flat=True)[:2])
        if len(chosen) == 1:
            return redirect("admin:approvals_door_secret", chosen[0])
        self.message_user(request, "Select a single door.", messages.WARNING)
        return None

    @admin.action(description="Switch on", permissions=["manage"])
    def switch_on(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """Open these doors to messages."""
        self._switch(request, queryset, enabled=True)

    @admin.action(description="Switch off", permissions=["manage"])
    def switch_off(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """Close these doors to messages."""
        self._switch(request, queryset, enabled=False)

    def _switch(self, request: HttpRequest, rows: Any, *, enabled: bool) -> None:
        for door in rows:
            try:
                doors.switch_door(door.id, enabled=enabled, by=request.user)
            except CountersignError as error:
                self.message_user(request, f"{door}: {error.message}.", messages.ERROR)


@admin.register(DoorMessage)
class DoorMessageAdmin(ReadOnlyRows):
    """Messages at doors and what came of them, without what they say."""

    list_display = ("message_id", "door", "key", "state", "reason", "at", "ended_at")
    list_select_related = ("door",)
    list_filter = ("status",)
    ordering = ("-at",)
    # Not "=key", for `iexact` reads no index.
    search_fields = ("key__exact", "message_id__exact")
    actions = ("deliver_again",)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.list_display

    get_readonly_fields = get_fields

    def has_manage_permission(self, request: HttpRequest) -> bool:
        """Return whether this person may offer messages again."""
        return doors.may_manage(request.user)

    @admin.display(description="status", ordering="status")
    def state(self, row: DoorMessage) -> str:
        """Return the status in words."""
        return str(row.get_status_display())

    @admin.display(description="why")
    def reason(self, row: DoorMessage) -> str:
        """Return why it was refused, in words."""
        return door_messages.reason_of(row)

    @admin.action(description="Deliver again", permissions=["manage"])
    def deliver_again(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """Offer the refused ones of these messages to their runs once more."""
        for row in queryset:
            try:
                message = door_messages.deliver_again(row.id, by=request.user)
            except CountersignError as error:
                self.message_user(request, f"{error.message}.", messages.ERROR)
            else:
                words = message.get_status_display()
                self.message_user(request, f"{message.message_id}: {words}.")


@admin.register(Receipt)
class ReceiptAdmin(ReadOnlyRows):
    list_display = ("id", "run_id", "by", "at")
    # Otherwise the list would look up the signer of each row.
    list_select_related = ("by",)
    search_run = "run"
