"""Rows of the ledger in the Django admin: to look at, never to change. Payloads are shown unpacked.

`ReadOnlyRows` serves the apps above as well.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db.models import BinaryField, Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.utils.safestring import SafeString

from checkpoints import hold_admin as hold_admin  # registers holds and pins
from checkpoints import models, timeline
from checkpoints.core.visible_json import escaped, indented
from checkpoints.ledger import reader
from checkpoints.memory import shelf
from checkpoints.models.fields import Sealed
from checkpoints.policy_admin import can_be_held  # registers policies
from checkpoints.sealing.seal_fault import fault_of
from checkpoints.sealing.sealed_columns import read_value
from checkpoints.sealing.sealed_rows import PLAIN, Protection, protection_of
from orchestrator.engine import canonical
from orchestrator.engine.errors import CountersignError

Field = str | Callable[[Any], Any]

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    Base = admin.ModelAdmin  # generic in its stubs only


class ReadOnlyRows(Base):
    """Rows that nobody adds, changes or deletes here."""

    show_full_result_count = False
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
        """Without payloads; a row that is opened reads its own. The seal comes with what it covers: read later it would
        be that of a later state.
        """
        return super().get_queryset(request).defer(*[name for name in _binary(self.model) if name != "seal"])

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Not by payloads and seals: bytes are compared with no text; nor by numbers that no column can hold."""
        comparable = lookup.partition("__")[0] not in _binary(self.model) and can_be_held(str(value))
        return comparable and super().lookup_allowed(lookup, value, request)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.shown

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return self.shown


def _binary(model: type[Model]) -> list[str]:
    return [field.name for field in model._meta.concrete_fields if isinstance(field, BinaryField)]


def shown_fields(model: type[Model]) -> tuple[Field, ...]:
    """Every column: payloads unpacked, and in the place of the seals whether the row is as it was sealed."""
    binary, seals = set(_binary(model)), {"seal", *getattr(model, "SEALED_APART", ())[:1]}
    names = [field.name for field in model._meta.concrete_fields if field.name not in seals]
    sealed: tuple[Field, ...] = (as_sealed,) if issubclass(model, Sealed) else ()
    return (*sealed, *(_unpacked(name) if name in binary else name for name in names))


@admin.display(description="as it was sealed")
def as_sealed(row: Any) -> str:
    """Whether a row is as it was sealed; else what is wrong with it."""
    fault = timeline.fault_of_run(row) if isinstance(row, models.Run) else fault_of(row, _protection_of(row))
    return "yes" if fault is None else f"{'tampered' if fault.tampered else 'not verified'}: {fault.reason}"


def _protection_of(row: Any) -> Protection:
    """That of the row's run; rows of the installation say themselves whether they are encrypted."""
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
        found = _kept(row, name) if isinstance(row, models.Checkpoint) else read_value(row, name)
    except CountersignError as error:
        return str(error)
    return escaped(indented(found))


def _kept(row: models.Checkpoint, name: str) -> Any:
    """A checkpoint's bytes may be in a backend."""
    data = reader.bytes_of(row, name)
    return canonical.loads(data) if data else None


@admin.register(models.Run)
class RunAdmin(ReadOnlyRows):
    list_display = ("key", "graph", "status", "at_node", "superstep", "created_at")
    list_filter = ("status", "graph")
    search_fields = ("key", "label")
    actions = ("erase",)

    def has_erase_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("checkpoints.manage_retention"))

    @admin.action(description="Erase values", permissions=["erase"])
    def erase(self, request: HttpRequest, queryset: "QuerySet[Any]") -> HttpResponse | None:
        """Lead to the page that says what would be erased, and where the run's key is typed: one run at a time."""
        keys = list(queryset.values_list("id", flat=True)[:2])
        if len(keys) == 1:
            return redirect("erase", keys[0])
        self.message_user(request, "Choose one run: each is looked at before it is erased.", messages.WARNING)
        return None


@admin.register(models.RemovedKey)
class RemovedKeyAdmin(ReadOnlyRows):
    """Keys of runs that were removed: no run is started under them again."""

    list_display = ("key", "run", "at")
    search_fields = ("^key", "=run")


@admin.register(models.ErasureRecord)
class ErasureRecordAdmin(ReadOnlyRows):
    """What was erased of runs, by whom, when and why."""

    list_display = ("run", "by_name", "at", "ended_at", "rows", "paths")
    search_fields = ("=run",)


@admin.register(models.ErasedRow)
class ErasedRowAdmin(ReadOnlyRows):
    """Rows of which something was erased, with their seals before and after."""

    list_display = ("record_id", "table", "row", "at")
    search_fields = ("=run", "=row")


