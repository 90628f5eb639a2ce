"""Serializers of runs, checkpoints, events and graphs."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from approvals.api.base import Body, FaultOut, Query, SealedOut
from checkpoints import timeline
from checkpoints.core.status import Status
from checkpoints.ledger import notes
from checkpoints.models import (
    BundleImport,
    Checkpoint,
    ErasureRecord,
    Run,
    RunEvent,
    TaskResult,
)
from checkpoints.sealing.seal_fault import json_of
from checkpoints.sealing.sealed_columns import read_or_reason, read_value
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.engine.step.notes import figure_text
from orchestrator.run_access.labels import needs_yes_of, progress_of
from orchestrator.runs import unknown_outcomes


class StartBody(Body):
    """The body that starts a run."""

    graph = serializers.CharField(max_length=200)
    input = serializers.JSONField()
    key = serializers.CharField(max_length=200, required=False, allow_null=True)
    on_behalf_of = serializers.CharField(
        required=False, allow_null=True, help_text="A user's name."
    )
    resume_failed = serializers.BooleanField(default=False)
    restart = serializers.BooleanField(
        default=False, help_text="Rewind the run of this key to its beginning."
    )
    allow_effects = serializers.ListField(
        child=serializers.CharField(max_length=200),
        default=list,
        help_text="Nodes that may do again what they did already.",
    )
    priority = serializers.IntegerField(default=0, help_text="Higher goes first.")
    due_at = serializers.DateTimeField(
        required=False, allow_null=True, help_text="Begin at this time or later."
    )
    metadata = serializers.DictField(
        child=serializers.JSONField(),
        required=False,
        allow_null=True,
        help_text="Small values by name: text, numbers, true or false.",
    )


class EraseBody(Body):
    """Which values are erased: all of the run, or those at `paths`. With `dry_run`
    nothing is.
    """

    confirm = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        help_text="The key of the run. Required, but for a dry run.",
    )
    paths = serializers.ListField(
        child=serializers.CharField(), required=False, allow_null=True, default=None
    )
    forks = serializers.BooleanField(
        required=False, default=False, help_text="Also of runs that inherited values."
    )
    reason = serializers.CharField(
        max_length=10_000, required=False, allow_blank=True, default=""
    )
    dry_run = serializers.BooleanField(required=False, default=False)


class StatusList(serializers.CharField):
    """One status, or several with commas between."""

    def to_internal_value(self, data: Any) -> Any:
        text = str(super().to_internal_value(data))
        statuses = [word.strip() for word in text.split(",")]
        unknown = [status for status in statuses if status not in set(Status)]
        if unknown:
            raise serializers.ValidationError(f"No such status: {', '.join(unknown)}.")
        return statuses


class RunsQuery(Query):
    """The filters of a list of runs."""

    graph = serializers.CharField(required=False)
    status = StatusList(required=False)
    key = serializers.CharField(required=False)
    since = serializers.DateTimeField(
        required=False, help_text="Started at this time or later."
    )
    origin = serializers.CharField(
        required=False, help_text="Id or key of the run that they were forked from."
    )


class EventsQuery(Query):
    """The line of a log to continue after."""

    after = serializers.IntegerField(required=False, min_value=0, default=0)


class DiffQuery(Body):
    """The checkpoint to compare with."""

    against = serializers.CharField(
        required=False, help_text="Id or alias; without it, the parent."
    )


class Person(serializers.CharField):
    """A user's name, or null."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(read_only=True, allow_null=True, **kwargs)

    def to_representation(self, value: Any) -> str:
        return str(value.get_username())


class RunLine(serializers.ModelSerializer[Run]):
    """A run in a list: columns only."""

    started_by = Person()
    on_behalf_of = Person()
    facts = serializers.DictField()
    progress = serializers.SerializerMethodField()

    class Meta:
        model = Run
        fields = [
            "id",
            "key",
            "graph",
            "version",
            "fingerprint",
            "label",
            "facts",
            "status",
            "line",
            "superstep",
            "head",
            "head_seq",
            "event_seq",
            "decisions",
            "durable",
            "imported",
            "at_node",
            "tape",
            "error_code",
            "progress",
            "priority",
            "due_at",
            "cancel_at",
            "started_by",
            "on_behalf_of",
            "parent_run",
            "parent_line",
            "parent_task",
            "origin_checkpoint",
            "created_at",
            "started_at",
            "ended_at",
        ]
        read_only_fields = fields

    def get_progress(self, run: Run) -> dict[str, Any] | None:
        return progress_of(run)


