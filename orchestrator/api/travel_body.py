"""Bodies and answers of time travel: plans, reports and bulk forks."""

from typing import Any

from rest_framework import serializers

from approvals.api.base import Body, Query
from checkpoints.models.run_line import Travel
from checkpoints.sealing.sealed_columns import read_or_reason
from orchestrator.api.verbs import field_of
from orchestrator.models import BulkForkResult
from orchestrator.runs import verb_table
from orchestrator.runs.verb_table import LONGEST_NAME

MOST_NAMED = 1000
"""The most checkpoints that one request may name."""


class HowBody(Body):
    """A plan that is asked for."""

    patch = field_of(verb_table.PATCH)
    answers = field_of(verb_table.ANSWERS)
    allow_effects = field_of(verb_table.ALLOW_EFFECTS)
    how = serializers.ChoiceField(choices=Travel.choices, default=Travel.FORK)


class BulkForkBody(Body):
    """Which runs to fork, from the last good checkpoint of each: those of these
    checkpoints, or those of a graph.
    """

    checkpoints = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_NAME * 2),
        required=False,
        allow_empty=False,
        max_length=MOST_NAMED,
    )
    graph = serializers.CharField(max_length=LONGEST_NAME, required=False)
    status = serializers.CharField(max_length=20, default="failed")
    patch = field_of(verb_table.PATCH)
    allow_effects = field_of(verb_table.ALLOW_EFFECTS)
    reason = field_of(verb_table.REASON)
    dry_run = serializers.BooleanField(
        default=False, help_text="Only say what would be done."
    )


class PlannedTask(serializers.Serializer[Any]):
    """A task in a list of a plan."""

    task = serializers.CharField(help_text="node:visit:index")
    node = serializers.CharField()
    why = serializers.CharField(allow_blank=True)


class PlanOut(serializers.Serializer[Any]):
    """The plan of going on. Nothing happens that it does not list."""

    how = serializers.CharField()
    checkpoint = serializers.CharField()
    needs_yes = serializers.ListField(
        child=serializers.CharField(),
        help_text="Nodes before which it stops unless `allow_effects` names them.",
    )
    runs = PlannedTask(many=True, help_text="What runs.")
    may_run = PlannedTask(
        many=True, help_text="What runs if a router, a person or an error says so."
    )
    reused = PlannedTask(many=True, help_text="Recorded results that are taken.")
    effects_again = PlannedTask(
        many=True, help_text="What happened already, and would happen again."
    )
    may_have_happened = PlannedTask(
        many=True, help_text="What nobody knows to have happened or not."
    )
    asks = PlannedTask(many=True, help_text="What people are asked.")
    patched = serializers.ListField(
        child=serializers.CharField(), help_text="The channels that the patch changes."
    )
    guarded = serializers.DictField(
        child=serializers.CharField(),
        help_text="Of them those that need signatures, with the node of their gate.",
    )


class ReplayOrigin(serializers.Serializer[Any]):
    """The origin of a replay."""

    run = serializers.UUIDField()
    checkpoint = serializers.UUIDField()


class DivergedTask(serializers.Serializer[Any]):
    """A task that went another way than in the origin. Its branch ended there, but for
    a pure or read task on other memory: that ran, and went on.
    """

    task = serializers.CharField(help_text="node:visit:index")
    why = serializers.CharField(help_text="other_input, other_memory, or no_record.")
    path = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        help_text="What it saw otherwise.",
    )


class ReplayOut(serializers.Serializer[Any]):
    """The report of a replay."""

    run = serializers.UUIDField()
    origin = ReplayOrigin()
    status = serializers.CharField()
    reused = serializers.ListField(child=serializers.CharField())
    diverged = DivergedTask(many=True)


class PlanKindOut(serializers.Serializer[Any]):
    """Runs whose plans have the same lists; the plan is that of the first example."""

    count = serializers.IntegerField()
    examples = serializers.ListField(
        child=serializers.CharField(), help_text="Ids of runs."
    )
    plan = PlanOut()


class RefusedOut(serializers.Serializer[Any]):
    """Runs that would be refused for the same reason."""

    count = serializers.IntegerField()
    examples = serializers.ListField(
        child=serializers.CharField(), help_text="Ids of runs."
    )
    code = serializers.CharField()
    message = serializers.CharField()


class BulkPlanOut(serializers.Serializer[Any]):
    """The dry run of a bulk fork: how many of `total` runs were `examined`, and their
    plans and refusals by kind.
    """

    total = serializers.IntegerField()
    examined = serializers.IntegerField()
    others = serializers.IntegerField(
        help_text="Examined runs of kinds that are not listed."
    )
    kinds = PlanKindOut(many=True)
    refusals = RefusedOut(many=True)


class BulkForkOut(serializers.Serializer[Any]):
    """A bulk fork: how far its job is."""

    id = serializers.UUIDField()
    status = serializers.CharField(
        help_text="That of its job: queued, running, done, failed or cancelled."
    )
    error = serializers.CharField(allow_blank=True)
    total = serializers.IntegerField()
    forked = serializers.IntegerField()
    refused = serializers.IntegerField()
    waiting = serializers.IntegerField()


class BulkForkResultOut(serializers.ModelSerializer[BulkForkResult]):
    """The result for one run: its fork, or the reason that there is none. Neither while
    it waits for its turn.
    """

    message = serializers.SerializerMethodField()

    class Meta:
        model = BulkForkResult
        fields = ["origin", "checkpoint", "fork", "code", "message", "at"]
        read_only_fields = fields

    def get_message(self, row: BulkForkResult) -> str:
        return read_or_reason(row, "message") or ""


class BulkForkResultsQuery(Query):
    """Which results."""

    refused = serializers.BooleanField(
        required=False, default=False, help_text="Only runs that were refused."
    )