@admin.register(models.Checkpoint)
class CheckpointAdmin(ReadOnlyRows):
    list_display = ("run_id", "seq", "superstep", "line", "source", "committed", "kept", "stored_size", "created_at")
    list_filter = ("source", "graph")
    search_fields = ("=run__key",)


@admin.register(models.PendingWrite)
class PendingWriteAdmin(ReadOnlyRows):
    list_display = ("run_id", "task", "position", "channel", "revision", "reason", "staged_at")
    search_fields = ("=run__key",)


@admin.register(models.TaskResult)
class TaskResultAdmin(ReadOnlyRows):
    """The journal."""

    list_display = ("run_id", "task", "attempt", "effect", "outcome", "intent_at", "result_at")
    list_filter = ("outcome", "effect")
    search_fields = ("=run__key",)


@admin.register(models.LateResult)
class LateResultAdmin(ReadOnlyRows):
    list_display = ("run_id", "task", "attempt", "at")
    search_fields = ("=run__key",)


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
    search_fields = ("=run__key",)


@admin.register(models.RunLine)
class RunLineAdmin(ReadOnlyRows):
    """Where lines departed, with what patch, and what they need a yes for."""

    list_display = ("run_id", "number", "travel", "parent_line", "departure_run", "departure_seq", "by", "at")
    list_filter = ("travel",)
    list_select_related = ("by",)
    search_fields = ("=run__key",)


@admin.register(models.BundleImport)
class BundleImportAdmin(ReadOnlyRows):
    """Where imported runs come from."""

    list_display = ("run_id", "origin_key", "signer_name", "exported_at", "by", "at")
    list_select_related = ("by",)
    search_fields = ("=run__key", "=origin_key")


@admin.register(models.MemoryTrace)
class MemoryTraceAdmin(ReadOnlyRows):
    """What is remembered. Whoever may delete it has it forgotten: its content goes, its version stays."""

    list_display = ("namespace", "key", "version", "strength", "deleted", "run", "node", "at", as_sealed)
    list_filter = ("deleted",)
    search_fields = ("namespace", "key")
    actions = ()

    def get_queryset(self, request: HttpRequest) -> "QuerySet[Any]":
        """With what their seals cover, for the list says whether each is as it was sealed."""
        return admin.ModelAdmin.get_queryset(self, request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = bool(request.user.has_perm("checkpoints.delete_memorytrace"))
        return allowed and not (obj is not None and obj.deleted)

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Forget it, with a line in the audit log."""
        shelf.delete_trace(obj, by=request.user)

    def delete_queryset(self, request: HttpRequest, queryset: "QuerySet[Any]") -> None:
        """Forget all that were chosen."""
        for row in queryset:
            shelf.delete_trace(row, by=request.user)


@admin.register(models.MemoryLanding)
class MemoryLandingAdmin(ReadOnlyRows):
    """What landed in memory."""

    list_display = ("run_id", "task", "n", "namespace", "key", "version", "deleted", "at")
    search_fields = ("=run__key", "namespace", "key")


@admin.register(models.MemoryRecord)
class MemoryRecordAdmin(ReadOnlyRows):
    """What tasks read from memory."""

    list_display = ("run_id", "task", "n", "kind", "mode", "unrecorded", "at")
    search_fields = ("=run__key",)


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
    """Which runs name which uploaded file."""

    list_display = ("upload", "run")
    list_select_related = ("upload",)
    search_fields = ("=run",)


@admin.register(models.Worker)
class WorkerAdmin(ReadOnlyRows):
    list_display = ("host", "pid", "started_at", "heartbeat_at", "stopped_at", "busy", "slots")
    search_fields = ("host",)


@admin.register(models.Job)
class JobAdmin(ReadOnlyRows):
    list_display = ("kind", "name", "status", "due_at", "attempts", "error_code", "created_at", "ended_at")
    list_filter = ("status", "kind")
    search_fields = ("name", "=run")


@admin.register(models.AuditLine)
class AuditLineAdmin(ReadOnlyRows):
    list_display = ("at", "actor_name", "kind", "run", "request")
    list_filter = ("kind",)
    search_fields = ("run", "actor")
    search_help_text = "The id of a run, or the name of the account that acted."

    def get_search_results(
        self, request: HttpRequest, queryset: "QuerySet[Any]", search_term: str
    ) -> "tuple[QuerySet[Any], bool]":
        """Whole ids and names only, for these have indexes: a look into texts would read every line."""
        words = search_term.strip()
        if not words:
            return queryset, False
        users = get_user_model()
        try:
            return queryset.filter(run=UUID(words)), False
        except ValueError:
            found = users._default_manager.filter(**{users.USERNAME_FIELD: words}).values_list("pk", flat=True)
            return queryset.filter(actor__in=[*found]), False
