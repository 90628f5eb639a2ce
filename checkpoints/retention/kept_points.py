"""Which checkpoints a rule removes, and why each of the others stays: one decision, made by the database.

A dry run counts by it, and a removal asks it once more under the lock of the run. Other floors say what they need of
a run: they add to `POINTS` and `REFERENCES` when they are ready.
"""

from collections.abc import Callable, Mapping
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Exists,
    F,
    Field,
    OuterRef,
    Q,
    QuerySet,
    SmallIntegerField,
    Subquery,
    Value,
    When,
)
from django.db.models.lookups import Exact, LessThan

from checkpoints.core.status import ENDS, Status
from checkpoints.models import Checkpoint, ErasureRecord, LegalHold, Pin, Run, RunLine
from checkpoints.models.checkpoint import Source
from checkpoints.models.run_line import Travel
from checkpoints.retention.rule import Rule

OLD, WITH_RUN = "old", "with_run"
KEPT_BY_POLICY = "policy"
REMOVED = (OLD, WITH_RUN)
"""Of these a checkpoint goes: by itself, or with its whole run. Each other word says why one stays."""
WORDS = {
    OLD: "is removed",
    WITH_RUN: "is removed with its whole run",
    "tampered": "its run does not verify",
    "imported": "its run was imported as a bundle and stays as it is",
    "held": "its run is under a legal hold",
    "erasing": "values of its run are being erased",
    "waits": "the run is paused here",
    "head": "the newest of its run",
    "pinned": "it is pinned",
    "forked_from": "a fork, a replay or a later line starts here",
    "prepared_from": "a decision or call still depends on it",
    "in_hand": "a worker continues from it",
    "replayed": "an unfinished replay reads it",
    KEPT_BY_POLICY: "the policy keeps it",
}
"""What each word means to people, in the order in which it is looked for."""

_WAITING = (Status.PAUSED, Status.WAITING)

Rows = Callable[[], "QuerySet[Any]"]
POINTS: dict[str, Rows] = {}
"""Word -> a query, correlated with a row of a checkpoint by `OuterRef`, that finds something where the checkpoint must
stay.
"""
REFERENCES: list[Rows] = []
"""Queries, correlated likewise, that find something where the row of a run must stay."""


def classified(rule: Rule) -> "QuerySet[Any]":
    """The checkpoints of a rule's graph, each with the word `why` that says what becomes of it."""
    return _annotated(rule, {word: word for word in WORDS}, CharField())


def numbered(rule: Rule) -> "QuerySet[Any]":
    """The same, `why` being the place of the word in `WORDS`: millions of numbers are grouped in less time than words,
    which a database compares by the rules of a language.
    """
    return _annotated(rule, {word: place for place, word in enumerate(WORDS)}, SmallIntegerField())


def _annotated(rule: Rule, values: Mapping[str, Any], kind: "Field[Any, Any]") -> "QuerySet[Any]":
    when = [When(condition, then=Value(values[word])) for word, condition in _conditions(rule)]
    rows = Checkpoint.objects.filter(run__graph=rule.graph).order_by()
    annotated: QuerySet[Any] = rows.annotate(why=Case(*when, default=Value(values[KEPT_BY_POLICY]), output_field=kind))
    return annotated


def _conditions(rule: Rule) -> list[tuple[str, Any]]:
    """In order: the first that is met counts."""
    head = Q(id=F("run__head"))
    found: list[tuple[str, Any]] = [
        ("tampered", Q(run__status=Status.TAMPERED)),
        ("imported", Q(run__imported=True)),
        ("held", Exists(LegalHold.objects.filter(run=OuterRef("run_id"), released_at=None))),
        ("erasing", _being_erased()),
    ]
    if rule.ended:
        found.append((WITH_RUN, _ended(rule) & _unreferenced()))
    found += [
        ("waits", head & Q(run__status__in=_WAITING)),
        ("head", head),
        ("pinned", Exists(Pin.objects.filter(checkpoint=OuterRef("id"), released_at=None))),
        ("forked_from", Q(Exists(RunLine.objects.filter(departure=OuterRef("id")))) | Q(Exists(_forks()))),
        *((word, Exists(rows())) for word, rows in POINTS.items()),
        ("in_hand", _in_hand()),
        ("replayed", Exists(_replays())),
        (OLD, _old(rule)),
    ]
    return found


