"""Serializers of blame, histories of paths, lineages and alignments."""

from collections.abc import Iterable
from typing import Any

from rest_framework import serializers

from approvals.api.base import Body, FaultOut
from checkpoints import timeline
from checkpoints.core.alignment import REASONS, Reason, in_words
from checkpoints.models import Checkpoint, Run
from checkpoints.sealing.seal_fault import json_of
from checkpoints.timeline import Alignment, Blame, Lineage, PathChange, RunDifference

MOST_SEQ = 2**31 - 1


class BlameQuery(Body):
    """The path to blame, and the checkpoint to read it at."""

    path = serializers.CharField(
        help_text="As a diff writes it: payout.lines[2].amount."
    )
    at = serializers.IntegerField(
        required=False,
        min_value=0,
        max_value=MOST_SEQ,
        help_text="A seq; else the newest.",
    )


class HistoryQuery(Body):
    """The path whose history is read, and how far back."""

    path = serializers.CharField(
        help_text="As a diff writes it: payout.lines[2].amount."
    )
    before = serializers.IntegerField(
        required=False, min_value=0, max_value=MOST_SEQ, help_text="Changes below it."
    )
    limit = serializers.IntegerField(
        required=False, min_value=1, max_value=200, default=50
    )


class AlignQuery(Body):
    """The other run of a comparison, and the checkpoints of both; without these, the
    runs are compared as they are now.
    """

    at = serializers.IntegerField(
        required=False, min_value=0, max_value=MOST_SEQ, help_text="A seq of this run."
    )
    with_at = serializers.IntegerField(
        required=False, min_value=0, max_value=MOST_SEQ, help_text="A seq of the other."
    )

    def get_fields(self) -> dict[str, Any]:
        # `with` is a keyword of Python.
        other = serializers.CharField(help_text="Id or key of the other run.")
        return {"with": other, **super().get_fields()}

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("at" in attrs) != ("with_at" in attrs):
            refusals = {"with_at": ["at and with_at go together."]}
            raise serializers.ValidationError(refusals)
        return attrs


class PlaceOut(serializers.Serializer[Checkpoint]):
    """A checkpoint of some run, by name."""

    checkpoint = serializers.UUIDField(source="id")
    alias = serializers.SerializerMethodField()
    run = serializers.UUIDField(source="run_id")
    seq = serializers.IntegerField()
    line = serializers.IntegerField()
    # A row has `source` as an attribute, and a field's own option has the same name.
    made_by = serializers.SerializerMethodField(
        help_text="Why it was made, and the nodes that it lists."
    )
    created_at = serializers.DateTimeField()

    def get_alias(self, row: Checkpoint) -> str:
        return timeline.alias_of(row)

    def get_made_by(self, row: Checkpoint) -> dict[str, Any]:
        return {
            "source": str(row.source),
            "nodes": [entry["node"] for entry in row.nodes],
        }


class BlameOut(serializers.Serializer[Blame]):
    """The checkpoint at which a path was last set. `node` and `person` are empty if
    there is none; several are separated by commas.
    """

    checkpoint = PlaceOut()
    node = serializers.CharField()
    person = serializers.CharField()


class PathChangeOut(serializers.Serializer[PathChange]):
    """One checkpoint that changed a path."""

    checkpoint = PlaceOut()
    kind = serializers.ChoiceField(choices=["added", "removed", "changed"])
    before = serializers.JSONField()
    after = serializers.JSONField()
    node = serializers.CharField()
    person = serializers.CharField()


class HistoryOut(serializers.Serializer[Any]):
    """The changes of a path, oldest first. `before` continues with older changes; null
    if there are none.
    """

    path = serializers.CharField()
    changes = PathChangeOut(many=True)
    before = serializers.IntegerField(allow_null=True)


class RelativeOut(serializers.Serializer[Any]):
    """A run in a tree: which run it came of, and how: fork, replay or child; null and
    empty for the first.
    """

    run = serializers.UUIDField()
    key = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment]
    graph = serializers.CharField()
    status = serializers.CharField()
    of = serializers.UUIDField(allow_null=True)
    how = serializers.CharField()
    seq = serializers.IntegerField(
        allow_null=True, help_text="The checkpoint that it left from."
    )
    checkpoint = serializers.UUIDField(allow_null=True)
    task = serializers.CharField(help_text="The task whose child it is.")
    fault = FaultOut(allow_null=True)


class LineageOut(serializers.Serializer[Any]):
    """The tree of a run, each run after the one that it came from. `path` leads to the
    run; `cut`: there are more.
    """

    path = serializers.ListField(child=serializers.UUIDField())
    runs = RelativeOut(many=True)
    cut = serializers.BooleanField()