class WaitingOut(SealedOut):
    """A request that the run waits for."""

    request = serializers.UUIDField(source="id")
    task = serializers.CharField()
    title = serializers.SerializerMethodField()

    def get_title(self, request: Any) -> str:
        return read_or_reason(request, "title") or ""


class UnknownOut(SealedOut):
    """A task whose outcome a person must settle. The key is the one that the call
    carried, to look it up by.
    """

    task = serializers.CharField()
    attempt = serializers.IntegerField()
    intent_at = serializers.DateTimeField()
    idempotency_key = serializers.SerializerMethodField()

    def get_idempotency_key(self, row: TaskResult) -> str:
        return unknown_outcomes.key_of(row)


class ImportedFrom(SealedOut):
    """The bundle that an imported run came from: its key there, who signed it and when,
    and who took it in.
    """

    key = serializers.CharField(source="origin_key")
    signer = serializers.CharField()
    signer_name = serializers.CharField()
    exported_at = serializers.DateTimeField()
    by = Person()
    at = serializers.DateTimeField()


class RunOut(RunLine):
    """One run, with its input, why it stopped, what it waits for, and what must be
    settled. `needs_yes`: the nodes that do not start without a yes; `stopped_before`:
    those of them that would start now. Null: its line does not verify.
    """

    input = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()
    paused = serializers.SerializerMethodField()
    unknown = serializers.SerializerMethodField()
    needs_yes = serializers.SerializerMethodField()
    stopped_before = serializers.SerializerMethodField()
    imported_from = serializers.SerializerMethodField()
    metadata = serializers.SerializerMethodField()
    figures = serializers.SerializerMethodField()
    fault = serializers.SerializerMethodField()

    class Meta(RunLine.Meta):
        fields = [
            *RunLine.Meta.fields,
            "input",
            "error",
            "paused",
            "unknown",
            "needs_yes",
            "stopped_before",
            "imported_from",
            "metadata",
            "figures",
            "fault",
        ]
        read_only_fields = fields

    def to_representation(self, instance: Run) -> dict[str, Any]:
        # Two fields show them, which one query answers.
        self.stops = needs_yes_of(instance)
        return super().to_representation(instance)

    def get_needs_yes(self, run: Run) -> list[str] | None:
        return self.stops

    def get_stopped_before(self, run: Run) -> list[str] | None:
        if self.stops is None:
            return None
        if run.status != Status.PAUSED:
            return []
        next_nodes = run.at_node.split(", ")
        return [node for node in self.stops if node in next_nodes]

    @extend_schema_field(FaultOut(allow_null=True))
    def get_fault(self, run: Run) -> dict[str, Any] | None:
        return json_of(timeline.fault_of_run(run))

    @extend_schema_field(ImportedFrom(allow_null=True))
    def get_imported_from(self, run: Run) -> dict[str, Any] | None:
        if not run.imported:
            return None
        origin = BundleImport.objects.filter(run=run.id).first()
        return ImportedFrom(origin).data if origin else None

    def get_metadata(self, run: Run) -> dict[str, Any]:
        return notes.shown_metadata([run]).get(run.id, {})

    def get_figures(self, run: Run) -> dict[str, str]:
        return shown_figures(notes.figures_of_run(run.id))

    def get_input(self, run: Run) -> dict[str, Any]:
        return read_value(run, "input") or {}

    def get_error(self, run: Run) -> dict[str, Any] | None:
        error: dict[str, Any] | None = read_value(run, "error")
        return error

    def get_paused(self, run: Run) -> list[dict[str, Any]]:
        requests = run.requests.filter(status="open").order_by("id")
        context = {"protection": protection_of(run)}
        return list(WaitingOut(requests, many=True, context=context).data)

    def get_unknown(self, run: Run) -> list[dict[str, Any]]:
        rows = unknown_outcomes.unknown_tasks(run)
        context = {"protection": protection_of(run)}
        return list(UnknownOut(rows, many=True, context=context).data)


