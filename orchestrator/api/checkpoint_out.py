"""Serializers of one checkpoint, with everything that was known of the run at that
point.
"""

from typing import Any

from django.db.models import Q
from rest_framework import serializers

from approvals.api.base import SealedOut
from approvals.models import Decision
from checkpoints import timeline
from checkpoints.ledger import notes, pending_writes
from checkpoints.lines import logged_until, past
from checkpoints.memory.read_records import memory_at
from checkpoints.models import Checkpoint, PendingWrite, TaskResult
from checkpoints.sealing.sealed_rows import protection_of
from orchestrator.api.serializers import CheckpointLine, StateOut, shown_figures
from orchestrator.engine import registry
from orchestrator.engine.step.plan import Frontier, skipped


class HeldOut(SealedOut, serializers.ModelSerializer[PendingWrite]):
    """A write that a gate held at that point."""

    # The id of the write, which its revisions share; each revision is a row.
    id = serializers.UUIDField(source="write")
    value = serializers.SerializerMethodField("value_of")
    unanswered = serializers.SerializerMethodField(
        "unanswered_of", help_text="people are asked for its value: `value` is none"
    )
    base = serializers.SerializerMethodField("base_of")

    class Meta:
        model = PendingWrite
        fields = [
            "id",
            "task",
            "position",
            "channel",
            "label",
            "value",
            "unanswered",
            "revision",
            "base",
            "staged_at",
            "hash",
            "fault",
        ]
        read_only_fields = fields

    def value_of(self, row: PendingWrite) -> Any:
        return self.value_or_none(row, "value")

    def unanswered_of(self, row: PendingWrite) -> bool:
        return pending_writes.is_shown_unanswered(row)

    def base_of(self, row: PendingWrite) -> Any:
        return (self.value_or_none(row, "base") or {}).get("value")


class ResultOut(SealedOut, serializers.ModelSerializer[TaskResult]):
    """A recorded result that counted at that point, with what its node returned; null
    where that cannot be read.
    """

    output = serializers.SerializerMethodField()
    figures = serializers.SerializerMethodField()

    class Meta:
        model = TaskResult
        fields = [
            "task",
            "attempt",
            "effect",
            "seq",
            "took_ms",
            "result_at",
            "output",
            "figures",
            "fault",
        ]
        read_only_fields = fields

    def get_output(self, result: TaskResult) -> Any:
        return self.value_or_none(result, "output")

    def get_figures(self, result: TaskResult) -> dict[str, Any]:
        figures_by_task = self.context["figures"]
        return shown_figures(figures_by_task.get(notes.task_on_line(result), {}))


class ApprovalOut(SealedOut, serializers.ModelSerializer[Decision]):
    """A decision that had been made by then."""

    by = serializers.CharField(source="by_name")

    class Meta:
        model = Decision
        fields = [
            "id",
            "task",
            "write",
            "channel",
            "revision",
            "verdict",
            "by",
            "at",
            "fault",
        ]
        read_only_fields = fields


def _run_context(row: Checkpoint) -> dict[str, Any]:
    """Return the context of rows that belong to the checkpoint's run."""
    return {"protection": protection_of(row.run)}


