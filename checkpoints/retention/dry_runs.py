"""What a policy would remove now, counted: nothing is written. One query over columns, whatever the rows hold, and a
short one for examples.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Max, Min, Q, Sum

from checkpoints.db.large_reads import few_groups
from checkpoints.models import RetentionPolicy
from checkpoints.retention.kept_points import OLD, REMOVED, WITH_RUN, WORDS, classified, numbered
from checkpoints.retention.rule import Rule, rule_of

EXAMPLES = 20


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a rule would remove. `counts`: {checkpoints, runs, kept}, `runs` those that go as a whole; `bytes` of the
    removed; up to 20 `examples` {run, key, checkpoint, seq, bytes, at, why}; `reasons` word -> {count, bytes, words,
    example}, of what stays and of what goes. Its four parts can be taken apart like a tuple.
    """

    graph: str
    now: datetime
    counts: dict[str, int] = field(default_factory=dict)
    bytes: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)
    reasons: dict[str, dict[str, Any]] = field(default_factory=dict)
    oldest: datetime | None = None
    newest: datetime | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.counts, self.bytes, self.examples, self.reasons))

    def json(self) -> dict[str, Any]:
        """For machines: {count, bytes, examples, runs, kept, reasons}."""
        counts = {"count": self.counts["checkpoints"], "bytes": self.bytes, "examples": self.examples}
        return {**counts, "runs": self.counts["runs"], "kept": self.counts["kept"], "reasons": self.reasons}


def dry_run(policy: RetentionPolicy, *, now: datetime | None = None) -> DryRun:
    """What the policy would remove, and why each other checkpoint stays. Raises `InvalidValue`."""
    return count(rule_of(policy, now=now))


def count(rule: Rule) -> DryRun:
    """`dry_run` of a rule: two queries, one where nothing goes."""
    rows = numbered(rule).values("why").annotate(
        count=Count("id"),
        bytes=Sum("stored_size"),
        oldest=Min("created_at"),
        newest=Max("created_at"),
        runs=Count("id", filter=Q(id=F("run__head"))),
        example=Min("run__key"),
    )  # fmt: skip
    words = list(WORDS)
    with few_groups():
        found = {words[row["why"]]: row for row in rows}
    going = [found[why] for why in REMOVED if why in found]
    counts = {
        "checkpoints": sum(row["count"] for row in going),
        "runs": found[WITH_RUN]["runs"] if WITH_RUN in found else 0,
        "kept": sum(row["count"] for why, row in found.items() if why not in REMOVED),
    }
    return DryRun(
        rule.graph,
        rule.now,
        counts,
        sum(row["bytes"] for row in going),
        _examples(rule) if going else [],
        {why: _reason(why, found[why]) for why in WORDS if why in found},
        min((row["oldest"] for row in going), default=None),
        max((row["newest"] for row in going), default=None),
    )


@dataclass(frozen=True, slots=True)
class RunExample:
    """What would be removed of a run: its checkpoints from `first` to `last`, or the `whole` run."""

    run: str
    key: str
    first: int
    last: int
    bytes: int
    whole: bool


def example_runs(policy: RetentionPolicy, found: DryRun) -> list[RunExample]:
    """Return the runs of a dry run's examples, each with all that would be removed of it. One query."""
    rule = rule_of(policy, now=found.now)
    runs = {example["run"] for example in found.examples}
    going = classified(rule).filter(run__in=runs, why__in=REMOVED)
    rows = going.values("run_id", "run__key").annotate(
        first=Min("seq"), last=Max("seq"), bytes=Sum("stored_size"), whole=Count("id", filter=Q(why=WITH_RUN))
    )
    return [
        RunExample(
            run=str(row["run_id"]),
            key=row["run__key"],
            first=row["first"],
            last=row["last"],
            bytes=row["bytes"],
            whole=bool(row["whole"]),
        )
        for row in rows.order_by("run_id")
    ]


def _reason(why: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {"count": row["count"], "bytes": row["bytes"], "words": WORDS[why], "example": row["example"]}


def _examples(rule: Rule) -> list[dict[str, Any]]:
    rows = classified(rule).filter(why__in=[OLD, WITH_RUN])
    names = ("run_id", "run__key", "id", "seq", "stored_size", "created_at", "why")
    return [
        {
            "run": str(run),
            "key": key,
            "checkpoint": str(id),
            "seq": seq,
            "bytes": size,
            "at": at.isoformat(),
            "why": WORDS[why],
        }
        for run, key, id, seq, size, at, why in rows.values_list(*names)[:EXAMPLES]
    ]