class EventOut(SealedOut, serializers.ModelSerializer[RunEvent]):
    """A line of a run's log."""

    payload = serializers.SerializerMethodField()

    class Meta:
        model = RunEvent
        fields = [
            "seq",
            "type",
            "at",
            "node",
            "task",
            "actor",
            "payload",
            "hash",
            "fault",
        ]
        read_only_fields = fields

    def get_payload(self, event: RunEvent) -> dict[str, Any]:
        return self.value_or_none(event, "payload") or {}


def shown_figures(sums: Mapping[str, Any]) -> dict[str, Any]:
    """Return sums of figures as exact text; {"refused": why} stays as it is."""
    shown: dict[str, Any] = {}
    for name, sum in sums.items():
        shown[name] = figure_text(sum) if isinstance(sum, int) else sum
    return shown


class CheckpointLines(serializers.ListSerializer[Any]):
    """Serializes checkpoints of one run with their metadata. One more query, however
    many there are.
    """

    def to_representation(self, data: Any) -> list[Any]:
        rows = list(data)
        if rows:
            child: Any = self.child
            seqs = [row.seq for row in rows]
            child.metadata_at = notes.metadata_at(rows[0].run, seqs)
        return super().to_representation(rows)


class CheckpointLine(SealedOut, serializers.ModelSerializer[Checkpoint]):
    """A checkpoint in a list: metadata only."""

    alias = serializers.SerializerMethodField()
    graph_fingerprint = serializers.CharField(source="fingerprint")
    format_version = serializers.IntegerField(source="format")
    event_position = serializers.IntegerField(source="event_seq")
    metadata = serializers.SerializerMethodField()
    metadata_at: Mapping[int, dict[str, Any]] = {}

    class Meta:
        model = Checkpoint
        list_serializer_class = CheckpointLines
        fields = [
            "id",
            "alias",
            "run",
            "graph",
            "version",
            "graph_fingerprint",
            "format_version",
            "seq",
            "superstep",
            "line",
            "source",
            "parent",
            "created_at",
            "committed",
            "nodes",
            "changed",
            "event_position",
            "took_ms",
            "stored_size",
            "state_size",
            "metadata",
            "fault",
        ]
        read_only_fields = fields

    def get_metadata(self, checkpoint: Checkpoint) -> dict[str, Any]:
        return self.metadata_at.get(checkpoint.seq, {})

    def get_alias(self, checkpoint: Checkpoint) -> str:
        return timeline.alias_of(checkpoint)


class StateOut(serializers.Serializer[Any]):
    """The state by partition."""

    input = serializers.JSONField()
    scratch = serializers.JSONField()
    artifacts = serializers.JSONField()
    diagnostics = serializers.JSONField()


class ChangeOut(serializers.Serializer[timeline.Change]):
    """One path that differs."""

    partition = serializers.CharField()
    path = serializers.CharField()
    kind = serializers.ChoiceField(choices=["added", "removed", "changed"])
    before = serializers.JSONField()
    after = serializers.JSONField()
    set_by = serializers.CharField()


class DiffOut(serializers.Serializer[Any]):
    """The differences of one checkpoint from another; `against` is null if there is
    nothing before it.
    """

    checkpoint = serializers.CharField()
    against = serializers.CharField(allow_null=True)
    changes = ChangeOut(many=True)


class UploadOut(serializers.Serializer[Any]):
    """A reference that an input can carry."""

    file = serializers.UUIDField()
    name = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField()


class GraphLine(serializers.Serializer[Any]):
    """A graph in the catalogue: its current version."""

    name = serializers.CharField()
    version = serializers.CharField()
    fingerprint = serializers.CharField()
    doc = serializers.CharField()
    warnings = serializers.ListField(child=serializers.CharField())


class GraphOut(GraphLine):
    """One graph: what it takes, what it holds, how it goes."""

    nodes = serializers.ListField(child=serializers.DictField())
    edges = serializers.ListField(child=serializers.DictField())
    input_schema = serializers.DictField()
    state_schema = serializers.DictField()
    mermaid = serializers.CharField()


class ErasureOut(serializers.ModelSerializer[ErasureRecord]):
    """The record of an erasure, never with an erased value. `rows` is their number."""

    by = serializers.CharField(source="by_name")

    class Meta:
        model = ErasureRecord
        fields = [
            "id",
            "run",
            "by",
            "at",
            "reason",
            "paths",
            "inherited",
            "kept_files",
            "rows",
            "ended_at",
        ]
        read_only_fields = fields
