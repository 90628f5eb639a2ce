"""Rows of the ledger in the Django admin: to look at, never to change. Payloads are
shown unpacked.

`ReadOnlyRows` serves the apps above as well.
"""

from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.core.paginator import Paginator
from django.db.models import BinaryField, Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString

from checkpoints import models, timeline
from checkpoints.admin.base import RowsOfRuns
from checkpoints.core.visible_json import escaped, indented
from checkpoints.ledger import reader
from checkpoints.memory import shelf
from checkpoints.models.fields import Sealed
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN, Protection, protection_of
from orchestrator.engine.errors import CountersignError
from orchestrator.engine.values import canonical

Field = str | Callable[[Any], Any]

MOST_COUNTED = 10_000
"""The most rows that a list counts and pages through; a search or a filter leads to the
others.
"""


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages of a list that may have millions of rows: no more than `MOST_COUNTED` are
    counted.
    """

    @cached_property
    def count(self) -> int:
        """The number of rows, at most `MOST_COUNTED`."""
        return min(self._counted, MOST_COUNTED)

    @property
    def is_capped(self) -> bool:
        """Return whether there are more rows than are counted."""
        return self._counted > MOST_COUNTED

    @cached_property
    def _counted(self) -> int:
        rows: Any = self.object_list
        # One more than is paged through shows whether there are others.
        return int(rows.order_by()[: MOST_COUNTED + 1].count())


class ColumnFilter(admin.SimpleListFilter):
    """The rows with one value in the column that the parameter is named after."""

    def queryset(
        self, request: HttpRequest, queryset: "QuerySet[Any]"
    ) -> "QuerySet[Any]":
        if not self.value():
            return queryset
        return queryset.filter(**{str(self.parameter_name): self.value()})


class GraphFilter(ColumnFilter):
    """The rows of one graph. Its choices are the graphs that were registered here, not
    those of the rows.
    """

    title = "graph"
    parameter_name = "graph"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        names = (
            models.GraphVersion.objects.order_by("name")
            .values_list("name", flat=True)
            .distinct()
        )
        return [(name, name) for name in names[:MOST_CHOICES]]


class KindFilter(ColumnFilter):
    """The rows of one kind. Its choices are the kinds of the newest rows."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        # The kinds of all rows could be listed only by reading them all.
        newest = model_admin.model._base_manager.order_by("-pk").values_list(
            "kind", flat=True
        )[:LOOKED_AT]
        return [(kind, kind.replace("_", " ")) for kind in sorted(set(newest))]


MOST_CHOICES = 100
LOOKED_AT = 1000
"""The number of newest rows whose kinds a filter offers."""