def _being_erased() -> Q:
    """An erasure goes through the rows of a run in batches. A removal between two of them would make a snapshot of rows
    that it has not reached, at one behind which it is already; and where the run went, it would never end.
    """
    going_on = ErasureRecord.objects.filter(run=OuterRef("run_id"), ended_at=None)
    return Q(run__erasure__isnull=False) & Q(Exists(going_on))


def _forks() -> "QuerySet[Checkpoint]":
    """What a store forked has no line before it is resumed."""
    return Checkpoint.objects.filter(parent=OuterRef("id"), source=Source.FORK)


def _replays() -> "QuerySet[RunLine]":
    """A replay reads of the line that it departed from where tasks went, up to its own end."""
    of = {"departure_run": OuterRef("run_id"), "parent_line": OuterRef("line"), "departure_seq__lte": OuterRef("seq")}
    return RunLine.objects.filter(**of, number=1, travel=Travel.REPLAY).exclude(run__status__in=ENDS)


def _in_hand() -> Q:
    """Rows that a worker may go on from: of its head's line from the row on with which a load of the head begins; and
    the row before a head that the next commit replaces.
    """
    leased = Q(run__lease_until__isnull=False, line=F("run__line"), seq__gte=_of_head("anchor"))
    # A run that ended has a head that stays, and most runs have ended: of those nothing is looked up.
    goes_on = ~Q(run__status__in=ENDS) & Q(seq=F("run__head_seq") - 1)
    return leased | (goes_on & Q(Exact(_of_head("kept"), False)))


def _of_head(column: str) -> Subquery:
    """A value, read by its id, where a row asks for it. As something that exists it could be answered by a list of all
    checkpoints, and a plan with such a list is worked on by one process.
    """
    return Subquery(Checkpoint.objects.filter(id=OuterRef("run__head")).order_by().values(column))


def _old(rule: Rule) -> Q:
    """What the policy itself would not keep."""
    aged = Q(pk__in=[])
    for status, moment in rule.older.items():
        aged |= Q(run__status=status, created_at__lt=moment)
    chosen = aged
    if rule.keep_last is not None:
        behind = Q(seq__lte=F("run__head_seq") - rule.keep_last)
        chosen = behind & (aged | ~Q(run__status__in=list(rule.older)))
    return chosen | _ended(rule) if rule.ended else chosen


def _ended(rule: Rule) -> Q:
    """Whether a checkpoint's run stands still for longer than runs in its status are kept."""
    found = Q(pk__in=[])
    for status, moment in rule.ended.items():
        still = LessThan(_of_head("created_at"), moment)
        since = Q(run__ended_at__lt=moment) | (Q(run__ended_at=None) & Q(still))
        found |= Q(run__status=status, run__created_at__lt=moment) & since
    return found


def _unreferenced() -> Q:
    """Whether nothing that stays speaks of a checkpoint's run, so that its row may go with all that hangs on it."""
    run = OuterRef("run_id")
    forked = Checkpoint.objects.filter(source=Source.FORK).order_by().values("parent")
    referring = [
        RunLine.objects.filter(departure_run=run, number=1),
        Checkpoint.objects.filter(run=run, id__in=forked),
        Run.objects.filter(parent_run=run, parent_run__isnull=False),
        Pin.objects.filter(run=run, released_at=None),
        *(rows() for rows in REFERENCES),
    ]
    alone = Q(run__parent_run=None, run__lease_until=None)
    for rows in referring:
        alone &= ~Q(Exists(rows))
    return alone
