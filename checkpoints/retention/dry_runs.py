"""Counting what a policy would remove now: nothing is written. One query over columns,
whatever the rows hold, and a short one for examples.
"""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import Count, Exists, F, Max, Min, Q, Sum

from checkpoints.db.large_reads import LookedUp, few_groups, few_rows
from checkpoints.models import RetentionPolicy, Run
from checkpoints.retention.kept_points import (
    OLD,
    REMOVED,
    WITH_RUN,
    WORDS,
    classified,
    numbered,
)
from checkpoints.retention.rule import Rule, rule_of

EXAMPLES = 20
FEW_RUNS = 20_000
FEW_CHECKPOINTS = 100_000
"""Up to so many runs and checkpoints of a graph each row is looked up that may keep one
of them; for more it takes less time to read tables whole.
"""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The rows that a rule would remove. `counts`: {checkpoints, runs, kept}, `runs`
    those that go as a whole; `bytes` of the removed; up to 20 `examples` {run, key,
    checkpoint, seq, bytes, at, why}; `reasons` word -> {count, bytes, words, example},
    of what stays and of what goes. Its four parts can be unpacked like a tuple.
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
        """Return it for machines: {count, bytes, examples, runs, kept, reasons}."""
        return {
            "count": self.counts["checkpoints"],
            "bytes": self.bytes,
            "examples": self.examples,
            "runs": self.counts["runs"],
            "kept": self.counts["kept"],
            "reasons": self.reasons,
        }


def dry_run(policy: RetentionPolicy, *, now: datetime | None = None) -> DryRun:
    """Return what the policy would remove, and why each other checkpoint stays. Raises
    `InvalidValue`.
    """
    return count(rule_of(policy, now=now))


def count(rule: Rule) -> DryRun:
    """Return the `dry_run` of a rule: three queries, two if nothing goes."""
    has_few = _has_few(rule.graph)
    sums = _sums_by_word(rule, has_few)
    going = []
    counts = {"checkpoints": 0, "runs": 0, "kept": 0}
    reasons = {}
    for word in WORDS:
        if word not in sums:
            continue
        word_sums = sums[word]
        reasons[word] = _reason(word, word_sums)
        if word in REMOVED:
            going.append(word_sums)
            counts["checkpoints"] += word_sums["count"]
        else:
            counts["kept"] += word_sums["count"]
    # For any other word, `runs` counts heads that stay, and no whole run goes.
    if WITH_RUN in sums:
        counts["runs"] = sums[WITH_RUN]["runs"]
    return DryRun(
        graph=rule.graph,
        now=rule.now,
        counts=counts,
        bytes=sum(word_sums["bytes"] for word_sums in going),
        examples=_examples(rule, has_few) if going else [],
        reasons=reasons,
        oldest=min((word_sums["oldest"] for word_sums in going), default=None),
        newest=max((word_sums["newest"] for word_sums in going), default=None),
    )


def _has_few(graph: str) -> bool:
    """Return whether a graph has so few runs and checkpoints that others may have many
    more. Reads no more of its runs than are few.
    """
    runs = Run.objects.filter(graph=graph).order_by().values("head_seq")
    counts = runs[: FEW_RUNS + 1].aggregate(runs=Count("*"), last=Sum("head_seq"))
    # Each run has a checkpoint more than the number of its head.
    count = int(counts["runs"])
    checkpoints = count + int(counts["last"] or 0)
    return count <= FEW_RUNS and checkpoints <= FEW_CHECKPOINTS


def _sums_by_word(rule: Rule, has_few: bool) -> dict[str, Mapping[str, Any]]:
    exists = LookedUp if has_few else Exists
    rows = numbered(rule, exists=exists).values("why")
    rows = rows.annotate(
        count=Count("id"),
        bytes=Sum("stored_size"),
        oldest=Min("created_at"),
        newest=Max("created_at"),
        # Each run has one head, so the heads among the checkpoints are its runs.
        runs=Count("id", filter=Q(id=F("run__head"))),
        # Any run would do; the least key is the same each time.
        example=Min("run__key"),
    )
    words = list(WORDS)
    with few_rows() if has_few else few_groups():
        return {words[row["why"]]: row for row in rows}


@dataclass(frozen=True, slots=True)
class RunExample:
    """The part of a run that would be removed: its checkpoints from `first` to `last`,
    or the `whole` run.
    """

    run: str
    key: str
    first: int
    last: int
    bytes: int
    whole: bool


def example_runs(policy: RetentionPolicy, counted: DryRun) -> list[RunExample]:
    """Return the runs of a dry run's examples, each with all that would be removed of
    it. One query.
    """
    # At the moment of the dry run: a later one would add rows that it did not count.
    rule = rule_of(policy, now=counted.now)
    runs = {example["run"] for example in counted.examples}
    going = classified(rule).filter(run__in=runs, why__in=REMOVED)
    rows = going.values("run_id", "run__key").annotate(
        first=Min("seq"),
        last=Max("seq"),
        bytes=Sum("stored_size"),
        whole=Count("id", filter=Q(why=WITH_RUN)),
    )
    examples = []
    for row in rows.order_by("run_id"):
        example = RunExample(
            run=str(row["run_id"]),
            key=row["run__key"],
            first=row["first"],
            last=row["last"],
            bytes=row["bytes"],
            whole=bool(row["whole"]),
        )
        examples.append(example)
    return examples


def _reason(why: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "count": row["count"],
        "bytes": row["bytes"],
        "words": WORDS[why],
        "example": row["example"],
    }


def _examples(rule: Rule, has_few: bool) -> list[dict[str, Any]]:
    exists = LookedUp if has_few else Exists
    # In no order: a sort would read every row for twenty examples.
    rows = classified(rule, exists=exists).filter(why__in=[OLD, WITH_RUN])
    names = ("run_id", "run__key", "id", "seq", "stored_size", "created_at", "why")
    with few_rows() if has_few else nullcontext():
        records = list(rows.values_list(*names)[:EXAMPLES])
    examples = []
    for run, key, id_, seq, size, at, why in records:
        example = {
            "run": str(run),
            "key": key,
            "checkpoint": str(id_),
            "seq": seq,
            "bytes": size,
            "at": at.isoformat(),
            "why": WORDS[why],
        }
        examples.append(example)
    return examples