def lineage_json(lineage: Lineage) -> dict[str, Any]:
    """Return a tree as a list of runs, each with the id of the run that it came of."""
    # The tree lists the descendants of each run; the answer names the parent of each.
    parents: dict[Any, Any] = {}
    for _, relative in lineage.walk():
        for descendant in relative.relatives:
            parents[descendant.run.id] = relative.run.id

    runs: list[dict[str, Any]] = []
    for _, relative in lineage.walk():
        run = relative.run
        runs.append(
            {
                "run": run.id,
                "key": run.key,
                "label": run.label,
                "graph": run.graph,
                "status": run.status,
                "of": parents.get(run.id),
                "how": relative.how,
                "seq": relative.seq,
                "checkpoint": relative.checkpoint,
                "task": relative.task,
                "fault": json_of(relative.fault),
            }
        )
    return {"path": lineage.path, "runs": runs, "cut": lineage.cut}


class SharedOut(serializers.Serializer[Any]):
    """The last checkpoint that both share, as one of them has it; of a fork, of the run
    that it comes from.
    """

    run = serializers.UUIDField()
    seq = serializers.IntegerField()


class SplitOut(serializers.Serializer[Any]):
    """The last checkpoint that both share."""

    a = SharedOut()
    b = SharedOut()


class SeqsOut(serializers.Serializer[Any]):
    """A number of each run, or null."""

    a = serializers.IntegerField(allow_null=True)
    b = serializers.IntegerField(allow_null=True)


class RowOut(serializers.Serializer[Any]):
    """Checkpoints side by side; null where one run has nothing there."""

    a = PlaceOut(allow_null=True)
    b = PlaceOut(allow_null=True)


class ReasonOut(serializers.Serializer[Reason]):
    """Why a value differs, the nodes, and the run (a, b) where it was in one only; and
    all of it in words.
    """

    why = serializers.ChoiceField(choices=list(REASONS), source="kind")
    nodes = serializers.ListField(child=serializers.CharField())
    run = serializers.CharField()
    text = serializers.SerializerMethodField()

    def get_text(self, reason: Reason) -> str:
        return in_words(reason)


class DifferenceOut(serializers.Serializer[RunDifference]):
    """A path that differs, its value in both, and why. `added`: there in B only, null
    in A; `removed`: in A only.
    """

    partition = serializers.CharField()
    path = serializers.CharField()
    kind = serializers.ChoiceField(
        choices=["added", "removed", "changed"],
        help_text="added: in B only; removed: in A.",
    )
    a = serializers.JSONField()
    b = serializers.JSONField()
    set_at = serializers.SerializerMethodField()
    reason = ReasonOut()

    def get_set_at(self, difference: RunDifference) -> SeqsOut:
        return _sides(difference.seqs)  # type: ignore[return-value]


class AlignOut(serializers.Serializer[Any]):
    """Two runs beside each other. `split` is null where they share nothing; `at`: the
    states that are compared.
    """

    a = serializers.UUIDField()
    b = serializers.UUIDField()
    other_graph = serializers.BooleanField()
    split = SplitOut(allow_null=True)
    at = SeqsOut()
    rows = RowOut(many=True)
    differences = DifferenceOut(many=True)
    cut_rows = serializers.BooleanField()
    cut = serializers.BooleanField()


def alignment_json(alignment: Alignment) -> dict[str, Any]:
    """Return an alignment with its sides called `a` and `b`."""
    _set_runs(alignment)
    split = None
    if alignment.split:
        split = _sides([place._asdict() for place in alignment.split])
    return {
        "a": alignment.runs[0].id,
        "b": alignment.runs[1].id,
        "other_graph": alignment.other_graph,
        "differences": alignment.differences,
        "cut_rows": alignment.cut_rows,
        "cut": alignment.cut,
        "split": split,
        "at": _sides(alignment.at),
        "rows": [_sides(pair) for pair in alignment.rows],
    }


def _set_runs(alignment: Alignment) -> None:
    """Give each checkpoint its run, so that none is read from the database."""
    run_by_id: dict[Any, Run] = {run.id: run for run in alignment.runs}
    for pair in alignment.rows:
        for row in pair:
            if row is not None and row.run_id in run_by_id:
                row.run = run_by_id[row.run_id]


def _sides(pair: Iterable[Any]) -> dict[str, Any]:
    """Return the two values of a pair by the name of their run."""
    return dict(zip("ab", pair, strict=True))