class ReadOnlyRows(RowsOfRuns):
    """Rows that nobody adds, changes or deletes here."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    """A facet would count the rows of each choice."""
    paginator = CappedPaginator
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)
    """The newest first, by the index that every table has."""
    list_per_page = 50
    actions: Any = None

    def __init__(self, model: type[Any], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.shown = shown_fields(model)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows without payloads; a row that is opened reads its own. The
        seal is read together with what it covers: read later it would belong to a later
        state.
        """
        return (
            super()
            .get_queryset(request)
            .defer(*[name for name in _binary(self.model) if name != "seal"])
        )

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Refuse lookups by payloads and seals too, because bytes match no text."""
        is_binary = lookup.partition("__")[0] in _binary(self.model)
        return not is_binary and super().lookup_allowed(lookup, value, request)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.shown

    get_readonly_fields = get_fields


def _binary(model: type[Model]) -> list[str]:
    return [
        field.name
        for field in model._meta.concrete_fields
        if isinstance(field, BinaryField)
    ]


def shown_fields(model: type[Model]) -> tuple[Field, ...]:
    """Return every column: payloads unpacked, and instead of the seals whether the row
    matches its seal.
    """
    binary = set(_binary(model))
    # The first of `SEALED_LATER` is a seal, the others are what it covers.
    seals = {"seal", *getattr(model, "SEALED_LATER", ())[:1]}
    fields: list[Field] = [as_sealed] if issubclass(model, Sealed) else []
    for field in model._meta.concrete_fields:
        name = field.name
        if name not in seals:
            fields.append(_unpacked(name) if name in binary else name)
    return tuple(fields)


@admin.display(description="as it was sealed")
def as_sealed(row: Any) -> str:
    """Return whether a row matches its seal; else what is wrong with it."""
    fault = _fault_of(row)
    if fault is None:
        return "yes"
    return f"{'tampered' if fault.tampered else 'not verified'}: {fault.reason}"


def _fault_of(row: Any) -> Any:
    # The seal of a run covers its log and its timeline too.
    if isinstance(row, models.Run):
        return timeline.fault_of_run(row)
    return fault_of(row, _protection_of(row))


def _protection_of(row: Any) -> Protection:
    """Return the protection of the row's run; rows of the installation record
    themselves whether they are encrypted.
    """
    if isinstance(getattr(row, "encrypted", None), bool):
        return Protection(row.encrypted)
    run = getattr(row, "run_id", None) or getattr(row, "run", None)
    if run is None or isinstance(row, models.AuditLine):
        return PLAIN
    return protection_of(models.Run.objects.only("encrypted", "hash_key").get(id=run))


def _unpacked(name: str) -> Callable[[Any], SafeString]:
    @admin.display(description=name.replace("_", " "))
    def show(row: Any) -> SafeString:
        return format_html("<pre>{}</pre>", _text(row, name))

    show.__name__ = f"{name}_unpacked"
    return show


def _text(row: Any, name: str) -> str:
    try:
        content = _content(row, name)
    except CountersignError as error:
        return str(error)
    # Two values that differ must not look alike for a character that is not seen.
    return escaped(indented(content))


def _content(row: Any, name: str) -> Any:
    if not isinstance(row, models.Checkpoint):
        return read_value(row, name)
    # A checkpoint's bytes may be in a backend.
    data = reader.bytes_of(row, name)
    return canonical.loads(data) if data else None


@admin.register(models.RemovedKey)
class RemovedKeyAdmin(ReadOnlyRows):
    """Keys of runs that were removed: no run is started under them again."""

    list_display = ("key", "run", "at")
    search_run = "run"
    search_fields = ("key__startswith",)


@admin.register(models.ErasureRecord)
class ErasureRecordAdmin(ReadOnlyRows):
    """Records of what was erased of runs, by whom, when and why."""

    list_display = ("run", "by_name", "at", "ended_at", "rows", "paths")
    search_run = "run"


@admin.register(models.ErasedRow)
class ErasedRowAdmin(ReadOnlyRows):
    """Rows from which something was erased, with their seals before and after."""

    list_display = ("record_id", "table", "row", "at")
    search_run = "run"
    search_fields = ("row__exact",)


@admin.register(models.PendingWrite)
class PendingWriteAdmin(ReadOnlyRows):
    list_display = (
        "run_id",
        "task",
        "position",
        "channel",
        "revision",
        "reason",
        "staged_at",
    )
    search_run = "run"


@admin.register(models.TaskResult)
class TaskResultAdmin(ReadOnlyRows):
    """The journal."""

    list_display = (
        "run_id",
        "task",
        "attempt",
        "effect",
        "outcome",
        "intent_at",
        "result_at",
    )
    list_filter = ("outcome", "effect")
    search_run = "run"


@admin.register(models.LateResult)
class LateResultAdmin(ReadOnlyRows):
    list_display = ("run_id", "task", "attempt", "at")
    search_run = "run"


@admin.register(models.RunMetadata)
class RunMetadataAdmin(ReadOnlyRows):
    list_display = ("run_id", "seq", "name", "at")
    search_fields = ("=run__key",)


@admin.register(models.TaskFigure)
class TaskFigureAdmin(ReadOnlyRows):
    list_display = ("run_id", "task", "name", "millionths", "at")
    search_fields = ("=run__key",)


@admin.register(models.RunEvent)
class RunEventAdmin(ReadOnlyRows):
    list_display = ("run_id", "seq", "type", "task", "actor", "at")
    search_run = "run"


@admin.register(models.RunLine)
class RunLineAdmin(ReadOnlyRows):
    """Departures of lines, with their patches and stops."""

    list_display = (
        "run_id",
        "number",
        "travel",
        "parent_line",
        "departure_run",
        "departure_seq",
        "by",
        "at",
    )
    list_filter = ("travel",)
    list_select_related = ("by",)
    search_run = "run"


@admin.register(models.BundleImport)
class BundleImportAdmin(ReadOnlyRows):
    """Origins of imported runs."""

    list_display = ("run_id", "origin_key", "signer_name", "exported_at", "by", "at")
    list_select_related = ("by",)
    search_run = "run"
    search_fields = ("origin_key__exact",)


@admin.register(models.MemoryTrace)
class MemoryTraceAdmin(ReadOnlyRows):
    """Traces of memory. Deleting one forgets it: its content goes, its version
    stays.
    """

    list_display = (
        "namespace",
        "key",
        "version",
        "strength",
        "deleted",
        "run",
        "node",
        "at",
        as_sealed,
    )
    list_filter = ("deleted",)
    search_fields = ("namespace__exact", "key__startswith")
    actions = ()

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """Return the rows with what their seals cover: the list says whether each
        matches its seal.
        """
        # `ReadOnlyRows` would leave out the payloads.
        return admin.ModelAdmin.get_queryset(self, request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = bool(request.user.has_perm("checkpoints.delete_memorytrace"))
        # A forgotten trace keeps its version, and has nothing left to forget.
        return allowed and not (obj is not None and obj.deleted)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Forget it, with a line in the audit log."""
        shelf.delete_trace(obj, by=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """Forget all that were chosen."""
        for row in queryset:
            try:
                shelf.delete_trace(row, by=request.user)
            except CountersignError as error:
                messages.error(request, f"Not forgotten: {error.message}.")

    def delete_view(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Refuse to forget a row that does not match its seal; the list says why."""
        try:
            return super().delete_view(request, *args, **kwargs)
        except CountersignError as error:
            messages.error(request, f"Not forgotten: {error.message}.")
            return redirect("admin:checkpoints_memorytrace_changelist")


@admin.register(models.MemoryLanding)
class MemoryLandingAdmin(ReadOnlyRows):
    """Changes of memory that landed."""

    list_display = (
        "run_id",
        "task",
        "n",
        "namespace",
        "key",
        "version",
        "deleted",
        "at",
    )
    search_run = "run"
    search_fields = ("namespace__exact", "key__exact")


@admin.register(models.MemoryRecord)
class MemoryRecordAdmin(ReadOnlyRows):
    """Reads of memory by tasks."""

    list_display = ("run_id", "task", "n", "kind", "mode", "unrecorded", "at")
    search_run = "run"


@admin.register(models.GraphVersion)
class GraphVersionAdmin(ReadOnlyRows):
    list_display = ("name", "version", "fingerprint", "first_seen_at")
    search_fields = ("name", "=version", "^fingerprint")


@admin.register(models.Upload)
class UploadAdmin(ReadOnlyRows):
    list_display = ("name", "size", "by", "at")
    list_select_related = ("by",)
    search_fields = ("name", "sha256__exact")


@admin.register(models.UploadReference)
class UploadReferenceAdmin(ReadOnlyRows):
    """References of runs to uploaded files."""

    list_display = ("upload", "run")
    list_select_related = ("upload",)
    search_run = "run"


@admin.register(models.Worker)
class WorkerAdmin(ReadOnlyRows):
    list_display = (
        "host",
        "pid",
        "started_at",
        "heartbeat_at",
        "stopped_at",
        "busy",
        "slots",
    )
    search_fields = ("host",)


@admin.register(models.Job)
class JobAdmin(ReadOnlyRows):
    list_display = (
        "kind",
        "name",
        "status",
        "due_at",
        "attempts",
        "error_code",
        "created_at",
        "ended_at",
    )
    list_filter = ("status", KindFilter)
    search_run = "run"
    search_fields = ("name__exact",)


@admin.register(models.AuditLine)
class AuditLineAdmin(ReadOnlyRows):
    list_display = ("at", "actor_name", "kind", "run", "request")
    list_filter = (KindFilter,)
    search_fields = ("run", "actor")
    search_help_text = "The id of a run, or the name of the account that acted."

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Any]", search_term: str
    ) -> "tuple[QuerySet[Any], bool]":
        """Search only by whole ids and names, which have indexes: a search in texts
        would read every line.
        """
        words = search_term.strip()
        if not words:
            return queryset, False
        users = get_user_model()
        try:
            return queryset.filter(run=UUID(words)), False
        except ValueError:
            named = users._default_manager.filter(**{users.USERNAME_FIELD: words})
            ids = list(named.values_list("pk", flat=True))
            return queryset.filter(actor__in=ids), False