class CheckpointOut(CheckpointLine):
    """One checkpoint. `skipped` is null where this process lacks the graph's version,
    `memory` where there is none.
    """

    aliases = serializers.SerializerMethodField()
    state = serializers.SerializerMethodField()
    pending_writes = serializers.SerializerMethodField()
    channel_versions = serializers.SerializerMethodField()
    node_results = serializers.SerializerMethodField()
    visited = serializers.SerializerMethodField()
    skipped = serializers.SerializerMethodField()
    paused = serializers.SerializerMethodField()
    pending_edges = serializers.SerializerMethodField()
    approvals = serializers.SerializerMethodField()
    memory = serializers.DictField(
        allow_null=True,
        default=None,
        help_text="{reads, landed, added, updated, removed}: what its superstep read "
        "from memory, what landed with it, and the keys that it added, updated and "
        "removed. Null: nothing.",
    )
    figures = serializers.SerializerMethodField()
    metrics = serializers.SerializerMethodField()
    hashes = serializers.SerializerMethodField()
    signature = serializers.SerializerMethodField()

    class Meta(CheckpointLine.Meta):
        fields = [
            *CheckpointLine.Meta.fields,
            "aliases",
            "state",
            "pending_writes",
            "channel_versions",
            "node_results",
            "visited",
            "skipped",
            "paused",
            "pending_edges",
            "approvals",
            "memory",
            "figures",
            "metrics",
            "hashes",
            "signature",
        ]
        read_only_fields = fields

    def to_representation(self, instance: Checkpoint) -> dict[str, Any]:
        # Several fields read these, so they are loaded once.
        self.payload = timeline.snapshot_of(instance)
        self.metadata_at = notes.metadata_at(instance.run, [instance.seq])
        self.frontier = Frontier.from_json(self.payload["frontier"])
        return {**super().to_representation(instance), "memory": memory_at(instance)}

    def get_aliases(self, row: Checkpoint) -> list[str]:
        return timeline.aliases(row)

    def get_state(self, row: Checkpoint) -> StateOut:
        # The input is kept with the run, not with each checkpoint.
        state: dict[str, Any] = {"input": timeline.input_of(row.run)}
        for partition in timeline.PARTITIONS:
            if partition != "input":
                state[partition] = self.payload[partition]
        return state  # type: ignore[return-value]

    def get_pending_writes(self, row: Checkpoint) -> list[dict[str, Any]]:
        writes = timeline.held_at(row)
        return list(HeldOut(writes, many=True, context=_run_context(row)).data)

    def get_channel_versions(self, row: Checkpoint) -> dict[str, int]:
        return dict(self.payload["versions"])

    def get_node_results(self, row: Checkpoint) -> list[dict[str, Any]]:
        results = list(timeline.results_at(row))
        figures = notes.figures_of_results(results, protection_of(row.run))
        context = {**_run_context(row), "figures": figures}
        return list(ResultOut(results, many=True, context=context).data)

    def get_figures(self, row: Checkpoint) -> dict[str, dict[str, Any]]:
        sums_by_node = notes.figures_at(row.run, row.seq)
        return {node: shown_figures(sums) for node, sums in sums_by_node.items()}

    def get_visited(self, row: Checkpoint) -> list[str]:
        return list(self.frontier.visited)

    def get_skipped(self, row: Checkpoint) -> list[str] | None:
        compiled = registry.find_graph(row.fingerprint)
        return skipped(compiled, self.frontier) if compiled else None

    def get_paused(self, row: Checkpoint) -> list[str]:
        return sorted(self.frontier.waiting)

    def get_pending_edges(self, row: Checkpoint) -> dict[str, int]:
        return self.frontier.tokens

    def get_approvals(self, row: Checkpoint) -> list[dict[str, Any]]:
        # The past leads through older lines, and through the runs that this is a fork
        # of; of each stretch only the log up to its end counts.
        in_the_past = Q(pk__in=[])
        for stretch in past(row.run_id, row.line, row.seq):
            in_the_past |= Q(
                run=stretch.run,
                line=stretch.line,
                event_seq__lte=logged_until(stretch),
            )
        decisions = Decision.objects.filter(in_the_past).order_by("at", "event_seq")
        return list(ApprovalOut(decisions, many=True, context=_run_context(row)).data)

    def get_metrics(self, row: Checkpoint) -> dict[str, int]:
        return {"took_ms": row.took_ms}

    def get_hashes(self, row: Checkpoint) -> dict[str, str]:
        names = ("change", "content", "snapshot", "event")
        return {name: getattr(row, f"{name}_hash") for name in names}

    def get_signature(self, row: Checkpoint) -> dict[str, str] | None:
        if not row.seal:
            return None
        return {"key": row.seal_key, "seal": bytes(row.seal).hex()}
